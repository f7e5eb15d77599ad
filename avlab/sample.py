"""The recorded run that ships with the project, so that every page has something to show before anything was started.

`python -m avlab.sample` records it anew with the reference engine (two minutes) and writes it to `avlab/sample_run`.
"""

import contextlib
import json
import shutil
import sys
import tempfile
from pathlib import Path

from avlab.config import RunConfig
from avlab.lab import Lab
from avlab.workers import messages as m
from store import queries, retention
from store.database import Database
from store.errors import StoreError
from store.export import export_run, import_run

FOLDER = Path(__file__).with_name("sample_run")
SECONDS = 45.0  # under each of the policies
SETTINGS = {
    "workload": "drift:code,essays@15s",
    "arrival": "closed:32",
    "duration": 3 * SECONDS,
    "context": 1024,
}
NOTE = (
    "Ships with avlab: adaptive, then four drafts always verified, then adaptive again, on drifting traffic."
)


def add(database: Database, folder: Path = FOLDER) -> None:
    """Put the shipped run into a database that has never held one; a damaged copy is left out."""
    with database.cursor() as con:
        if queries.runs(con) or queries.runs(con, deleted=True):
            return
    if folder.is_dir():
        with contextlib.suppress(StoreError):
            import_run(database, folder)


def make(folder: Path = FOLDER) -> Path:
    """Record the run and write it to `folder`, in place of what is there."""
    with tempfile.TemporaryDirectory() as parent:
        with Lab(Path(parent) / "lab.duckdb") as lab:
            run = lab.run(RunConfig.make(SETTINGS))
            for arm in ("fixed:4", "adaptive"):
                while lab.supervisor.status().state != "serving" and not lab.supervisor.wait(0.2):
                    pass
                lab.supervisor.wait(SECONDS)
                lab.supervisor.send(m.SetPolicy(arm))
            lab.supervisor.wait()
            with lab.database.cursor() as con:
                config = queries.describe(con, run)["config"] | {"database": "lab.duckdb"}
                con.execute("UPDATE runs SET config = ? WHERE run = ?::UUID", [json.dumps(config), run])
                retention.add_note(con, run, NOTE)
                export_run(con, run, Path(parent) / "out")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(Path(parent) / "out", folder)
    return folder


if __name__ == "__main__":
    print(f"The sample run is in {make()}.", file=sys.stderr)
