"""Calibration: do acceptance estimates mean what they say?"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import streamlit as st

from avlab import diagnosis, formats
from avlab.escaping import in_markdown
from avlab.figures import calibration, numbers, sums
from avlab.speculation.calibration import Scores, scores
from avlab.store import queries
from avlab.ui import host, windows
from avlab.ui.chart import chart
from avlab.ui.shown import page, tick

TITLE = "Calibration"
ICON = ":material/target:"
ORDER = 30

ALL = "all"

shown = page(TITLE, "When an estimate says 80 %, are 80 % of those draft tokens accepted?")
with host.connection() as con:
    classes = queries.calibration_classes(con, shown.run)
kinds = sorted({kind for kind, _ in classes})
temperatures = sorted({temperature for _, temperature in classes})
left, middle, right, last = st.columns(4)
kind = left.selectbox("Workload kind", [ALL, *kinds], key="kind", bind="query-params")
labels = [ALL, *(f"{temperature:g}" for temperature in temperatures)]
temperature = middle.selectbox("Temperature", labels, key="temperature", bind="query-params")
measure = right.selectbox(
    "Measure over time", list(calibration.MEASURES), format_func=calibration.MEASURES.__getitem__, key="measure",
    bind="query-params",
)  # fmt: skip
labels_of = last.selectbox("Labels of", list(windows.LABELS), key="labels", bind="query-params")
if shown.live:
    windows.form(shown.K)


def draw() -> None:
    feed = host.feed(shown.run)
    with host.connection() as con:
        rows = feed.calibration(
            con, None if kind == ALL else kind, None if temperature == ALL else float(temperature),
            windows.LABELS[labels_of],
        )  # fmt: skip
        refits = feed.refits(con)
    windows.report(feed.steps, feed.blocks)
    if shown.live and not len(refits.get("row", ())):
        st.caption(
            diagnosis.first_refit(diagnosis.arm_in_force(feed.blocks), feed.last_step() + 1, shown.live)
        )
    rows = sums.comparable(rows)
    sources = sums.sources_of(rows)
    if not sources:
        nothing()
        return
    over_time = {source: sums.over_windows(rows, source, shown.K) for source in sources}
    totals = {source: values.sum(axis=0) for source, (_, values) in over_time.items()}  # [K, bins, sums]
    merged = {source: values.sum(axis=0) for source, values in totals.items()}
    for source in sources:
        scores_of(source, scores(merged[source]))
    st.caption(counted(numbers.headline(feed.steps, feed.blocks), scores(merged[sources[0]]).count))
    pooled(merged, over_time)
    by_position(totals)


def nothing() -> None:
    chart(
        calibration.reliability_diagram({}), "reliability", "Reliability",
        "No labels yet: they come from draft tokens that the target verifies."
        if labels_of == windows.EVERY
        else "No untrimmed labels yet: start a window of full verification above while the run is live.",
    )  # fmt: skip


def scores_of(source: str, found: Scores) -> None:
    """A row of measures of one source of estimates."""
    columns = st.columns([2.4, 1, 1, 1, 1, 1])
    columns[0].markdown(f"Estimates of the  \n**{in_markdown(sums.title(source))}**")
    measures = {
        "ECE": found.ece,
        "noise floor": found.ece_floor,
        "log-loss": found.log_loss,
        "Brier": found.brier,
        "AUC": found.auc,
    }
    for column, (name, value) in zip(columns[1:], measures.items(), strict=True):
        column.metric(name, formats.number(value, 4))


def counted(steps: Mapping[str, Any], labels: float) -> str:
    """What the measures are of, and what has no label."""
    without = formats.number(steps["scheduled"] - steps["labelled"], 0)
    reason = (
        f"{without} scheduled ones have no label: they were trimmed, or behind a rejection."
        if labels_of == windows.EVERY
        else "None was trimmed; those behind a rejection have no label."
    )
    return (
        f"{formats.number(labels, 0)} labelled draft tokens, the same for every source. {reason} Noise floor: the ECE "
        "that perfect estimates would show with this many labels."
    )


def pooled(merged: Mapping[str, np.ndarray], over_time: Mapping[str, Any]) -> None:
    """Charts of all positions together; merged: sums [bins, sums] by source."""
    left, right = st.columns(2)
    with left:
        chart(
            calibration.reliability_diagram(merged), "reliability", "Reliability",
            "On the dashed line estimates are right; below it they are too high. Bars are 95 % intervals; points of "
            "few labels are faint.",
        )  # fmt: skip
    with right:
        chart(
            calibration.over_time(over_time, measure, None), "over-time", f"{calibration.axis(measure)} over the run",
            "One point every few seconds. A jump that falls back: traffic changed and the estimator adapted.",
        )  # fmt: skip
        chart(
            calibration.bin_counts(merged), "counts", "Distribution of estimates",
            "Share of labelled draft tokens by estimate. Tall bars near 0 and 1: most outcomes are easy to predict.",
        )  # fmt: skip


def by_position(totals: Mapping[str, np.ndarray]) -> None:
    """Charts position by position; totals: sums [K, bins, sums] by source."""
    chart(
        calibration.by_position(totals), "by-position", "Reliability by position",
        "One panel per draft position: estimate across, accepted share up. A pooled fit can look right while positions "
        "err in opposite directions.",
    )  # fmt: skip
    left, right = st.columns(2)
    with left:
        chart(
            calibration.measures_by_position(totals, "ece"), "ece-by-position", "ECE by position",
            "Dashed: the ECE of perfect estimates with as few labels. Late positions have few, and faint points.",
        )  # fmt: skip
    with right:
        chart(
            calibration.measures_by_position(totals, "auc"), "auc-by-position", "AUC by position",
            "How well estimates rank draft tokens: 0.5 is chance, 1 is perfect. Bars: 95 % intervals. Choosing which "
            "tokens to trim needs ranking; choosing how many needs calibration.",
        )  # fmt: skip


tick(draw, shown)
