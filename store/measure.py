"""How fast the recorder is: real frames of draft slots through decoding, commit and acknowledgement."""

import os
import time
from collections.abc import Iterator

import numpy as np

from avlab.store.ids import new_run_id
from avlab.store.recorder import Recorder
from avlab.wire import draft_rows
from avlab.wire.codec import Envelope, decode_frame, encode
from avlab.wire.frames import Drafts, Hello

K, REQUESTS = 7, 64


def draft_frames(rows: int, run: str | None = None) -> Iterator[bytes]:
    """Endless encoded frames of one run: its Hello as number 0, then Drafts of `rows` random slots each."""
    run, rng = run or new_run_id(), np.random.default_rng(0)
    hello = Hello(
        kind="reference",
        pid=os.getpid(),
        wall=time.time(),
        config={"policy": "adaptive"},
        target="none",
        target_hash="",
        drafter=None,
        drafter_hash=None,
        K=K,
        code="unknown",
        machine={},
        features=["max_log_odds"],
    )
    yield encode(Envelope(run, 0, hello))
    slot = np.arange(rows)
    feature = rng.normal(1.0, 3.0, rows).astype("<f4")
    estimate = (1.0 / (1.0 + np.exp(-feature))).astype("<f4")
    label = np.where(rng.random(rows) < 0.2, -1, rng.random(rows) < estimate).astype("i1")
    sequence = 0
    while True:
        step = (slot + sequence * rows) // (K * REQUESTS)
        sequence += 1
        columns = {
            "block": np.zeros(rows),
            "step": step,
            "request": slot // K % REQUESTS,
            "position": slot % K,
            "features": feature[:, None],
            "estimate": estimate,
            "survival": estimate * estimate,
            "admitted": label >= 0,
            "label": label,
        }
        yield encode(Envelope(run, sequence, Drafts(rows, draft_rows.pack(columns))))


def measure_rate(
    path: str | os.PathLike, seconds: float = 3.0, rows_per_frame: int = 4096
) -> dict[str, float]:
    """How many draft rows a second a recorder sustains: made, encoded, decoded, committed, acknowledged.

    path: a database, made where there is none. Returns rows, seconds, rows_per_s, and acknowledged (number of
    the last acknowledged frame).
    """
    acknowledged: list[int] = []
    rows = 0
    with Recorder(path, lambda run, sequence: acknowledged.append(sequence)) as recorder:
        frames = draft_frames(rows_per_frame)
        recorder.record(decode_frame(next(frames)))
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            recorder.record(decode_frame(next(frames)))
            rows += rows_per_frame
        recorder.flush()
        elapsed = time.perf_counter() - begin
    return {"rows": rows, "seconds": elapsed, "rows_per_s": rows / elapsed, "acknowledged": acknowledged[-1]}
