"""Coefficients: what the online estimator has learnt, refit by refit."""

import streamlit as st

from avlab import formats
from avlab.figures import coefficients, sums
from avlab.ui import host
from avlab.ui.chart import chart
from avlab.ui.shown import page, tick

TITLE = "Coefficients"
ICON = ":material/tune:"
ORDER = 20

shown = page(
    TITLE,
    "What has the online estimator learnt from accepts and rejections, and when did it change?",
)
with host.connection() as con:
    arms = coefficients.arms_of(host.feed(shown.run).refits(con))
arm = arms[0] if arms else None
if len(arms) > 1:
    arm = st.segmented_control("Arm", arms, default=arms[0], key="arm", bind="query-params") or arms[0]


def draw() -> None:
    feed = host.feed(shown.run)
    with host.connection() as con:
        refits, rows = feed.refits(con), feed.calibration(con)
    known = coefficients.arms_of(refits)
    if not known:
        chart(
            coefficients.none_learnt(), "slope", "Slope",
            "A run under an adaptive policy shows here how its estimator learns.",
        )  # fmt: skip
        return
    learnt = coefficients.of_arm(refits, arm or known[0])
    last = len(learnt["number"]) - 1
    top = st.columns(4)
    top[0].metric("Refits", f"{int(learnt['number'][-1]):,}")
    top[1].metric("Slope w", formats.number(float(learnt["slope"][-1]), 3))
    top[2].metric("First intercept", formats.number(float(learnt["intercepts"][-1][0]), 3))
    top[3].metric("Labels in the last round", f"{int(learnt['counts'][-1].sum()):,}")
    left, right = st.columns(2)
    with left:
        chart(
            coefficients.slope(learnt, feed.blocks), "slope", "Slope",
            "1 (dashed) would mean that the drafter's confidence is worth what it says; below 1 it is overconfident.",
        )  # fmt: skip
    with right:
        chart(
            coefficients.intercepts(learnt, feed.blocks), "intercepts", "Intercepts",
            "How much easier or harder a position is than its confidence says. Steps after a dotted line show the "
            "estimator following a change of policy or workload.",
        )  # fmt: skip
    chart(
        coefficients.rounds(learnt), "rounds", "Labels in each round",
        "What each refit had to learn from. Few labels at late positions are normal: a draft must survive that far.",
    )  # fmt: skip

    st.markdown("#### The estimate as a function of confidence")
    chosen = last
    if last > 0:
        labels = [f"refit {int(number)}" for number in learnt["number"]]
        newest = "the newest"
        picked = st.select_slider("Moment", [*labels[:-1], newest], value=newest, key=f"moment-{arm}")
        chosen = last if picked == newest else labels.index(picked)
    raw = sums.of_source(rows, "raw", shown.K)
    chart(
        coefficients.curve(float(learnt["slope"][chosen]), learnt["intercepts"][chosen], raw), "curve",
        f"Acceptance estimate σ(w·f + β) after refit {int(learnt['number'][chosen])}",
        "One curve a position: how likely a draft token is kept, given how sure its draft row is. Grey bars are where "
        "draft tokens really were; only there have the curves been learnt. The dashed curve takes the drafter at its "
        "word.",
    )  # fmt: skip


tick(draw, shown)
