"""Values, not only shapes: an import with a value that no run has is refused, and a stored one breaks no list."""

import hashlib
import json
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import store_frames as frames

from avlab.experiments.summary import summarise
from avlab.report import report
from avlab.sample import FOLDER
from avlab.store import queries
from avlab.store.database import Database
from avlab.store.errors import TransferError
from avlab.store.export import export_run, import_run
from avlab.store.ids import new_run_id
from avlab.store.ranges import BY_COLUMN, REQUIRED, of_column
from avlab.store.recorder import Recorder
from avlab.store.retention import delete_run
from avlab.store.tables import TABLES

BAD = [
    ("runs", "wall", 1e300),
    ("runs", "wall", math.inf),
    ("runs", "wall", math.nan),
    ("runs", "wall", -1e18),
    ("runs", "wall", None),
    ("runs", "K", -5),
    ("runs", "K", 2**31 - 1),
    ("runs", "config", "[]"),
    ("runs", "config", '{"temperature": Infinity}'),
    ("runs", "config", '{"interval": 1e999}'),
    ("runs", "config", "[" * 200_000),
    ("runs", "config", None),
    ("runs", "machine", "{"),
    ("runs", "target", "x" * 100_000),
    ("blocks", "time", math.inf),
    ("blocks", "arm", None),
    ("blocks", "block", -(2**31)),
    ("steps", "time", math.nan),
    ("steps", "tokens", -1),
    ("steps", "step", 2**63 - 1),
    ("steps", "accepted", [-1, 0, 0]),
    ("steps", "accepted", [1] * 1000),
    ("steps", "admitted", [1]),
    ("steps", "verify_ms", math.inf),
    ("calibration", "bin", 100_000),
    ("calibration", "bin", -1),
    ("calibration", "position", frames.K),
    ("calibration", "sum_p", math.inf),
    ("coefficients", "slope", 1e300),
    ("requests", "last_token", math.inf),
    ("requests", "temperature", -1.0),
    ("cost_tables", "size", -1),
    ("experiments", "arms", "[]"),
    ("experiments", "arms", '["adaptive@x", "fixed:2"]'),
    ("experiments", "design", "other"),
    ("experiments", "baseline", "none"),
    ("tokens", "detail", "{}"),
    ("heartbeats", "rss_mb", math.inf),
    ("events", "level", "[red]"),
    ("engine_samples", "seconds", math.nan),
    ("drafts", "position", 100),
]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A folder with an exported run that fills every table."""
    parent = tmp_path_factory.mktemp("exported")
    with Recorder(parent / "lab.duckdb") as recorder:
        run = new_run_id()
        kept = frames.hello(config={"policy": "adaptive", "workload": "chat", "keep_text": True})
        for envelope in frames.envelopes([kept, *frames.whole_run()[1:]], run):
            recorder.record(envelope)
        recorder.flush()
        export_run(recorder.database.cursor(), run, parent / "run")
    return parent / "run"


def changed(folder, target, table, column, value):
    """A copy of an export whose first row of a table has another value, with a manifest that fits it."""
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    path = target / f"{table}.parquet"
    rows = pq.read_table(path)
    values = rows[column].to_pylist()
    values[0] = value
    at = rows.column_names.index(column)
    pq.write_table(rows.set_column(at, column, pa.array(values, rows.schema.field(column).type)), path)
    manifest = json.loads((target / "manifest.json").read_text())
    manifest["tables"][table]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (target / "manifest.json").write_text(json.dumps(manifest))
    return target


@pytest.mark.parametrize(("table", "column", "value"), BAD, ids=lambda each: ascii(each)[:30])
def test_an_import_with_a_value_that_no_run_has_is_refused(exported, tmp_path, table, column, value):
    folder = changed(exported, tmp_path / "run", table, column, value)
    with Database(tmp_path / "lab.duckdb") as database:
        with pytest.raises(TransferError) as refused:
            import_run(database, folder)
        assert "\n" not in str(refused.value) and len(str(refused.value)) < 600
        con = database.cursor()
        assert queries.runs(con) == []
        assert all(con.execute(f"SELECT count(*) FROM {name}").fetchall() == [(0,)] for name in TABLES)


def test_what_the_recorder_writes_and_what_ships_is_within_the_ranges(exported, tmp_path):
    with Database(tmp_path / "lab.duckdb") as database:
        for folder in (exported, *(path for path in FOLDER.iterdir() if (path / "manifest.json").is_file())):
            import_run(database, folder)


def test_every_column_has_a_range_and_every_range_a_column():
    for table, columns in TABLES.items():
        assert set(REQUIRED[table]) <= set(columns)
        for column, kind in columns.items():
            assert of_column(table, column) is not None or kind in ("UUID", "BOOLEAN"), (table, column)
    known = {name for columns in TABLES.values() for name in columns}
    assert all(name.rpartition(".")[2] in known for name in BY_COLUMN)


STORED = [(table, column, value) for table, column, value in BAD if column not in ("detail",)]


@pytest.mark.parametrize(("table", "column", "value"), STORED, ids=lambda each: ascii(each)[:30])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_no_stored_value_breaks_the_list_a_summary_or_deletion(tmp_path, table, column, value):
    """A file given with --database was written by whoever wrote it."""
    with Recorder(tmp_path / "lab.duckdb") as recorder:
        run = new_run_id()
        for envelope in frames.envelopes(frames.whole_run(), run):
            recorder.record(envelope)
        recorder.flush()
        con = recorder.database.cursor()
        con.execute(f'UPDATE {table} SET "{column}" = ? WHERE rowid = 0', [value])
        listed = queries.runs(con)
        assert [each["run_id"] for each in listed] == [run]
        json.dumps([listed, queries.run_list(con)], allow_nan=False)
        from avlab.commands.terminal import show_runs, show_summary
        from avlab.formats import run_label

        show_runs(listed)
        run_label(queries.run_list(con)[0])
        for make in (lambda: show_summary(summarise(con, run)), lambda: report(con, run)):
            try:
                make()
            except Exception as error:
                assert type(error).__module__.startswith("avlab"), error
        delete_run(con, run)
        assert queries.runs(con) == []
