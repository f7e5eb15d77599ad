"""One run as a folder that other tools can read, and back: a file a table (Parquet or CSV) and manifest.json.

The folder comes from strangers too, so nothing in it is trusted: file names are ours, never the manifest's;
every file must have the announced checksum, columns, types and rows; nothing is unpickled.
"""

import hashlib
import json
import os
import shutil
import uuid
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.csv

from avlab.errors import cause, not_written
from avlab.store.database import Database, append_event
from avlab.store.errors import TransferError
from avlab.store.ranges import violation
from avlab.store.runs import describe
from avlab.store.schema import VERSION, migrations, tables_of
from avlab.store.sizes import Budget, check_csv, read_parquet
from avlab.store.tables import TABLES, create_statements
from avlab.wire.draft_rows import arrow_schema

FORMAT = "avlab run"
FORMS = ("parquet", "csv")
_MANIFEST_BYTES = 1 << 20  # ours are a few kilobytes


def export_run(
    con: duckdb.DuckDBPyConnection, run: str, folder: str | os.PathLike, form: str = "parquet"
) -> dict:
    """Writes one run, as it is at this moment, to a new folder; returns the manifest that it also wrote
    there.

    form: "parquet" or "csv". The manifest holds format, schema_version, form, run_id, state, emulated (what of the
    run is, in words, or ""), and of each table the rows and the file's sha256. Raises UnknownRun, and TransferError
    where the folder cannot be written or is there already.
    """
    if form not in FORMS:
        raise TransferError(f"A run cannot be exported as {form!r}: choose parquet or csv.")
    folder = Path(folder).expanduser().absolute()
    if folder.exists():
        raise TransferError(f"{folder} is there already: give a folder that does not exist yet.")
    part = folder.with_name(f"{folder.name}.part")
    con.execute("BEGIN TRANSACTION READ ONLY")  # one moment for all tables, though the run may go on
    try:
        described = describe(con, run)
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        tables = {table: _write(con, run, table, part / f"{table}.{form}", form) for table in TABLES}
        manifest = {
            "format": FORMAT,
            "schema_version": VERSION,
            "form": form,
            "run_id": described["run_id"],
            "state": described["state"],
            "emulated": described["emulated"],
            "tables": tables,
        }
        (part / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
        part.rename(folder)
    except (duckdb.Error, OSError) as error:
        raise TransferError(f"Run {run} could not be exported: {not_written(folder, error)}") from None
    finally:
        con.execute("ROLLBACK")
        shutil.rmtree(part, ignore_errors=True)
    return manifest


def _write(con: duckdb.DuckDBPyConnection, run: str, table: str, path: Path, form: str) -> dict:
    options = "FORMAT parquet, COMPRESSION zstd" if form == "parquet" else "FORMAT csv, HEADER"
    target = str(path).replace("'", "''")
    rows = con.execute(
        f"COPY (SELECT * EXCLUDE (run) FROM {table} WHERE run = '{uuid.UUID(run)}' ORDER BY rowid) "
        f"TO '{target}' ({options})"
    ).fetchall()[0][0]
    return {"rows": rows, "sha256": _sha256(path)}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def import_run(database: Database, folder: str | os.PathLike) -> str:
    """Adds an exported run, of this version or an older one, to a database, whole or not at all; returns its id.

    Raises TransferError, with what is wrong, for a folder that is not an export, is damaged, is of a newer
    version, or holds a run that is here already.
    """
    folder = Path(folder).expanduser().absolute()
    manifest = _manifest(folder)
    run, form, version = manifest["run_id"], manifest["form"], manifest["schema_version"]
    budget = Budget()
    tables = {
        table: _read(folder, _schema_of(columns), table, form, manifest["tables"][table], budget)
        for table, columns in tables_of(version).items()
    }
    _check_description(folder, tables["runs"])
    if version < VERSION:
        tables = _brought_here(tables, run, version)
    con = database.cursor()
    try:
        con.execute("BEGIN")
        if con.execute("SELECT count(*) FROM runs WHERE run = ?::UUID", [run]).fetchall()[0][0]:
            raise TransferError(
                f"Run {run} is in this database already (a deleted run stays until the file is compacted)."
            )
        _insert(con, tables, run)
        if wrong := violation(con, run):
            raise TransferError(f"{folder} holds a value that no run has: {wrong}. Nothing was added.")
        append_event(con, run, "imported", f"Imported from the folder {folder.name}.")
        if manifest["state"] == "running":
            append_event(con, run, "cut short", "Exported while it was running.", level="warning")
        con.execute("COMMIT")
    except duckdb.Error as error:
        raise TransferError(f"{folder} could not be imported ({cause(error)}): nothing was added.") from None
    finally:
        con.close()  # rolls back what is not committed
    return run


def _insert(con: duckdb.DuckDBPyConnection, tables: dict[str, pa.Table], run: str) -> None:
    for table, rows in tables.items():
        con.register("imported", rows)
        con.execute(f"INSERT INTO {table} BY NAME SELECT ?::UUID AS run, * FROM imported", [run])
        con.unregister("imported")


def _brought_here(tables: dict[str, pa.Table], run: str, version: int) -> dict[str, pa.Table]:
    """The tables of an older version as this one has them, by the statements that bring a stored file here."""
    with duckdb.connect(config={"threads": 1}) as con:
        for statement in create_statements(tables=tables_of(version)):
            con.execute(statement)
        _insert(con, tables, run)
        for statement in migrations(version):
            con.execute(statement)
        select = "SELECT * EXCLUDE (run) FROM {} ORDER BY rowid"
        return {table: con.sql(select.format(table)).to_arrow_table() for table in TABLES}


def _manifest(folder: Path) -> dict:
    path = folder / "manifest.json"
    if not path.is_file() or path.stat().st_size > _MANIFEST_BYTES:
        raise TransferError(f"{folder} is not an exported run: there is no manifest.json of ours in it.")
    try:
        manifest = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise TransferError(f"{path} cannot be read ({cause(error)}): export the run again.") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise TransferError(f"{folder} is not an exported run: its manifest names another format.")
    version = manifest.get("schema_version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise TransferError(
            f"{folder} has schema version {version!r}, this avlab imports versions 1 to {VERSION}: update avlab."
        )
    try:
        manifest["run_id"] = str(uuid.UUID(manifest["run_id"]))
        fits = manifest["form"] in FORMS and isinstance(manifest["state"], str)
        fits = fits and all(
            isinstance(manifest["tables"][table]["rows"], int) for table in tables_of(version)
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        fits = False
    if not fits:
        raise TransferError(f"{path} is incomplete or damaged: export the run again.")
    return manifest


def _schema_of(columns: dict[str, str]) -> pa.Schema:
    return arrow_schema({name: kind for name, kind in columns.items() if name != "run"})


def _read(folder: Path, schema: pa.Schema, table: str, form: str, expected: dict, budget: Budget) -> pa.Table:
    """A table's file, checked, in the schema's columns and types; a CSV's lists stay text."""
    path = folder / f"{table}.{form}"
    if not path.is_file():
        raise TransferError(f"{folder} lacks {path.name}: export the run again.")
    if _sha256(path) != expected.get("sha256"):
        raise TransferError(
            f"{path} has changed since it was exported (its checksum differs): export it again."
        )
    if form == "csv":
        fields = [pa.field(f.name, pa.string()) if pa.types.is_list(f.type) else f for f in schema]
        schema = pa.schema(fields)
    try:
        rows = _read_csv(path, schema, budget) if form == "csv" else read_parquet(path, schema, budget)
        if rows.column_names != schema.names:
            raise TransferError(f"{path} has other columns than table {table}: it was not written by avlab.")
        rows = rows.cast(schema)
    except (pa.ArrowException, OSError) as error:
        raise TransferError(f"{path} does not hold the rows of table {table} ({cause(error)}).") from None
    if rows.num_rows != expected["rows"]:
        raise TransferError(f"{path} has {rows.num_rows} rows, its manifest says {expected['rows']}.")
    return rows


def _read_csv(path: Path, schema: pa.Schema, budget: Budget) -> pa.Table:
    check_csv(path, budget)
    return pa.csv.read_csv(
        path,
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(
            column_types=schema, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )


def _check_description(folder: Path, runs: pa.Table) -> None:
    rows = runs.to_pylist()
    try:
        fits = len(rows) == 1 and all(isinstance(json.loads(rows[0][c]), dict) for c in ("config", "machine"))
    except (TypeError, ValueError, RecursionError):
        fits = False
    if not fits:
        raise TransferError(f"{folder} does not describe exactly one run: export it again.")
