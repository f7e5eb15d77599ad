"""`avlab trace record`: texts of a workload by the target, and a draft at every position of them, as a trace."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from avlab.commands import terminal
from avlab.commands.options import Settings, plain_settings, with_settings
from avlab.config import ConfigError, RunConfig
from avlab.lab.recording import NOT_OF_A_TRACE, Recording
from avlab.processes import usable_cores
from avlab.replay.about import TraceError
from avlab.replay.declared import MOST_DRAWS

TEXTS = 32  # written together
MOST_TEXTS = 100_000
MOST_PROCESSES = 64


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is recorded: the options beside the settings of a run."""

    file: Annotated[Path, typer.Argument(help="A new Parquet file.")]
    texts: Annotated[int, "texts to record"] = 140
    draws: Annotated[int, "drafts at every position, each drawn anew"] = 1
    processes: Annotated[int | None, "processes that share the work; else one a core"] = None


def _record(asked: Asked, settings: Settings, as_json: bool) -> None:
    if not 1 <= asked.texts <= MOST_TEXTS:
        raise ConfigError([f"texts is {asked.texts}: give 1 to {MOST_TEXTS:,}."])
    if not 1 <= asked.draws <= MOST_DRAWS:
        raise ConfigError([f"draws is {asked.draws}: give 1 to {MOST_DRAWS:,}."])
    path = asked.file.expanduser().absolute()
    if path.exists():
        raise TraceError(f"{path} is there already: give another name.")
    given = {"max_model_len": 1024} | plain_settings(settings)
    config = RunConfig.make(given, policy="none", max_num_seqs=TEXTS)
    if asked.draws > 1 and config.temperature == 0:
        raise ConfigError(["draws needs a temperature above 0: a greedy draft is the same every time."])
    processes = usable_cores() if asked.processes is None else asked.processes
    if not 1 <= processes <= MOST_PROCESSES:
        raise ConfigError([f"processes is {processes}: give 1 to {MOST_PROCESSES}."])
    with (
        terminal.bar() as progress,
        Recording(config, asked.texts, path, processes, asked.draws) as recording,
    ):
        while not recording.wait(0.5):
            progress(recording.doing, recording.done, recording.due)
        trace = recording.finish()
    if as_json:
        counts = {
            "texts": trace.texts // asked.draws,
            "draws": asked.draws,
            "anchors": trace.anchors,
            "bytes": path.stat().st_size,
        }
        terminal.print_json({"file": str(path), "tokens_per_step": trace.tokens_per_step()} | counts)
        return
    terminal.answers().print(
        f"{path}: {trace.size()}, {trace.about.sampling()}; "
        f"{trace.tokens_per_step():.2f} tokens a step where all drafts are verified.",
        soft_wrap=True,
    )


record = with_settings(
    Asked,
    _record,
    "Record texts of a workload, with a draft at every position, as a trace for replay.",
    NOT_OF_A_TRACE,
)
