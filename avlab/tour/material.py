"""What the scenes share: a shipped trace, a shipped machine, and the labels of the trace."""

import functools

import numpy as np

from avlab.machines import Machine, machine
from avlab.replay.emulation import emulation
from avlab.replay.trace import Trace
from avlab.replay.traces import trace_named
from avlab.speculation.calibration import bin_sums

MACHINE, TRACE = "b300-deepseek-v4-flash-tp4", "reasoning"
FEATURE = "max_log_odds"


@functools.cache
def trace() -> Trace:
    """140 texts at temperature 0.6, top-p 0.95."""
    return trace_named(TRACE)


@functools.cache
def gpu() -> Machine:
    """Four B300, by vLLM's own start-up profile."""
    return machine(MACHINE, trace().about.K)


@functools.cache
def dense_gpu() -> Machine:
    """Four H200 with a dense model of 70 billion weights."""
    return machine("h200-llama-3.1-70b-tp4", trace().about.K)


def emulated() -> str:
    """What of the speeds of most scenes is emulated, in words."""
    return emulation(gpu().about, trace().about)


def dense_emulated() -> str:
    """Whose the costs of the dense model's machine are."""
    return f"emulated: {dense_gpu().about.title}"


@functools.cache
def feature() -> np.ndarray:
    """Log-odds of the draft row's maximum at every slot of the trace, [A, K]."""
    return trace().features[..., trace().about.features.index(FEATURE)].astype(np.float64)


@functools.cache
def labels() -> tuple[np.ndarray, np.ndarray]:
    """Whether a slot was accepted, and whether it has a label when whole drafts are verified, both [A, K] bool."""
    slot = np.arange(trace().about.K)
    accepted = trace().accepted[:, None]
    return slot < accepted, (slot <= accepted) & (slot < trace().left()[:, None])


def tokens_per_step(length: int) -> float:
    """Output tokens of a request's step that verifies so many drafts, over all anchors of the trace."""
    return float(1 + np.minimum(trace().accepted, length).mean())


def step_ms(requests: int, length: int) -> tuple[float, float, float]:
    """What a step takes that drafts and verifies so many for each request: draft, pass, the rest."""
    return gpu().milliseconds(requests, length, requests * (length + 1))


def sums_of(log_odds: np.ndarray, rows: slice = slice(None)) -> np.ndarray:
    """Calibration sums of estimates [A, K] over the trace's labels, [128, 5]. rows: which anchors."""
    label, labelled = labels()
    return bin_sums(log_odds[rows], label[rows], labelled[rows]).sum(axis=0)
