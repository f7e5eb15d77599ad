"""`avlab trace record`: texts of a workload by the target, and a draft at every position of them, as a trace."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from avlab.commands import terminal
from avlab.commands.options import Settings, plain_settings, with_settings
from avlab.config import ConfigError, RunConfig
from avlab.cost_file import text_of
from avlab.replay.about import About, TraceError
from avlab.replay.trace import SETTINGS, Trace, write_trace
from avlab.workloads import Moment, open_workload

if TYPE_CHECKING:
    from avlab.engine.request import Request
    from avlab.engine.text import Text

TEXTS = 32  # written together
MOST_TEXTS = 100_000
NOT_OF_A_TRACE = (
    "policy", "arrival", "duration", "tokens", "requests", "database", "keep_text", "drafts", "costs", "depth_costs",
    "new_request", "max_num_seqs", "max_num_batched_tokens", "threads", "spin",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What is recorded: the options beside the settings of a run."""

    file: Annotated[Path, typer.Argument(help="A new Parquet file.")]
    texts: Annotated[int, "texts to record"] = 140


def _record(asked: Recording, settings: Settings, as_json: bool) -> None:
    if not 1 <= asked.texts <= MOST_TEXTS:
        raise ConfigError([f"texts is {asked.texts}: give 1 to {MOST_TEXTS:,}."])
    path = asked.file.expanduser().absolute()
    if path.exists():
        raise TraceError(f"{path} is there already: give another name.")
    given = {"max_model_len": 1024} | plain_settings(settings)
    config = RunConfig.make(given, policy="none", max_num_seqs=TEXTS)
    with terminal.bar() as progress:
        trace = _trace(config, asked.texts, path, progress)
    if as_json:
        counts = {"texts": trace.texts, "anchors": trace.anchors, "bytes": path.stat().st_size}
        terminal.print_json({"file": str(path), "tokens_per_step": trace.tokens_per_step()} | counts)
        return
    terminal.answers().print(
        f"{path}: {trace.texts:,} texts, {trace.anchors:,} anchors, {trace.about.sampling()}; "
        f"{trace.tokens_per_step():.2f} tokens a step where all drafts are verified.",
        soft_wrap=True,
    )


def _trace(config: RunConfig, count: int, path: Path, progress: Callable[[str, int, int], None]) -> Trace:
    """Texts of the target, and drafts at every position of them, written to a file."""
    from avlab.engine.build import build
    from avlab.engine.drafters.along import Recordable
    from avlab.engine.recording.chances import Sampling
    from avlab.engine.recording.work import Plan, joined, record_parts
    from avlab.workers.building import build_settings

    with tempfile.TemporaryDirectory() as folder:
        costs = Path(folder) / "costs.json"
        costs.write_text(
            text_of([(1, 1, 1.0)], [(1, 1.0)])
        )  # nothing is decided by costs here, so none are timed
        built = build(replace(build_settings(config), costs=costs), progress)
    drafter = built.engine.drafter
    if not isinstance(drafter, Recordable):
        raise ConfigError([f"drafter is {config.drafter}: a trace needs one that drafts along a known text."])
    sampling = Sampling(config.temperature, config.top_p, config.top_k)
    names = built.target_name, built.drafter_name or "none"
    about = About(drafter.K, drafter.features, *names, config.seed, *(getattr(sampling, s) for s in SETTINGS))
    identity = (
        f"{about} {count} {config.workload} {config.max_new_tokens} {config.max_model_len} {built.dtype}"
    )
    parts = path.with_name(f"{path.name}.parts")
    plan = Plan(list(_requests(config, count, built.text)), sampling, config.seed, parts, identity)
    plan.open()
    record_parts(
        plan, built, drafter, range(plan.parts), lambda done: progress("recording", done, len(plan.requests))
    )
    trace = joined(plan, about)
    write_trace(trace, path)
    plan.close()
    return trace


def _requests(config: RunConfig, count: int, text: "Text") -> "Iterator[Request]":
    """The first prompts of the workload, with the run's sampling: a trace has one."""
    from avlab.engine.request import Request
    from avlab.workers.intake import request_seed

    workload = open_workload(
        config.workload, f"closed:{count}", seed=config.seed, max_new_tokens=config.max_new_tokens
    )
    for number, arrived in enumerate(workload.due(Moment(0.0))):
        yield Request(
            id=number,
            tokens=text.encode(arrived.prompt.messages),
            max_new_tokens=arrived.max_new_tokens,
            temperature=config.temperature,
            top_k=config.top_k,
            top_p=config.top_p,
            seed=request_seed(config.seed, number),
            kind=arrived.kind,
        )


record = with_settings(
    Recording,
    _record,
    "Record texts of a workload, with a draft at every position, as a trace for replay.",
    NOT_OF_A_TRACE,
)
