"""Frames of small runs, built by hand, for the tests of the store."""

import numpy as np

from avlab.store.ids import new_run_id
from avlab.wire import codec, draft_rows
from avlab.wire import commands as cm
from avlab.wire import frames as fr

K = 3


def hello(**changes) -> fr.Hello:
    """A greeting; `changes` replace its fields."""
    fields = {
        "kind": "reference",
        "pid": 4242,
        "wall": 1_780_000_000.0,
        "config": {"policy": "adaptive", "workload": "chat", "arrival": "closed:4"},
        "target": "tiny-target",
        "target_hash": "aa",
        "drafter": "tiny-drafter",
        "drafter_hash": "bb",
        "K": K,
        "code": "unknown",
        "machine": {"cores": 2},
        "features": ["max_log_odds", "head_log_odds"],
    }
    return fr.Hello(**(fields | changes))


def block(
    number: int, arm: str = "adaptive", kind: str = "serve", step: int = 0, time: float = 0.0
) -> fr.Block:
    """The beginning of a block."""
    return fr.Block(block=number, arm=arm, kind=kind, step=step, time=time, workload="chat")


def step(number: int, block: int = 0, **changes) -> fr.Step:
    """A step of 0.1 s: 4 requests emit 8 tokens, 12 slots scheduled, 7 admitted, 4 accepted, 6 labelled."""
    fields = {
        "step": number,
        "time": 0.1 * (number + 1),
        "block": block,
        "running": 4,
        "waiting": 1,
        "emitting": 4,
        "prompt_tokens": 0,
        "target_tokens": 11,
        "drafted": K,
        "budget": 7,
        "tokens": 8,
        "scheduled": (4, 4, 4),
        "admitted": (4, 2, 1),
        "accepted": (3, 1, 0),
        "labelled": (4, 1, 1),
        "expected_tokens": 7.5,
        "expected_ms": 90.0,
        "draft_ms": 10.0,
        "verify_ms": 60.0,
        "sample_ms": 15.0,
        "decide_ms": 5.0,
        "report_ms": 2.0,
        "idle_ms": 8.0,
        "explored": 2,
        "explored_ms": 1.5,
        "surplus": 0.25,
    }
    return fr.Step(**(fields | changes))


def steps(first: int, last: int, block: int = 0, **changes) -> fr.Steps:
    """Steps `first` to `last` - 1 in one frame."""
    return fr.Steps([step(number, block, **changes) for number in range(first, last)])


def refit(number: int, slope: float = 0.5, step: int = 0, arm: str = "adaptive", block: int = 0) -> fr.Refit:
    """Coefficients after a refit: intercepts -0.2, -0.3, -0.4."""
    return fr.Refit(
        arm=arm,
        block=block,
        refit=number,
        step=step,
        time=0.1 * step,
        slope=slope,
        intercepts=[-0.2, -0.3, -0.4],
        counts=[40, 20, 10],
        positives=[30, 10, 4],
    )


def calibration(sums: np.ndarray, source: str = "online", block: int = 0, window: int = 0, **changes):
    """A calibration frame of binned sums [K, 128, 5]; only bins that hold something are sent."""
    position, bins = np.nonzero(sums[..., 0])
    names = ("count", "positives", "sum_p", "sum_log_loss", "sum_squared_error")
    columns = {name: sums[position, bins, i] for i, name in enumerate(names)}
    fields = {
        "source": source,
        "block": block,
        "window": window,
        "time": float(window),
        "kind": "chat",
        "temperature": 1.0,
        "position": position.tolist(),
        "bin": bins.tolist(),
        **{name: column.astype(int).tolist() for name, column in columns.items() if name in names[:2]},
        **{name: column.tolist() for name, column in columns.items() if name in names[2:]},
    }
    return fr.Calibration(**(fields | changes))


def drafts(rows: int, first_step: int = 0, block: int = 0, **changes) -> fr.Drafts:
    """Draft slots of one request, K a step; labels go 1, 0, censored; the estimate of the last is NaN.

    `changes` replace columns. Without a confidence head: the second feature is nan.
    """
    slot = np.arange(rows)
    label = np.array([1, 0, -1], "i1")[slot % K]
    fields = {
        "block": np.full(rows, block),
        "step": first_step + slot // K,
        "request": np.full(rows, 7),
        "position": slot % K,
        "features": with_features(slot / 8),
        "estimate": np.where(slot == rows - 1, np.nan, 0.75),
        "survival": np.full(rows, 0.5),
        "admitted": label >= 0,
        "label": label,
    }
    return fr.Drafts(rows, draft_rows.pack(fields | changes))


def with_features(max_log_odds: np.ndarray) -> np.ndarray:
    """The features of slots without a confidence head, [N, 2]."""
    return np.stack([max_log_odds, np.full(len(max_log_odds), np.nan)], axis=1)


def request(
    number: int, tokens: int = 21, first: float = 1.0, last: float = 3.0, **changes
) -> fr.RequestDone:
    """A request that ended: 21 tokens from 1 s to 3 s are 10 tokens/s for its user."""
    fields = {
        "request": number,
        "kind": "chat",
        "temperature": 1.0,
        "top_p": 0.95,
        "top_k": 0,
        "seed": number,
        "arrival": 0.0,
        "admitted": 0.5,
        "first_token": first,
        "last_token": last,
        "prompt_tokens": 12,
        "output_tokens": tokens,
        "steps": 10,
        "drafts_accepted": 11,
        "finish": "end",
        "block": 0,
    }
    return fr.RequestDone(**(fields | changes))


def cost_profile() -> fr.CostProfile:
    """A profile of two sizes a phase."""
    return fr.CostProfile(
        source="profiled",
        draft_samples=[(1, 3, 2.0), (1, 3, 2.2), (4, 3, 3.0)],
        verify_samples=[(1, 19.0), (8, 22.0)],
        draft_table=[[0.0, 0.7, 1.4, 2.1], [0.0, 0.7, 1.4, 2.1], [0.0, 0.8, 1.6, 2.4]],
        verify_table=[0.0, 19.0, 19.5],
        cost_hash="cc",
    )


def plan(**changes) -> cm.Experiment:
    """The plan of an A/B of two arms."""
    fields = {"arms": ["adaptive", "fixed:2"], "baseline": "fixed:2", "rounds": 4, "concurrency": 4}
    return cm.Experiment(**(fields | changes))


def engine_sample(step: int = 0, engine: str = "0", **changes) -> fr.EngineSample:
    """A second of a watched server's engine: 40 drafts of two tokens, 30 and 10 of them accepted."""
    fields = {
        "step": step, "time": step + 1.0, "block": 0, "model": "some/model", "engine": engine, "seconds": 1.0,
        "running": 4.0, "waiting": 1.0, "cache_usage": 0.5, "engine_steps": 10.0, "prompt_tokens": 50, "tokens": 84,
        "finished": 2, "preemptions": 0, "outputs": 44, "first_tokens": 4, "first_token_seconds": 0.4,
        "later_outputs": 40, "later_seconds": 2.0, "drafts": 40, "draft_tokens": 80, "accepted": 40,
        "accepted_by_position": [30, 10],
    }  # fmt: skip
    return fr.EngineSample(**(fields | changes))


def heartbeat(time: float = 1.0) -> fr.Heartbeat:
    """A sign of life."""
    return fr.Heartbeat(time=time, state="serving", step=9, rss_mb=512.0, drafts_dropped=3)


def event(text: str = "Something happened.") -> fr.Event:
    """A worker's event."""
    return fr.Event(level="info", kind="note from worker", text=text, time=1.0, step=3)


def bye(complete: bool = True, reason: str = "done") -> fr.Bye:
    """The last frame."""
    return fr.Bye(reason=reason, complete=complete, time=9.0)


def envelopes(frames, run: str | None = None, first: int = 0) -> list[codec.Envelope]:
    """Frames of one run, numbered from `first`, after the trip through bytes that they make in life."""
    run = run or new_run_id()
    return [
        codec.decode_frame(codec.encode(codec.Envelope(run, first + i, frame)))
        for i, frame in enumerate(frames)
    ]


def whole_run() -> list:
    """Frames of every type: 40 steps, 20 of them served under `adaptive`."""
    rng = np.random.default_rng(1)
    return [
        hello(),
        cost_profile(),
        block(0, kind="wash-out"),
        steps(0, 10),
        block(1, step=10, time=1.0),
        refit(0, block=1),
        steps(10, 30, 1),
        refit(1, slope=0.8, step=20, block=1),
        calibration(sums_of(rng), block=1),
        calibration(sums_of(rng), source="raw", block=1),
        drafts(30, block=1),
        heartbeat(),
        event(),
        request(1, block=1),
        request(2, block=1, tokens=41),
        request(3, block=1, tokens=31),
        block(2, kind="window", step=30, time=3.0),
        steps(30, 40, 2, tokens=400),
        fr.Tokens(1, 3, [5], ["x"], ["accepted"], []),
        fr.ExperimentBegun(plan(), 4.0, 40),
        fr.RoundDone(0, False, "serving was paused", 4.5, 40),
        fr.BlockRequests(2, [1, 2], [10, 20], [1.0, 1.0]),
        engine_sample(),
        bye(),
    ]


def sums_of(rng, slots: int = 400) -> np.ndarray:
    """Binned sums [K, 128, 5] of random, miscalibrated estimates."""
    from avlab.speculation.calibration import bin_sums

    log_odds = rng.normal(0.5, 2.0, (slots, K))
    return bin_sums(log_odds, rng.random((slots, K)) < 1 / (1 + np.exp(-0.6 * log_odds)))
