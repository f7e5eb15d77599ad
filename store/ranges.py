"""Which values a column may hold: one place, asked of every row that comes in from outside.

A type alone admits a wall clock of 1e300, a K of -5 or bin 100,000, which no page can show. `violation` looks at a run
that stands in the tables and names the first value that cannot be.
"""

import json
from dataclasses import dataclass
from typing import Any

import duckdb
import msgspec

from avlab.store.tables import TABLES
from avlab.wire.frames import Tokens

MOST_K = 127  # draft positions; what a TINYINT counts
MOST_ARMS = 1_000  # cells of a frontier
MOST_JSON = 1_000_000  # characters of a run's configuration, or of its machine
BILLION = 1_000_000_000
YEAR_2200 = 7_258_118_400  # seconds since the epoch


@dataclass(frozen=True, slots=True)
class Numbers:
    """Every number from least to most; so nothing infinite, and no nan."""

    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Words:
    """Text of at most so many characters; among: of these alone, where any are given."""

    most: int
    among: tuple[str, ...] = ()


COUNT = Numbers(0, 2**53)
FINITE = Numbers(-1e15, 1e15)
MILLISECONDS = Numbers(-1e3, 1e12)  # a clock that was set back may make a short one negative
SECONDS = Numbers(-1e6, 1e10)
TOKEN_REQUEST = Numbers(-(2**53), 2**53)  # the playground's requests count down from -1
SHORT, LONG, JSON_TEXT = Words(2_000), Words(20_000_000), Words(MOST_JSON)

BY_TYPE: dict[str, Numbers | Words] = {
    "TINYINT": Numbers(0, MOST_K),
    "INTEGER": Numbers(0, 2**31 - 1),
    "BIGINT": COUNT,
    "FLOAT": FINITE,
    "DOUBLE": FINITE,
    "VARCHAR": SHORT,
}
# by column, whatever the table; "table.column" goes before it
BY_COLUMN: dict[str, Numbers | Words] = {
    "wall": Numbers(0, YEAR_2200),
    "time": SECONDS,
    "K": Numbers(0, MOST_K),
    "position": Numbers(0, MOST_K),
    "bin": Numbers(0, 127),
    "drafted": Numbers(0, MOST_K),
    "block": Numbers(-1, BILLION),
    "round": Numbers(-1, BILLION),
    "step": Numbers(-1, 2**53),
    "request": TOKEN_REQUEST,
    "seed": Numbers(-(2**63), 2**63),
    "size": Numbers(0, 100 * 1_000_000),
    "depth": Numbers(0, MOST_K),
    "temperature": Numbers(0, 1e6),
    "top_p": Numbers(0, 1),
    "slope": Numbers(-1e6, 1e6),
    "intercept": Numbers(-1e6, 1e6),
    "arrival": SECONDS,
    "first_token": SECONDS,
    "last_token": SECONDS,
    "requests.admitted": SECONDS,
    "estimate": Numbers(-1e6, 1e6),
    "survival": Numbers(-1e6, 1e6),
    "cache_usage": Numbers(0, 100),
    "config": JSON_TEXT,
    "machine": JSON_TEXT,
    "arms": JSON_TEXT,
    "text": Words(1_000_000),
    "prompt": LONG,
    "output": LONG,
    "detail": LONG,
    "level": Words(20, ("info", "warning", "error")),
    "design": Words(20, ("switchback", "isolated")),
    "unit": Words(20, ("steps", "seconds")),
}
# what must not be missing; elsewhere a null is a value that was not told
REQUIRED: dict[str, tuple[str, ...]] = {
    "runs": ("kind", "wall", "config", "target", "K", "machine"),
    "blocks": ("block", "arm", "kind", "step", "time"),
    "steps": ("step", "time", "block", "running", "emitting", "tokens", "accepted"),
    "engine_samples": ("step", "time", "block", "model", "engine", "seconds", "tokens"),
    "coefficients": ("arm", "block", "refit", "step", "time", "position"),
    "calibration": ("source", "block", "window", "position", "bin", "count", "positives"),
    "drafts": ("block", "step", "request", "position"),
    "requests": ("request", "finish", "block"),
    "cost_samples": ("profile", "phase", "size", "ms"),
    "cost_tables": ("profile", "phase", "size", "ms"),
    "experiments": (
        "arms", "baseline", "rounds", "concurrency", "design", "length", "unit", "washout", "learn", "seed", "time",
        "step",
    ),
    "rounds": ("round", "kept", "time"),
    "block_requests": ("block", "request", "tokens", "seconds"),
    "tokens": ("request", "step", "detail"),
    "heartbeats": ("time", "state"),
    "events": ("origin", "level", "kind", "text"),
    "commits": ("sequence",),
}  # fmt: skip


def of_column(table: str, column: str) -> Numbers | Words | None:
    """What a column may hold; None for one whose type says it all (a truth value, the run's id)."""
    kind = TABLES[table][column].removesuffix("[]")
    return BY_COLUMN.get(f"{table}.{column}") or BY_COLUMN.get(column) or BY_TYPE.get(kind)


def violation(con: duckdb.DuckDBPyConnection, run: str) -> str:
    """The first value of a run that cannot be, as a clause ("calibration.bin is 100000, not 0 to 127"); "" without."""
    of_tables = (_values(con, run, table) for table in TABLES)
    return (
        next(filter(None, of_tables), "")
        or _lists(con, run)
        or _described(con, run)
        or _arms(con, run)
        or _details(con, run)
    )


def wrong_plan(con: duckdb.DuckDBPyConnection, run: str) -> str:
    """Why the plan of a run's experiment cannot be, as `violation` says it; "" for one that can, or none."""
    return _values(con, run, "experiments") or _arms(con, run)


def _values(con: duckdb.DuckDBPyConnection, run: str, table: str) -> str:
    for column, kind in TABLES[table].items():
        allowed = of_column(table, column)
        if allowed is not None and (found := _outside(con, run, table, column, kind, allowed)):
            return found
    return ""


def _outside(
    con: duckdb.DuckDBPyConnection, run: str, table: str, column: str, kind: str, allowed: Numbers | Words
) -> str:
    name = f'"{column}"'
    if kind.endswith("[]"):  # an entry of a list may be null where a watched server does not tell
        source = f"(SELECT unnest({name}) AS {name} FROM {table} WHERE run = $run::UUID)"
    else:
        source = f"(SELECT {name} FROM {table} WHERE run = $run::UUID)"
    if isinstance(allowed, Numbers):
        fits = f"{name} BETWEEN {allowed.least!r} AND {allowed.most!r}"
        due = f"{allowed.least:,.10g} to {allowed.most:,.10g}"
    else:
        fits = f"length({name}) <= {allowed.most}"
        due = f"at most {allowed.most:,} characters"
        if allowed.among:
            fits = f"{name} IN ({', '.join(repr(word) for word in allowed.among)})"
            due = " or ".join(allowed.among)
    if column not in REQUIRED[table] or kind.endswith("[]"):
        fits = f"({name} IS NULL OR {fits})"
    sql = f"SELECT {name} FROM {source} WHERE ({fits}) IS NOT TRUE LIMIT 1"
    found = con.execute(sql, {"run": run}).fetchall()
    return f"{table}.{column} is {_short(found[0][0])}, not {due}" if found else ""


def _lists(con: duckdb.DuckDBPyConnection, run: str) -> str:
    """The lists of a step have one entry a position each."""
    for table, column in (
        (table, column)
        for table, columns in TABLES.items()
        for column, kind in columns.items()
        if kind.endswith("[]")
    ):
        needed = "" if column in REQUIRED[table] else f"{column} IS NULL OR "
        sql = f"SELECT len({column}) FROM {table} WHERE run = $run::UUID "
        sql += f"AND ({needed}len({column}) <= {MOST_K}) IS NOT TRUE LIMIT 1"
        if found := con.execute(sql, {"run": run}).fetchall():
            return f"{table}.{column} has {found[0][0]} entries, not at most {MOST_K}"
    for table in ("calibration", "coefficients", "drafts"):
        sql = (
            f"SELECT position, K FROM {table}, runs WHERE {table}.run = $run::UUID AND runs.run = $run::UUID "
        )
        if found := con.execute(sql + "AND position >= K LIMIT 1", {"run": run}).fetchall():
            return f"{table}.position is {found[0][0]} where the run's K is {found[0][1]}"
    sql = "SELECT step FROM steps WHERE run = $run::UUID AND (" + " OR ".join(
        f"len({name}) <> len(accepted)" for name in ("scheduled", "admitted", "labelled")
    )
    if found := con.execute(sql + ") LIMIT 1", {"run": run}).fetchall():
        return f"the lists of step {found[0][0]} have different lengths"
    return ""


def _described(con: duckdb.DuckDBPyConnection, run: str) -> str:
    """What stands in JSON: the run's configuration and machine."""
    descriptions = con.execute("SELECT config, machine FROM runs WHERE run = ?::UUID", [run]).fetchall()
    for name, text in (pair for row in descriptions for pair in zip(("config", "machine"), row, strict=True)):
        plain = _json(text)
        if not isinstance(plain, dict):
            return f"runs.{name} is not a JSON object"
        if wrong := _infinite(plain):
            return f"runs.{name} holds {wrong} for a number"
    return ""


def _arms(con: duckdb.DuckDBPyConnection, run: str) -> str:
    """The labels of an experiment's arms, its baseline among them."""
    plans = con.execute("SELECT arms, baseline FROM experiments WHERE run = ?::UUID", [run]).fetchall()
    for arms, baseline in plans:
        labels = _json(arms)
        if not (isinstance(labels, list) and labels and all(isinstance(label, str) for label in labels)):
            return "experiments.arms is not a list of labels"
        if len(labels) > MOST_ARMS or baseline not in labels or len(set(labels)) < len(labels):
            return "experiments.arms does not list its baseline, and every arm once"
        if any("@" in label and not _is_load(label.partition("@")[2]) for label in labels):
            return "experiments.arms names a load that is no whole number"
    return ""


def _details(con: duckdb.DuckDBPyConnection, run: str) -> str:
    """The playground's steps, as their frame is written."""
    answer = con.execute("SELECT detail FROM tokens WHERE run = ?::UUID", [run])
    while chunk := answer.fetchmany(100):
        for (detail,) in chunk:
            try:
                msgspec.json.decode(detail, type=Tokens)
            except (msgspec.DecodeError, RecursionError) as error:
                return f"tokens.detail is not a step of the playground ({error})"
    return ""


def _is_load(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 7 and int(text) > 0


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _infinite(value: Any) -> str:
    """A number in a JSON value that is none, or far beyond any of ours; "" without."""
    if isinstance(value, dict | list):
        inside = value.values() if isinstance(value, dict) else value
        return next(filter(None, map(_infinite, inside)), "")
    if isinstance(value, int | float) and not -(2**64) < value < 2**64:
        return _short(value)
    return ""


def _short(value: Any) -> str:
    shown = ascii(value)
    return shown if len(shown) <= 40 else f"{shown[:37]}..."
