"""A run as a folder of files, and back; folders that are not ours are refused with a sentence."""

import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import store_frames as frames

from avlab.store import queries
from avlab.store.database import Database, connect_reader
from avlab.store.errors import TransferError, UnknownRun
from avlab.store.export import export_run, import_run
from avlab.store.ids import new_run_id
from avlab.store.recorder import Recorder
from avlab.store.retention import add_note
from avlab.store.schema import ADDED, tables_of
from avlab.store.tables import TABLES


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """(reader's connection, run id) of a database with that run and another."""
    path = tmp_path_factory.mktemp("source") / "lab.duckdb"
    run = new_run_id()
    text = frames.request(9, prompt='Say "hi",\nthen é', output="", finish="length")
    sent = [
        *frames.whole_run()[:-1],
        text,
        frames.event(""),
        frames.drafts(6, features=frames.with_features(np.full(6, 1 / 3))),
    ]
    with Recorder(path) as recorder:
        for other in (run, new_run_id()):
            for envelope in frames.envelopes([*sent, frames.bye()], other):
                recorder.record(envelope)
        add_note(recorder.database.cursor(), run, "a note")
    con = connect_reader(path)
    yield con, run
    con.close()


@pytest.fixture
def target(tmp_path):
    with Database(tmp_path / "target.duckdb") as database:
        yield database


def rows_of(con, run):
    select = "SELECT * FROM {} WHERE run = ?::UUID ORDER BY rowid"
    return {table: con.execute(select.format(table), [run]).fetchall() for table in TABLES}


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_run_comes_back_exactly(source, target, tmp_path, form):
    con, run = source
    manifest = export_run(con, run, tmp_path / "it's out", form)
    assert manifest["run_id"] == run and manifest["tables"]["steps"]["rows"] == 40
    assert json.loads((tmp_path / "it's out" / "manifest.json").read_text()) == manifest
    assert import_run(target, tmp_path / "it's out") == run
    before, after = rows_of(con, run), rows_of(target.cursor(), run)
    extra = after["events"].pop()
    assert extra[3] == "imported"
    assert after == before
    assert queries.runs(target.cursor())[0]["state"] == "finished"
    assert queries.runs(target.cursor())[0]["notes"] == ["a note"]


def test_other_tools_read_the_files(source, tmp_path):
    con, run = source
    export_run(con, run, tmp_path / "parquet")
    export_run(con, run, tmp_path / "csv", "csv")
    steps = pa.parquet.read_table(tmp_path / "parquet" / "steps.parquet")
    assert steps["admitted"].to_pylist()[0] == [4, 2, 1] and "run" not in steps.column_names
    assert pa.csv.read_csv(tmp_path / "csv" / "coefficients.csv")["intercept"].to_pylist()[:3] == [
        -0.2,
        -0.3,
        -0.4,
    ]


def test_an_export_never_overwrites_and_leaves_nothing_half_done(source, tmp_path):
    con, run = source
    (tmp_path / "there").mkdir()
    with pytest.raises(TransferError, match="is there already"):
        export_run(con, run, tmp_path / "there")
    with pytest.raises(UnknownRun):
        export_run(con, new_run_id(), tmp_path / "new")
    with pytest.raises(TransferError, match="cannot be exported as 'pickle'"):
        export_run(con, run, tmp_path / "new", "pickle")
    (tmp_path / "file").write_text("")
    with pytest.raises(TransferError, match="could not be exported"):
        export_run(con, run, tmp_path / "file" / "new")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "there"]
    export_run(con, run, tmp_path / "new")  # the connection is usable again


def test_a_running_run_is_exported_as_it_is_and_imported_as_cut_short(target, tmp_path):
    run = new_run_id()
    with Recorder(tmp_path / "live.duckdb") as recorder:
        for envelope in frames.envelopes(frames.whole_run()[:7], run):
            recorder.record(envelope)
        recorder.flush()
        assert export_run(recorder.database.cursor(), run, tmp_path / "out")["state"] == "running"
    import_run(target, tmp_path / "out")
    (found,) = queries.runs(target.cursor())
    assert (found["state"], found["reason"]) == ("cut short", "Exported while it was running.")


def test_a_run_is_imported_once(source, target, tmp_path):
    con, run = source
    export_run(con, run, tmp_path / "out")
    import_run(target, tmp_path / "out")
    with pytest.raises(TransferError, match=f"Run {run} is in this database already"):
        import_run(target, tmp_path / "out")
    assert target.cursor().execute("SELECT count(*) FROM steps").fetchall() == [(40,)]


# --- folders that are not what they say


def rewrite(folder, table, rows):
    """Puts other rows in a table's file, with the checksum to match, as a forger would."""
    path = folder / f"{table}.parquet"
    pa.parquet.write_table(rows, path)
    change(folder, lambda m: m["tables"][table].update(sha256=hashlib.sha256(path.read_bytes()).hexdigest()))


def change(folder, edit):
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    edit(manifest)
    path.write_text(json.dumps(manifest))


def flip(folder):
    data = bytearray((folder / "steps.parquet").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "steps.parquet").write_bytes(data)


def read(folder, table):
    return pa.parquet.read_table(folder / f"{table}.parquet")


def without_columns_since(folder, version):
    """The tables' files as a version before 6 wrote them, but for tables that came later."""
    drafts = read(folder, "drafts")
    feature = pa.array([first for first, _ in drafts["features"].to_pylist()], pa.float32())
    columns = {"feature": feature, "head": pa.array([0.75] * len(feature), pa.float32())}
    columns |= {name: drafts[name] for name in drafts.column_names if name != "features"}
    rewrite(
        folder, "drafts", pa.table({name: columns[name] for name in tables_of(5)["drafts"] if name != "run"})
    )
    for since, added in ADDED.items():
        for table, columns in added.items() if since > version else ():
            rewrite(folder, table, read(folder, table).drop_columns(list(columns)))


def test_an_export_of_the_first_version_is_still_imported(source, target, tmp_path):
    """It lacks the columns that came later; they are null."""
    con, run = source
    folder = tmp_path / "out"
    export_run(con, run, folder)
    without_columns_since(folder, 1)
    with pytest.raises(TransferError, match="other columns"):
        import_run(target, folder)
    change(folder, lambda manifest: manifest.update(schema_version=1))
    import_run(target, folder)
    kept = target.cursor().execute("SELECT count(*), count(explored), count(tokens) FROM steps").fetchall()
    assert kept == [(40, 0, 40)]
    depths = target.cursor().execute("SELECT count(*), count(depth) FROM cost_tables").fetchall()
    assert depths == [(15, 0)]
    (names,) = target.cursor().execute("SELECT features FROM runs").fetchall()
    assert names == (["max_log_odds", "head_log_odds"],)
    slots = target.cursor().execute("SELECT features, step, position FROM drafts ORDER BY rowid").fetchall()
    assert len(slots) == 36 and slots[35][1:] == (1, 2)
    assert slots[35][0] == pytest.approx([1 / 3, np.log(3.0)], rel=1e-6), "the head's probability as log-odds"


FORGERIES = {
    "no manifest": (lambda f: (f / "manifest.json").unlink(), "not an exported run"),
    "huge manifest": (lambda f: (f / "manifest.json").write_text(" " * (2 << 20)), "not an exported run"),
    "broken manifest": (lambda f: (f / "manifest.json").write_text("{"), "cannot be read"),
    "manifest of bytes": (lambda f: (f / "manifest.json").write_bytes(b"\xff\xfe"), "cannot be read"),
    "manifest is a list": (lambda f: (f / "manifest.json").write_text("[]"), "another format"),
    "foreign format": (lambda f: change(f, lambda m: m.update(format="wandb")), "another format"),
    "newer": (lambda f: change(f, lambda m: m.update(schema_version=99)), "version 99, this avlab imports"),
    "no run": (lambda f: change(f, lambda m: m.pop("run_id")), "incomplete or damaged"),
    "odd run": (lambda f: change(f, lambda m: m.update(run_id="../../etc")), "incomplete or damaged"),
    "odd form": (lambda f: change(f, lambda m: m.update(form="pickle")), "incomplete or damaged"),
    "no table": (lambda f: change(f, lambda m: m["tables"].pop("steps")), "incomplete or damaged"),
    "tables are text": (lambda f: change(f, lambda m: m.update(tables="x")), "incomplete or damaged"),
    "missing file": (lambda f: (f / "steps.parquet").unlink(), "lacks steps.parquet"),
    "flipped bit": (flip, "checksum differs"),
    "fewer rows": (lambda f: rewrite(f, "steps", read(f, "steps").slice(1)), "39 rows, its manifest says 40"),
    "other columns": (lambda f: rewrite(f, "steps", read(f, "steps").drop_columns("time")), "other columns"),
    "other types": (
        lambda f: rewrite(f, "steps", read(f, "steps").set_column(0, "step", pa.array(["x"] * 40))),
        "does not hold the rows of table steps",
    ),
    "two descriptions": (
        lambda f: (
            rewrite(f, "runs", pa.concat_tables([read(f, "runs")] * 2)),
            change(f, lambda m: m["tables"]["runs"].update(rows=2)),
        ),
        "does not describe exactly one run",
    ),
    "odd config": (
        lambda f: rewrite(f, "runs", read(f, "runs").set_column(3, "config", pa.array(["[1]"]))),
        "does not describe exactly one run",
    ),
    "not parquet": (
        lambda f: (
            (f / "steps.parquet").write_bytes(b"x" * 50),
            change(f, lambda m: m["tables"]["steps"].update(sha256=hashlib.sha256(b"x" * 50).hexdigest())),
        ),
        "does not hold the rows of table steps",
    ),
}


@pytest.fixture(scope="module")
def exported(source, tmp_path_factory):
    con, run = source
    folder = tmp_path_factory.mktemp("exported") / "out"
    export_run(con, run, folder)
    return folder


@pytest.mark.parametrize("forge, sentence", FORGERIES.values(), ids=FORGERIES)
def test_a_foreign_or_damaged_folder_is_refused_and_adds_nothing(exported, target, tmp_path, forge, sentence):
    folder = tmp_path / "out"
    folder.mkdir()
    for file in exported.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    forge(folder)
    with pytest.raises(TransferError, match=sentence):
        import_run(target, folder)
    con = target.cursor()
    assert all(con.execute(f"SELECT count(*) FROM {table}").fetchall() == [(0,)] for table in TABLES)


def test_a_folder_that_is_not_there(target, tmp_path):
    with pytest.raises(TransferError, match="not an exported run"):
        import_run(target, tmp_path / "nowhere")


def test_an_export_from_before_a_table_existed_is_imported_without_it(tmp_path):
    folder, sent = tmp_path / "out", frames.whole_run()
    run = new_run_id()
    with Recorder(tmp_path / "a.duckdb") as recorder:
        for envelope in frames.envelopes(sent, run):
            recorder.record(envelope)
        export_run(recorder.database.cursor(), run, folder)

    def older(manifest):
        manifest["schema_version"] = 2
        for table in ("experiments", "rounds", "block_requests", "engine_samples"):
            del manifest["tables"][table]
            (folder / f"{table}.parquet").unlink()

    without_columns_since(folder, 2)
    change(folder, older)
    with Database(tmp_path / "b.duckdb") as database:
        assert import_run(database, folder) == run
        assert database.cursor().execute("SELECT count(*) FROM rounds").fetchall() == [(0,)]
