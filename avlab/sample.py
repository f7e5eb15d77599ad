"""The recorded runs that ship with the project, so that the pages have something to show before anything was started.

`python -m avlab.sample` records them anew with the reference engine (ten minutes) and writes them to
`avlab/sample_runs`, a folder a run.
"""

import contextlib
import functools
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from avlab.config import RunConfig
from avlab.experiments.frontier_plan import make_frontier
from avlab.experiments.plan import make_plan
from avlab.lab.lab import Lab
from avlab.lab.supervisor import WorkerError
from avlab.store import queries, retention
from avlab.store.database import Database
from avlab.store.errors import StoreError
from avlab.store.export import export_run, import_run
from avlab.wire import commands

FOLDER = Path(__file__).with_name("sample_runs")
SECONDS = 45.0  # of drifting traffic under each of the policies
CONTEXT = 1024  # tokens of a prompt and its answer; more would only take memory


def add(database: Database, folder: Path = FOLDER) -> None:
    """Put the shipped runs into a database that has never held one; a damaged one is left out."""
    with database.cursor() as con:
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
    run = lab.run(*make_plan(config, ["adaptive", "adaptive+depth", "fixed:3", "none"], rounds=12, learn=100))
    lab.supervisor.wait()
    return run


def frontier(lab: Lab) -> str:
    """Record a small frontier to its end; its id."""
    config = RunConfig.make(max_model_len=CONTEXT, drafts="none")
    arms = ["adaptive+depth", "fixed:2", "fixed:7", "none"]
    run = lab.run(*make_frontier(config, arms, [1, 4, 16, 32], repeats=3, block="60steps", learn=100))
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
    "frontier": (frontier, "A frontier of adaptive+depth, fixed:2, fixed:7 and none, at 1 to 32 requests."),
    "ab": (compare, "An A/B of adaptive, adaptive+depth, fixed:3 and none."),
    "drifting": (
        drift,
        "Adaptive, then four drafts always verified, then adaptive again, on traffic that turns from code to essays.",
    ),
}


def make(folder: Path = FOLDER) -> Path:
    """Record the runs and write them to `folder`, in place of what is there. Raises WorkerError where one fails."""
    with tempfile.TemporaryDirectory() as parent:
        made = Path(parent) / "made"
        with Lab(Path(parent) / "lab.duckdb") as lab:
            for name, (record, note) in RECORDINGS.items():
                run = record(lab)
                if lab.supervisor.status().error:
                    raise WorkerError(lab.supervisor.status().error)
                with lab.database.cursor() as con:
                    config = queries.describe(con, run)["config"] | {"database": "lab.duckdb"}
                    con.execute("UPDATE runs SET config = ? WHERE run = ?::UUID", [json.dumps(config), run])
                    retention.add_note(con, run, f"Ships with avlab. {note}")
                    export_run(con, run, made / name)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(made, folder)
    return folder


if __name__ == "__main__":
    print(f"The sample runs are in {make()}.", file=sys.stderr)
