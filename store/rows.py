"""A frame as rows: which tables it fills, and with what. Nothing here touches the database."""

from collections.abc import Iterable

import msgspec
import pyarrow as pa

from avlab.store.tables import arrow_schema
from avlab.wire import draft_rows, frames, message

_SCHEMAS: dict[str, pa.Schema] = {}


def rows_of(frame: frames.Frame, sequence: int, wall: float, keep_text: bool) -> dict[str, pa.Table]:
    """The rows that a frame adds, by table, without their `run`. NaN becomes null.

    sequence: the frame's number, by which a cost profile is known. wall: seconds since the epoch, for events.
    keep_text: whether the playground's tokens may be stored.
    Raises ValueError (or a subclass) for a frame whose columns do not fit each other or the table.
    """
    match frame:
        case frames.Steps(steps):
            return {"steps": _table("steps", map(msgspec.structs.astuple, steps))}
        case frames.Drafts(slots, batch):
            return {"drafts": draft_rows.unpack(batch, slots)}
        case frames.Calibration():
            return {"calibration": _calibration(frame)}
        case frames.RequestDone():
            return {"requests": _table("requests", [_fields("requests", frame)])}
        case frames.EngineSample():
            return {"engine_samples": _table("engine_samples", [_fields("engine_samples", frame)])}
        case frames.Refit():
            return {"coefficients": _table("coefficients", _coefficients(frame))}
        case frames.Block():
            return {"blocks": _table("blocks", [_fields("blocks", frame)])}
        case frames.Heartbeat():
            return {"heartbeats": _table("heartbeats", [_fields("heartbeats", frame)])}
        case frames.Event(level, kind, text, time, step):
            return {"events": _table("events", [("worker", level, kind, text, time, step, wall)])}
        case frames.ExperimentBegun(plan, time, step):
            values = msgspec.structs.asdict(plan) | {"time": time, "step": step}
            values["arms"] = msgspec.json.encode(plan.arms).decode()
            names = _schema("experiments").names
            return {"experiments": _table("experiments", [[values[name] for name in names]])}
        case frames.RoundDone():
            return {"rounds": _table("rounds", [_fields("rounds", frame)])}
        case frames.BlockRequests(block, request, tokens, seconds):
            got = zip(request, tokens, seconds, strict=True)
            return {"block_requests": _table("block_requests", [(block, *row) for row in got])}
        case frames.CostProfile():
            return _costs(frame, sequence)
        case frames.Tokens():
            detail = msgspec.json.encode(frame).decode()
            rows = [(frame.request, frame.step, detail)] if keep_text else []
            return {"tokens": _table("tokens", rows)}
        case frames.Hello():
            values = msgspec.structs.asdict(frame)
            values |= {name: msgspec.json.encode(values[name]).decode() for name in ("config", "machine")}
            return {"runs": _table("runs", [[values[name] for name in _schema("runs").names]])}
        case frames.Bye(reason, complete, time):
            state = "finished" if complete else "stopped" if reason == "stopped" else "failed"
            level = "error" if state == "failed" else "info"
            return {"events": _table("events", [("lab", level, state, reason, time, None, wall)])}
    raise ValueError(f"no table takes a frame of type {type(frame).__name__}")


def event_row(kind: str, text: str, level: str, wall: float) -> pa.Table:
    """One event of the lab's own, as a row."""
    return _table("events", [("lab", level, kind, text, None, None, wall)])


def _schema(table: str) -> pa.Schema:
    if table not in _SCHEMAS:
        _SCHEMAS[table] = arrow_schema(table)
    return _SCHEMAS[table]


def _table(table: str, rows: Iterable) -> pa.Table:
    schema, rows = _schema(table), list(rows)
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [
        pa.array(list(c), field.type, from_pandas=True) for c, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _fields(table: str, frame: message.Message) -> list:
    return [getattr(frame, name) for name in _schema(table).names]


def _coefficients(frame: frames.Refit) -> list[tuple]:
    head = (frame.arm, frame.block, frame.refit, frame.step, frame.time)
    vectors = zip(frame.intercepts, frame.counts, frame.positives, strict=True)
    return [(*head, k, frame.slope, *values) for k, values in enumerate(vectors)]


def _calibration(frame: frames.Calibration) -> pa.Table:
    schema = _schema("calibration")
    values = [getattr(frame, name) for name in schema.names]
    rows = len(frame.bin)
    columns = [v if isinstance(v, list) else [v] * rows for v in values]
    arrays = [pa.array(c, field.type, from_pandas=True) for c, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _costs(frame: frames.CostProfile, sequence: int) -> dict[str, pa.Table]:
    head = (sequence, frame.source, frame.cost_hash)
    samples: list[tuple] = [
        (*head, "draft", requests, ms, depth) for requests, depth, ms in frame.draft_samples
    ]
    samples += [(*head, "verify", tokens, ms, None) for tokens, ms in frame.verify_samples]
    tables: list[tuple] = [
        (*head, "draft", requests, ms, depth)
        for requests, by_depth in enumerate(frame.draft_table)
        for depth, ms in enumerate(by_depth)
    ]
    tables += [(*head, "verify", tokens, ms, None) for tokens, ms in enumerate(frame.verify_table)]
    return {"cost_samples": _table("cost_samples", samples), "cost_tables": _table("cost_tables", tables)}
