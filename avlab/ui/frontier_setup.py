"""The form that starts a frontier, or goes on with one."""

import streamlit as st

from avlab.experiments.frontier_plan import make_frontier
from avlab.experiments.plan import FRONTIER_ARMS, FRONTIER_LOADS
from avlab.formats import counted
from avlab.store import queries
from avlab.ui import host, settings, shown
from avlab.ui.ab_setup import MOST_LEARNING, MOST_REQUESTS, base_config, draft_positions, say_notes
from avlab.ui.refusals import refusals
from avlab.ui.typed import Fields

MOST_REPEATS = 100


def form() -> None:
    """Arms, loads, repeats, length of a cell."""
    busy = host.lab().supervisor.status().alive
    with host.connection() as con:
        seen = st.session_state.get("run") in queries.experiment_runs(con, frontier=True)
    with st.expander("Measure a frontier", expanded=not busy and not seen, icon=":material/science:"):
        known = list(dict.fromkeys([*FRONTIER_ARMS, *settings.SUGGESTED["policy"]]))
        arms = st.multiselect(
            "Arms", known, default=list(FRONTIER_ARMS), key="frontier-arms", accept_new_options=True
        )
        fields = Fields()
        fields.arms(st, arms, draft_positions())
        offered = [str(load) for load in FRONTIER_LOADS]
        chosen = st.multiselect(
            "Requests under way", offered, default=offered, key="frontier-loads", accept_new_options=True,
            help="Loads. Type others, such as 24.",
        )  # fmt: skip
        loads = fields.wholes(st, chosen, "A load", 1, MOST_REQUESTS)
        left, middle, right = st.columns(3)
        repeats = fields.whole(
            left,
            "Repeats",
            1,
            MOST_REPEATS,
            3,
            key="frontier-repeats",
            help="Error bars need at least three.",
        )
        block = middle.text_input("Cell", "80steps", key="frontier-block", help="Its length: 80steps, 5s.")
        learn = fields.whole(
            right, "Learning (steps)", 0, MOST_LEARNING, 200, key="frontier-learn",
            help="Each adaptive cell serves these before the first repeat, to learn.",
        )  # fmt: skip
        st.caption(
            f"{counted(len(arms) * len(loads), 'cell')}, each served {counted(repeats, 'time')}, afresh and in random "
            "order, so drift favours no arm. You may stop at any time: start the same form again to continue."
        )
        say_notes(lambda: make_frontier(base_config(), arms, loads, repeats, block, learn=learn))
        if st.button(
            "Start the frontier",
            type="primary",
            key="frontier-start",
            icon=":material/play_arrow:",
            disabled=busy,
        ):
            with refusals():
                fields.check()
                _start(arms, loads, repeats, block, learn)
        if busy:
            st.caption("A worker is serving: stop it in the sidebar first.")


def _start(arms: list[str], loads: list[int], repeats: int, block: str, learn: int) -> None:
    """Start what is missing, or say that nothing is."""
    config, plan = make_frontier(base_config(), arms, loads, repeats, block, learn=learn)
    rest = host.lab().plan_frontier(config, plan).plan
    if rest is None:
        st.info("Every repeat of this frontier is already measured: ask for more repeats.")
        return
    shown.start(config, rest)
    st.rerun()
