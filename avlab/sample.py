"""The recorded runs that ship with the project, so that the pages have something to show before anything was started.

`python -m avlab.sample` records them anew (six minutes with the reference engine, three of replays) and writes them to
`avlab/sample_runs`, a folder a run. With names behind it, those alone.
"""

import contextlib
import functools
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from avlab import story
from avlab.config import RunConfig
from avlab.experiments.frontier_plan import make_frontier
from avlab.experiments.plan import make_plan
from avlab.kinds.replay import ReplayConfig
from avlab.lab.lab import Lab
from avlab.lab.supervisor import WorkerError
from avlab.policies.arm import DEFAULT_ARM
from avlab.store import queries, retention
from avlab.store.database import Database
from avlab.store.errors import StoreError
from avlab.store.export import export_run, import_run
from avlab.wire import commands

FOLDER = Path(__file__).with_name("sample_runs")
SUMS = ("sum_p", "sum_log_loss", "sum_squared_error")
SECONDS = 45.0  # of drifting traffic under each of the policies
CONTEXT = 1024  # tokens of a prompt and its answer; more would only take memory


def add(database: Database, folder: Path = FOLDER) -> None:
    """Put the shipped runs into a database that has never held one; a damaged one is left out."""
    with database.reading() as con:
        if queries.runs(con) or queries.runs(con, deleted=True):
            return
    for shipped in sorted(folder.glob("*/")):
        with contextlib.suppress(StoreError):
            import_run(database, shipped)


@functools.cache
def shipped() -> dict[str, str]:
    """What each of the shipped runs is, in a sentence, by run id."""
    found = {}
    for name, (_, note) in RECORDINGS.items():
        with contextlib.suppress(OSError, ValueError, KeyError):
            found[json.loads((FOLDER / name / "manifest.json").read_text())["run_id"]] = note
    return found


def compare(lab: Lab) -> str:
    """Record a short A/B to its end; its id."""
    config = RunConfig.make(max_model_len=CONTEXT)
    arms = [DEFAULT_ARM, "adaptive", "fixed:2", "none"]
    run = lab.run(*make_plan(config, arms, concurrency=4, rounds=14, learn=100))
    lab.supervisor.wait()
    return run


def replayed(lab: Lab, machine: str, arms: list[str], concurrency: int) -> str:
    """Record a replayed A/B to its end; its id. The first fixed length is its baseline."""
    config = ReplayConfig.make(machine=machine, pace="fast", drafts="none", seed=3)
    run = lab.run(*make_plan(config, arms, concurrency=concurrency, rounds=14, block="40steps", learn=300))
    lab.supervisor.wait()
    return run


def wins(lab: Lab) -> str:
    """A replayed A/B in which adaptive verification is ahead; its id."""
    return replayed(lab, "b300-deepseek-v4-flash-tp4", [DEFAULT_ARM, "fixed:2", "fixed:7", "none"], 64)


def loses(lab: Lab) -> str:
    """A replayed A/B in which the plain rule is behind, since drafting costs by depth there; its id."""
    return replayed(lab, "rtx-pro-6000-llama-3.1-8b", ["adaptive", DEFAULT_ARM, "fixed:3"], 16)


def tell(lab: Lab) -> str:
    """Record the run that a first visit opens on; its id."""
    run = story.play(lab)
    lab.supervisor.wait()
    return run


def frontier(lab: Lab) -> str:
    """Record a replayed frontier to its end; its id."""
    config = ReplayConfig.make(machine="b300-deepseek-v4-flash-tp4", pace="fast", drafts="none", seed=5)
    arms = [DEFAULT_ARM, "fixed:2", "fixed:7", "none"]
    run = lab.run(*make_frontier(config, arms, [1, 8, 32, 128], repeats=4, block="60steps", learn=200))
    lab.supervisor.wait()
    return run


def drift(lab: Lab) -> str:
    """Record two changes of policy on drifting traffic; its id."""
    config = RunConfig.make(
        workload="drift:code,essays@15s", arrival="closed:32", max_model_len=CONTEXT, duration=3 * SECONDS
    )
    run = lab.run(config)
    for arm in ("fixed:4", "adaptive"):
        while lab.supervisor.status().state != "serving" and not lab.supervisor.wait(0.2):
            pass
        lab.supervisor.wait(SECONDS)
        lab.supervisor.send(commands.SetPolicy(arm))
    lab.supervisor.wait()
    return run


RECORDINGS: dict[
    str, tuple[Callable[[Lab], str], str]
] = {  # the last is the newest, which pages show at first
    "frontier": (
        frontier,
        "A frontier replayed on B300s: adaptive verification, fixed:2, fixed:7 and none, at 1 to 128 requests.",
    ),
    "ab": (
        compare,
        "An A/B on a busy CPU with 4 requests: adaptive verification, vLLM's rule, fixed:2 and none. Fourteen rounds "
        "were too few to declare a difference.",
    ),
    "drifting": (
        drift,
        "Adaptive, then four drafts always verified, then adaptive again, on traffic that turns from code to essays.",
    ),
    "loses": (
        loses,
        "An A/B replayed on an RTX PRO 6000 with an EAGLE-3 head: drafts are made one after another and paid before "
        "any is trimmed, so the plain rule loses to fixed:3. The default chooses the depth, too.",
    ),
    "wins": (
        wins,
        "An A/B replayed on B300s with 64 requests: adaptive verification against the best fixed length.",
    ),
    "story": (tell, "Load and policy change five times, replayed on B300s."),
}


def shrink(folder: Path) -> None:
    """Round a run's calibration sums to single precision and pack them well: they are most of what ships."""
    file = folder / "calibration.parquet"
    table = pq.read_table(file)
    for name in SUMS:
        rounded = table[name].to_numpy().astype(np.float32).astype(np.float64)
        table = table.set_column(
            table.schema.get_field_index(name), table.schema.field(name), pa.array(rounded)
        )
    split = dict.fromkeys(SUMS, "BYTE_STREAM_SPLIT")
    whole = [name for name in table.schema.names if name not in SUMS]
    pq.write_table(
        table, file, compression="zstd", compression_level=19, use_dictionary=whole, column_encoding=split
    )
    manifest = folder / "manifest.json"
    said = json.loads(manifest.read_text(encoding="utf-8"))
    said["tables"]["calibration"]["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    manifest.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")


def make(names: list[str], folder: Path = FOLDER) -> Path:
    """Record these runs and write them to `folder`, in place of what is there. Raises WorkerError where one fails."""
    with tempfile.TemporaryDirectory() as parent:
        made = Path(parent) / "made"
        with Lab(Path(parent) / "lab.duckdb") as lab:
            for name in names:
                record, note = RECORDINGS[name]
                run = record(lab)
                if lab.supervisor.status().error:
                    raise WorkerError(lab.supervisor.status().error)
                with lab.database.reading() as con:
                    config = queries.describe(con, run)["config"] | {"database": "lab.duckdb"}
                    con.execute("UPDATE runs SET config = ? WHERE run = ?::UUID", [json.dumps(config), run])
                    retention.add_note(con, run, f"Ships with avlab. {note}")
                    export_run(con, run, made / name)
                shrink(made / name)
        for name in names:
            shutil.rmtree(folder / name, ignore_errors=True)
            shutil.copytree(made / name, folder / name)
    return folder


if __name__ == "__main__":
    asked = sys.argv[1:] or list(RECORDINGS)
    if unknown := [name for name in asked if name not in RECORDINGS]:
        sys.exit(f"There is no sample run {unknown[0]!r}; known are {', '.join(RECORDINGS)}.")
    print(f"The sample runs are in {make(asked)}.", file=sys.stderr)
