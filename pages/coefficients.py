"""Coefficients: what the online estimator has learnt, refit by refit."""

import streamlit as st

from avlab import diagnosis, formats
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
            diagnosis.first_refit(diagnosis.arm_in_force(feed.blocks), feed.last_step() + 1, shown.live),
        )  # fmt: skip
        return
    learnt = coefficients.of_arm(refits, arm or known[0])
    last = len(learnt["number"]) - 1
    top = st.columns(4)
    top[0].metric("Refits", f"{int(learnt['number'][-1]):,}")
    top[1].metric("Slope w", formats.number(float(learnt["slope"][-1]), 3))
    top[2].metric("First intercept", formats.number(float(learnt["intercepts"][-1][0]), 3))
    top[3].metric("Labels in the last round", f"{int(learnt['counts'][-1].sum()):,}")
    if told := coefficients.stuck(learnt):
        st.warning(told, icon=":material/lock:")
    if told := coefficients.runaway(learnt):
        st.warning(told, icon=":material/trending_up:")
    left, right = st.columns(2)
    with left:
        chart(
            coefficients.slope(learnt, feed.blocks), "slope", "Slope",
            "At 1 (dashed) the drafter's confidence needs no scaling. Below 1 the drafter is overconfident.",
        )  # fmt: skip
    with right:
        chart(
            coefficients.intercepts(learnt, feed.blocks), "intercepts", "Intercepts",
            "How much likelier (above 0) or less likely (below 0) a position is accepted than w·f alone says. Dotted "
            "lines: the policy or workload changed; jumps after one are the estimator adapting.",
        )  # fmt: skip
    chart(
        coefficients.rounds(learnt), "rounds", "Labels in each round",
        "Labels that each refit learnt from. Few at late positions is normal: every earlier token must be accepted.",
    )  # fmt: skip

    st.markdown("#### Estimate by confidence")
    chosen = last
    if last > 0:
        labels = [f"refit {int(number)}" for number in learnt["number"]]
        newest = "the newest"
        picked = st.select_slider("Estimate after", [*labels[:-1], newest], value=newest, key=f"moment-{arm}")
        chosen = last if picked == newest else labels.index(picked)
    raw = sums.of_source(rows, "raw", shown.K)
    chart(
        coefficients.curve(float(learnt["slope"][chosen]), learnt["intercepts"][chosen], raw), "curve",
        f"Acceptance estimate σ(w·f + β) after refit {int(learnt['number'][chosen])}",
        "One curve per position. The feature is a log-odds: 0 is even odds, 2 is 88 %, −2 is 12 %. Grey bars: labelled "
        "draft tokens; where there are none, the curves are extrapolated. Dashed: the drafter's maximum probability as "
        "it is.",
    )  # fmt: skip


tick(draw, shown)
