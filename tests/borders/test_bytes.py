"""Bytes and depth are bounded: archives, Parquet files, JSON, questions in SQL."""

import hashlib
import io
import json
import resource
import stat
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import store_frames as frames

from avlab.cost_file import CostError, read_samples
from avlab.store import archive, sizes, sql_box
from avlab.store.database import Database
from avlab.store.errors import TransferError
from avlab.store.export import export_run, import_run
from avlab.store.ids import new_run_id
from avlab.store.recorder import Recorder
from avlab.wire import codec

NESTED = "[" * 200_000


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    parent = tmp_path_factory.mktemp("exported")
    with Recorder(parent / "lab.duckdb") as recorder:
        run = new_run_id()
        for envelope in frames.envelopes(frames.whole_run(), run):
            recorder.record(envelope)
        recorder.flush()
        export_run(recorder.database.cursor(), run, parent / "run")
        con = recorder.database.cursor()
        yield parent / "run", con, run
        con.close()


def zipped(files, **more):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in files:
            made.writestr(name, content, **more)
    packed.seek(0)
    return packed


def link(name):
    member = zipfile.ZipInfo(name)
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    return member


def locked(packed):
    """The same archive with every member marked as encrypted."""
    whole = bytearray(packed.getvalue())
    for sign, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = whole.find(sign)
        while place >= 0:
            whole[place + at] |= 1
            place = whole.find(sign, place + 4)
    return io.BytesIO(bytes(whole))


ARCHIVES = {
    "no zip": (lambda: io.BytesIO(b"PK nothing"), "not a zip"),
    "empty": (lambda: io.BytesIO(b""), "not a zip"),
    "a bomb": (lambda: zipped([("steps.parquet", bytes(8 << 20))]), "unpacks to more than"),
    "a way out": (lambda: zipped([("../../steps.parquet", b"x")]), "outside of its folder"),
    "absolute": (lambda: zipped([("/etc/steps.parquet", b"x")]), "outside of its folder"),
    "deep": (lambda: zipped([("a/b/c/steps.parquet", b"x")]), "outside of its folder"),
    "twice": (lambda: zipped([("steps.parquet", b"x"), ("a/steps.parquet", b"y")]), "twice"),
    "a link": (lambda: zipped([(link("steps.parquet"), b"/etc/passwd")]), "a link"),
    "a password": (lambda: locked(zipped([("steps.parquet", b"x" * 100)])), "password"),
    "many files": (lambda: zipped([(f"{n}.txt", b"") for n in range(2_000)]), "more than 1,000 files"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_is_unpacked_within_its_bounds_or_refused(name, tmp_path, monkeypatch):
    make, sentence = ARCHIVES[name]
    monkeypatch.setattr(archive, "MOST_UNPACKED", 1 << 20)
    (tmp_path / "in").mkdir()
    with pytest.raises(TransferError, match=sentence):
        archive.unpack(make(), tmp_path / "in")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_archive_is_a_sentence(exported, seed, tmp_path):
    import random

    folder, _, _ = exported
    whole = bytearray(
        zipped([(path.name, path.read_bytes()) for path in sorted(folder.iterdir())]).getvalue()
    )
    chance = random.Random(seed)
    for _ in range(chance.choice((1, 3, 30, 300))):
        whole[chance.randrange(len(whole))] = chance.randrange(256)
    if seed % 4 == 0:
        del whole[chance.randrange(len(whole)) :]
    with Database(tmp_path / "lab.duckdb") as database:
        try:
            archive.unpack(io.BytesIO(bytes(whole)), tmp_path)
            import_run(database, tmp_path)
        except TransferError as error:
            assert "\n" not in str(error)


def test_a_whole_archive_comes_in(exported, tmp_path):
    folder, _, run = exported
    for prefix in ("", "avlab-run/"):
        (tmp_path / f"in{len(prefix)}").mkdir()
        archive.unpack(
            zipped([(prefix + path.name, path.read_bytes()) for path in folder.iterdir()]),
            tmp_path / f"in{len(prefix)}",
        )
        with Database(tmp_path / f"{len(prefix)}.duckdb") as database:
            assert import_run(database, tmp_path / f"in{len(prefix)}") == run


def replaced(folder, target, table, rows, **options):
    """A copy of an export with another table in the place of one, and a manifest that fits it."""
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    path = target / f"{table}.parquet"
    pq.write_table(rows, path, **options)
    manifest = json.loads((target / "manifest.json").read_text())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest["tables"][table] = {"sha256": digest, "rows": rows.num_rows}
    (target / "manifest.json").write_text(json.dumps(manifest))
    return target


def bombs():
    """Tables that are small on disk and would be large in memory."""
    long = pa.DictionaryArray.from_arrays(pa.array([0] * 2_000, pa.int32()), pa.array(["x" * 1_000_000]))
    return {
        "one long text in every row": ("events", {"text": long}, 2_000),
        "many equal numbers": ("heartbeats", {}, 10_000_000),
    }


@pytest.mark.parametrize("name", ["one long text in every row", "many equal numbers"])
def test_a_parquet_bomb_is_refused_before_it_is_unfolded(exported, tmp_path, monkeypatch, name):
    folder, _, _ = exported
    table, columns, rows = bombs()[name]
    schema = pq.read_schema(folder / f"{table}.parquet")
    made = {
        field.name: columns.get(field.name, pa.nulls(rows, field.type) if name[0] == "o" else None)
        for field in schema
    }
    for field in schema:
        if made[field.name] is None:
            plain = "x" if pa.types.is_string(field.type) else 1
            made[field.name] = pa.repeat(pa.scalar(plain, field.type), rows)
    path = replaced(folder, tmp_path / "run", table, pa.table(made), compression="zstd")
    assert (path / f"{table}.parquet").stat().st_size < 3_000_000
    monkeypatch.setattr(sizes, "MOST_MEMORY", 256 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with (
        Database(tmp_path / "lab.duckdb") as database,
        pytest.raises(TransferError, match="too large to be imported"),
    ):
        import_run(database, path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000  # KB


def test_json_that_is_nested_without_end_is_a_sentence(tmp_path):
    (tmp_path / "costs.json").write_text(NESTED)
    with pytest.raises(CostError):
        read_samples(tmp_path / "costs.json")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text(NESTED)
    with Database(tmp_path / "lab.duckdb") as database, pytest.raises(TransferError):
        import_run(database, tmp_path / "run")
    for deep in (b"\x91" * 200_000, b"\x81\xa1a" * 200_000):
        for decode in (codec.decode_frame, codec.decode_command):
            with pytest.raises(codec.MessageError):
                decode(deep)


QUESTIONS = {
    "SELECT repeat('x', 1000000) FROM range(1000)": None,
    "SELECT repeat('x', 2000000000)": None,
    "SELECT list_transform(range(5000000), x -> repeat('y', 100)) FROM range(10)": None,
    "SELECT string_agg(repeat('x', 10000), '') FROM range(1000000)": None,
    "SELECT array_agg(range) FROM range(200000000)": None,
}


@pytest.mark.parametrize("sql", QUESTIONS)
def test_a_question_takes_and_gives_no_more_than_it_may(exported, sql):
    _, con, run = exported
    try:
        found = sql_box.ask(con, run, sql)
    except sql_box.QueryError as error:
        assert "\n" not in str(error) and len(str(error)) < 700
    else:
        assert len(json.dumps(found)) < 2 * sql_box.MOST_BYTES
    assert (
        resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 1_700_000
    )  # KB, of the largest child so far


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM glob('/etc/*')", "SELECT * FROM read_parquet('/tmp/*.parquet')", "FROM '/etc/passwd'",
        "SELECT * FROM read_json('http://127.0.0.1:1/x')", "COPY (SELECT 1) TO '/tmp/x'", "ATTACH ':memory:' AS a",
        "INSTALL httpfs", "LOAD httpfs", "PRAGMA database_list", "SET memory_limit = '100GB'",
        "EXPORT DATABASE '/tmp/x'", "CREATE TABLE t AS SELECT 1", "CALL pragma_version()",
        "SELECT * FROM sniff_csv('/etc/passwd')",
        "SELECT 1; DROP TABLE steps", "USE memory", "CHECKPOINT", "VACUUM", "SELECT getenv('HOME')",
    ],
)  # fmt: skip
def test_a_question_leaves_its_box_by_no_door(exported, sql):
    _, con, run = exported
    with pytest.raises(sql_box.QueryError) as refused:
        sql_box.ask(con, run, sql)
    assert "root:" not in str(refused.value)
