"""The Frontier page where it replays: arms by loads on a machine's costs, measured points over them, and the plan."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from avlab import formats
from avlab.escaping import in_markdown
from avlab.experiments.answers import Point
from avlab.experiments.frontier_analysis import analyse_frontier
from avlab.experiments.published import PublishedPoint, scaled, shared_loads
from avlab.experiments.replay_cells import Cell
from avlab.experiments.replay_intervals import over_best_fixed
from avlab.experiments.replay_plan import choices, sentence
from avlab.experiments.replay_sweep import Case
from avlab.experiments.words import requests
from avlab.figures import replay
from avlab.policies.arm import DEFAULT_ARM
from avlab.store import queries
from avlab.ui import experiment_columns, host, replay_setup, replays
from avlab.ui.ab_setup import MOST_REQUESTS
from avlab.ui.chart import chart
from avlab.ui.refusals import refusals
from avlab.ui.settings import SUGGESTED
from avlab.ui.typed import Fields

ARMS = (
    "none",
    "fixed:1",
    "fixed:2",
    "fixed:3",
    "fixed:5",
    "fixed:7",
    "adaptive",
    "adaptive+depth",
    DEFAULT_ARM,
)
LOADS = ("1", "4", "16", "64", "128", "256")
NOTHING = "nothing"


def draw() -> None:
    """Machine, trace, arms, loads; then the chart, the plan and the table."""
    case = replay_setup.case("frontier")
    known = list(dict.fromkeys([*ARMS, *SUGGESTED["policy"]]))
    arms = st.multiselect(
        "Arms", known, default=list(ARMS), key="frontier-replay-arms", accept_new_options=True
    )
    fields, K = Fields(), case.opened()[0].about.K
    fields.arms(st, arms, K)
    chosen = st.multiselect(
        "Requests under way", LOADS, default=list(LOADS), key="frontier-replay-loads", accept_new_options=True,
        help="Loads. Type others, such as 24.",
    )  # fmt: skip
    loads = fields.wholes(st, chosen, "A load", 1, MOST_REQUESTS)
    over = _measured()
    if fields.wrong or not arms or not loads:
        return
    with refusals():
        wanted = replay_setup.arms_that_fit(case, arms, loads)
        replay_setup.follow("frontier", case, wanted, lambda seen: _show(case, seen, over, K))


def _measured() -> list[Point]:
    """The frontier whose measured points are laid over, if the reader asks for one."""
    with host.connection() as con:
        runs = queries.experiment_runs(con, frontier=True)
    shown = st.session_state.get("run")
    offered = [NOTHING, *runs[:20]]
    at = offered.index(shown) if shown in offered else 0
    run = st.selectbox(
        "Lay measured points over it", offered, index=at, key="frontier-replay-over",
        format_func=lambda run: run if run == NOTHING else f"the frontier of run {run[-8:]}",
    )  # fmt: skip
    if run == NOTHING:
        return []
    with host.connection() as con:
        return analyse_frontier(con, run, None).points


def _show(case: Case, seen: replays.Seen, measured: Sequence[Point], K: int) -> None:
    badge = case.emulation
    over, told = _laid(seen.cells, measured)
    chart(
        replay.frontier(seen.cells, badge, over), "frontier-replayed", "Throughput against interactivity",
        f"{badge}. Up and to the right is better. Numbers: requests under way. Faint points are dominated. Bars: 95 % "
        f"by text.{told}",
    )  # fmt: skip
    whole = [cell for cell in seen.cells if len(cell.blocks) > 1]
    if seen.done and whole:
        st.markdown(f"**What to set** ({in_markdown(badge)})")
        st.markdown("\n".join(f"- {in_markdown(sentence(each, K))}" for each in choices(whole)))
    if seen.cells:
        st.dataframe(
            replay.table(seen.cells, over_best_fixed(seen.cells)), hide_index=True,
            column_config=experiment_columns.COLUMNS | {"over the best fixed": THREE_DIGITS},
            placeholder=formats.DASH,
        )  # fmt: skip
        st.caption(in_markdown(" ".join([f"Every speed here is {badge}.", *case.doubts(seen.cells)])))


def _laid(cells: Sequence[Cell], measured: Sequence[Point]) -> tuple[list[PublishedPoint], str]:
    """Measured points in the replay's units: their none is laid on the replayed one, at a load that both have."""
    if not measured or not cells:
        return [], ""
    theirs = [PublishedPoint(p.arm, p.load, p.tokens_per_s, p.interactivity) for p in measured]
    mine = [PublishedPoint(c.arm, c.load, c.tokens_per_s, c.tokens_per_s_per_user) for c in cells]
    shared = shared_loads(theirs, mine)
    if not shared:
        return [], " The measured points are not drawn: none was not measured and replayed at a common load."
    told = (
        f" Hollow squares on broken lines: measured, scaled so that none with {requests(shared[0])} lies on the "
        "replayed one. Compare shapes only."
    )
    return scaled(theirs, mine), told


THREE_DIGITS = st.column_config.NumberColumn(
    format="%.3f", help="Of tokens/s, over the best fixed length of the load."
)
