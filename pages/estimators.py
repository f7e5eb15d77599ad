"""Estimators: how good acceptance estimators are on recorded drafts, and what their faults cost."""

import pandas as pd
import streamlit as st

from avlab.experiments import estimator_learning as learning
from avlab.experiments.estimator_losses import Rung
from avlab.experiments.estimator_losses import losses as found_losses
from avlab.experiments.estimator_scores import Judged, Measure
from avlab.experiments.estimator_scores import judge as judged
from avlab.figures import estimators as figures
from avlab.machines import known as known_machines
from avlab.machines import machine as machine_named
from avlab.replay.traces import known as known_traces
from avlab.replay.traces import trace_named
from avlab.ui.chart import chart
from avlab.ui.refusals import refusals

TITLE = "Estimators"
ICON = ":material/model_training:"
ORDER = 70
FIRST = ("online", "cut", "monotone", "head")
REPEATS = 4  # sets of texts behind the losses: what a page can wait for
LOADS = (1, 4, 16, 64, 128)


@st.cache_data(max_entries=40, show_spinner=False)
def scores_of(trace: str, machine: str, name: str) -> Judged:
    """One estimator on a trace; kept, so that another choice costs only what is new in it."""
    recorded = trace_named(trace)
    return judged(recorded, machine_named(machine, recorded.about.K), [name])[0]


@st.cache_data(max_entries=40, show_spinner=False)
def losses_of(trace: str, machine: str, name: str, load: int, depth: bool) -> list[Rung]:
    """What one estimator's arm loses there."""
    recorded = trace_named(trace)
    emulated = machine_named(machine, recorded.about.K)
    return found_losses(recorded, emulated, name, load, depth, repeats=REPEATS)


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
    trace = left.selectbox("Trace", known_traces(), key="trace", bind="query-params")
    machine = middle.selectbox("Machine", known_machines(), key="machine", bind="query-params")
    recorded = trace_named(trace)
    st.caption(
        f"{recorded.about.target} at {recorded.about.sampling()}: {recorded.texts} texts, {recorded.anchors:,} drafts "
        f"of {recorded.about.K} positions. Speeds are emulated by the costs of "
        f"{machine_named(machine, recorded.about.K).about.title}."
    )
    possible = learning.judgeable(recorded)
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
            found.append(scores_of(trace, machine, name))
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
                rungs = {name: losses_of(trace, machine, name, load, depth) for name in chosen}
            speeds = ", ".join(f"{name} {each[0].tokens_per_s:,.0f}" for name, each in rungs.items())
            chart(
                figures.losses(rungs), "lab-losses", "What one thing more would gain",
                f"Emulated tokens/s as it serves: {speeds}. Each bar is over the one before: perfect calibration of "
                "the same ranking, then the true chance of every slot after the draft, then before it, then the best rule. "
                "The last two see what no sound rule may see. Lines: 95 % intervals over sets of texts.",
            )  # fmt: skip
