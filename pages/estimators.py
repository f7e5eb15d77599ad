"""Estimators: how good acceptance estimators are on recorded drafts, and what their faults cost."""

import pandas as pd
import streamlit as st

from avlab.experiments.estimator_scores import Judged, Measure
from avlab.figures import estimators as figures
from avlab.ui import estimator_lab as lab
from avlab.ui.chart import chart
from avlab.ui.refusals import refusals

TITLE = "Estimators"
ICON = ":material/model_training:"
ORDER = 75
FIRST = ("online", "cut", "monotone", "head")
LOADS = (1, 4, 16, 64, 128)


def shown(measure: Measure) -> str:
    return f"{measure.value:.3f} [{measure.low:.3f}, {measure.high:.3f}]"


def table(found: list[Judged]) -> None:
    """All positions together, an estimator a row."""
    rows = [
        {
            "estimator": each.name if each.sound else f"{each.name} (UNSOUND)",
            "what it is": each.title,
            "ECE": shown(each.overall.ece),
            "ECE floor": f"{each.overall.ece_floor:.3f}",
            "ECE, own admissions": "–" if each.own is None else f"{each.own.ece.value:.3f}",
            "AUC": shown(each.overall.auc),
            "log-loss": shown(each.overall.log_loss),
            "Brier": shown(each.overall.brier),
        }
        for each in found
    ]
    st.dataframe(pd.DataFrame(rows), hide_index=True, width="stretch")
    st.caption(
        "Each text is judged by an estimator that has not seen it, on uncensored labels: whole drafts are verified. In "
        "brackets: 95 % interval by text. The floor is what a perfect estimator would show with so many labels; the "
        "interval of the ECE has that noise taken off, so it may lie below the figure. Own admissions: it learnt only "
        "from drafts that it admitted itself."
    )


st.markdown(f"## {TITLE}")
st.markdown(
    "<p class='avlab-question'>How good are acceptance estimates on recorded drafts, and what do faults cost?</p>",
    unsafe_allow_html=True,
)
with refusals():
    left, middle = st.columns(2)
    trace = left.selectbox("Trace", lab.traces(), key="trace", bind="query-params")
    machine = middle.selectbox("Machine", lab.machines(), key="machine", bind="query-params")
    st.caption(lab.about(trace, machine))
    possible = lab.estimators(trace)
    chosen = st.multiselect(
        "Estimators", possible, [name for name in FIRST if name in possible], key="chosen"
    )
    if st.button("Judge", type="primary", key="judge"):
        st.session_state.judged = trace, machine, tuple(chosen)
    if st.session_state.get("judged") == (trace, machine, tuple(chosen)) and chosen:
        found = []
        bar = st.progress(0.0, "Judging")
        for number, name in enumerate(chosen):
            bar.progress(number / len(chosen), f"Judging {name}: about 3 s each")
            found.append(lab.scores_of(trace, machine, name))
        bar.empty()
        table(found)
        left, right = st.columns(2)
        with left:
            chart(
                figures.reliability(found), "lab-reliability", "Reliability",
                "On the dashed line estimates mean what they say. Below it they are too high.",
            )  # fmt: skip
        with right:
            chart(
                figures.by_position(found, "ece", "ECE"), "lab-ece", "Calibration error by position",
                "Late positions have few labels, so their floor is high.",
            )  # fmt: skip
        left, right = st.columns(2)
        with left:
            chart(
                figures.by_position(found, "auc", "AUC"), "lab-auc", "Ranking by position",
                "1: every accepted draft token ranks above every refused one. 0.5: chance.",
            )  # fmt: skip
        with right:
            chart(
                figures.learning(found), "lab-learning", "Learning curve",
                "One point a refit. A curve that stays high is a fit that is stuck.",
            )  # fmt: skip
        st.markdown("#### What it costs")
        left, right = st.columns([2, 1], vertical_alignment="bottom")
        load = left.segmented_control("Requests under way", LOADS, default=64, key="load") or 64
        depth = right.toggle("+depth", key="depth", help="Choose how deep to draft, too.")
        if st.button("Replay", key="replay", help="Some seconds for each estimator."):
            st.session_state.replayed = trace, machine, tuple(chosen), load, depth
        if st.session_state.get("replayed") == (trace, machine, tuple(chosen), load, depth):
            with st.spinner("Replaying"):
                rungs = {name: lab.losses_of(trace, machine, name, load, depth) for name in chosen}
            speeds = ", ".join(f"{name} {each[0].tokens_per_s:,.0f}" for name, each in rungs.items())
            chart(
                figures.losses(rungs), "lab-losses", "What one thing more would gain",
                f"Emulated tokens/s as it serves: {speeds}. Each bar is over the one before: perfect calibration of "
                "the same ranking, then the true chance of every slot after the draft, then before it, then the best "
                "rule. The last two see what no sound rule may see. Lines: 95 % intervals over sets of texts.",
            )  # fmt: skip
