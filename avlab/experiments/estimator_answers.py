"""The tables of docs/estimators.md: where vLLM's slope is stuck, what calibration is worth, what wrong costs cost.

`avlab lab answers` prints them as Markdown, from the traces and machines that there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy

import numpy as np

from avlab.experiments import cost_drift
from avlab.experiments import estimator_learning as learning
from avlab.experiments.estimator_losses import losses
from avlab.experiments.estimator_scores import sums_by_text
from avlab.machines import Machine
from avlab.replay.trace import Trace
from avlab.speculation.calibration import scores
from avlab.speculation.regression import Coefficients
from avlab.speculation.stuck import dropped_in_a_row

STARTS = (0.1, 0.2, 0.3, 0.5, 1.0)  # slopes that a fit begins with; vLLM's is 0.5
REQUESTS = (1, 16)  # under way: few labels a refit, and many
LOADS = (16, 64)
SOURCES = ("online", "cut", "monotone", "head")
Progress = Callable[[str], None]


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as Markdown has it."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def stuck(traces: Sequence[Trace], machine: Machine, progress: Progress) -> str:
    """Where the fit ends from several starts, 1,000 steps long, everything verified; and the same with steps cut.

    Half the texts are learnt from, the others judged.
    """
    rows = []
    for trace in traces:
        slots, fold = learning.fully_verified(trace), learning.folds(trace)
        judged = slots[fold[slots.text] == 1]
        for requests in REQUESTS:
            for start in STARTS:
                progress(f"{trace.about.sampling()}, {requests} requests, start {start:g}")
                cells = []
                for name in ("online", "cut"):
                    estimator = learning.policy_of(trace, machine, name, requests).estimator
                    began = Coefficients.cold_start(trace.about.K)
                    estimator.coefficients = Coefficients(start, began.intercepts)
                    history = learning.learn(
                        trace,
                        machine,
                        name,
                        np.flatnonzero(fold == 0),
                        load=requests,
                        start=deepcopy(estimator),
                    )
                    fits = [each.coefficients for _, each in history]
                    slopes = [each.slope for each in fits if each is not None]
                    ece = scores(sums_by_text(history[-1][1], judged, trace).sum(axis=(0, 1))).ece
                    cells += [f"{slopes[-1]:.3f}", f"{ece:.3f}"]
                    if name == "online":
                        labels = np.diff([seen for seen, _ in history])
                        cells.append(str(dropped_in_a_row(slopes, labels) or "–"))
                rows.append([trace.about.sampling(), f"{requests}", f"{start:g}", *cells])
    header = (
        "sampling", "requests", "start", "vLLM's slope", "its ECE", "steps dropped in a row", "cut: slope", "its ECE",
    )  # fmt: skip
    return markdown(header, rows)


def calibration(traces: Sequence[Trace], machines: Sequence[Machine], progress: Progress) -> str:
    """What a perfect calibration of the same ranking adds to each source's tokens/s (vLLM issue #52053)."""
    rows = []
    for machine in machines:
        for trace in traces:
            for load in LOADS:
                cells = []
                for name in SOURCES:
                    progress(f"{machine.about.title}, {trace.about.sampling()}, {load} requests, {name}")
                    _, rung = losses(trace, machine, name, load, rungs=("arm", "calibration"))
                    cells.append(f"{rung.gain:.3f} [{rung.low:.2f}, {rung.high:.2f}]")
                rows.append([machine.about.title, trace.about.sampling(), f"{load}", *cells])
    return markdown(("machine", "sampling", "requests", *(f"`{name}`" for name in SOURCES)), rows)


def drift(traces: Sequence[Trace], machines: Sequence[Machine], progress: Progress, load: int = 64) -> str:
    """Tokens/s by a wrong table over those by the true one (vLLM issue #52057); vLLM's rule, steps cut."""
    columns: list[list[str]] = []
    header = ["the table is wrong by"]
    for machine in machines:
        for trace in traces:
            progress(f"{machine.about.title}, {trace.about.sampling()}")
            found = cost_drift.drift(trace, machine, "cut", load)
            columns.append([f"{each.ratio:.3f}" for each in found])
            header.append(f"{machine.about.title}, {trace.about.sampling()}")
    return markdown(
        header, ([name, *cells] for name, *cells in zip(cost_drift.DRIFTS, *columns, strict=True))
    )
