"""A process that records parts of a trace: `python -m avlab.workers.recording`, started by `avlab.lab.recording`.

Its order is a line of JSON on standard input. It says what it prepares, then what is to be recorded, and asks for
parts: each further line is the number of one. It ends when there are no more, or nobody listens.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

from avlab import temporary
from avlab.config import ConfigError, RunConfig
from avlab.cost_file import text_of
from avlab.engine.build import Built, build
from avlab.engine.drafters.along import Recordable
from avlab.engine.drafters.lookup import Lookup
from avlab.engine.recording.chances import Sampling
from avlab.engine.recording.work import TEXTS, Plan, record_parts
from avlab.engine.request import Request
from avlab.engine.text import Text
from avlab.lines import Said, say, serve_lines
from avlab.replay.about import About
from avlab.replay.trace import SETTINGS
from avlab.workers.building import build_settings
from avlab.workers.intake import request_seed
from avlab.workloads import Moment, open_workload


def prepare(
    config: RunConfig, count: int, draws: int, folder: Path, progress: Callable[[str, int, int], None]
) -> tuple[Plan, Built, Recordable | Lookup, About]:
    """The recording of so many texts, each drafted for `draws` times, under a run's settings.

    Raises ConfigError for a drafter that cannot be recorded, TraceError where the folder holds another recording."""
    with temporary.folder() as passing:
        costs = passing / "costs.json"
        costs.write_text(text_of([(1, 1, 1.0)], [(1, 1.0)]))  # nothing is decided by costs, so none are timed
        built = build(replace(build_settings(config), costs=costs), progress)
    drafter = built.engine.drafter
    if isinstance(drafter, Lookup):
        if not drafter.alone:
            raise ConfigError(
                [
                    "drafter is suffix: texts are recorded each by itself, so earlier answers must be left out: give "
                    "suffix:suffix_decoding_max_cached_requests=0."
                ]
            )
    elif not isinstance(drafter, Recordable):
        raise ConfigError([f"drafter is {config.drafter}: a trace needs one that drafts along a known text."])
    sampling = Sampling(config.temperature, config.top_p, config.top_k)
    names = built.target_name, built.drafter_name or "none"
    about = About(
        drafter.K,
        drafter.features,
        *names,
        config.seed,
        *(getattr(sampling, s) for s in SETTINGS),
        draws=draws,
    )
    identity = (
        f"{about} {count} {config.workload} {config.max_new_tokens} {config.max_model_len} {built.dtype}"
    )
    plan = Plan(list(_requests(config, count, built.text)), sampling, config.seed, folder, identity, draws)
    plan.open()
    return plan, built, drafter, about


def _requests(config: RunConfig, count: int, text: Text) -> Iterator[Request]:
    """The first prompts of the workload, with the run's sampling: a trace has one."""
    workload = open_workload(
        config.workload, f"closed:{count}", seed=config.seed, max_new_tokens=config.max_new_tokens
    )
    for number, arrived in enumerate(workload.due(Moment(0.0))):
        yield Request(
            id=number,
            tokens=text.encode(arrived.prompt.messages, arrived.prompt.given),
            max_new_tokens=arrived.max_new_tokens,
            temperature=config.temperature,
            top_k=config.top_k,
            top_p=config.top_p,
            seed=request_seed(config.seed, number),
            kind=arrived.kind,
        )


def _serve(order: Said) -> None:
    config = RunConfig.make(order["config"])
    plan, built, drafter, about = prepare(
        config,
        order["texts"],
        order["draws"],
        Path(order["folder"]),
        lambda doing, *_: say({"doing": doing}),
    )
    say({"parts": plan.parts, "texts": len(plan.requests), "about": asdict(about)})
    for line in sys.stdin:
        before = 0

        def recorded(done: int) -> None:
            nonlocal before
            say({"recorded": done - before})
            before = done

        record_parts(plan, built, drafter, [int(line)], recorded)
        recorded(len(plan.requests[int(line) * TEXTS :][:TEXTS]))  # with those that ended at once
        say({"next": True})


if __name__ == "__main__":
    serve_lines(_serve, "The recording")
