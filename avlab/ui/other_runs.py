"""Where the run on show has nothing for a page: which runs have, and buttons that lead to them."""

from collections.abc import Sequence

import streamlit as st

from avlab import sample
from avlab.store import queries
from avlab.ui import host
from avlab.ui.shown import Shown, end, pick, tick

MOST = 4


def lead(runs: Sequence[str], what: str) -> None:
    """Buttons that show the last run of this sort ("A/B"), and the shipped ones with what they are.

    runs: their ids, newest first.
    """
    if not runs:
        return
    st.button(f"Show the last {what}", on_click=pick, args=(runs[0], False))
    shipped = sample.shipped()
    for run in [run for run in runs if run in shipped][:MOST]:
        left, right = st.columns([1, 5], vertical_alignment="center")
        left.button("Show it", key=f"show-{run}", on_click=pick, args=(run, False), width="stretch")
        right.markdown(f"Ships with avlab. {shipped[run]}")


def where_absent(shown: Shown, what: str, frontier: bool, told: str) -> None:
    """End the page where the run on show has no experiment of this sort: say so, and lead to runs that have one.

    what: "A/B" or "frontier". A live run may get its plan a moment later; then the page is drawn anew.
    """

    def has_one() -> bool:
        with host.connection() as con:
            return shown.run in queries.experiment_runs(con, frontier=frontier)

    def appears() -> None:
        if has_one():
            st.rerun()

    if has_one():
        return
    st.info(told, icon=":material/science:")
    with host.connection() as con:
        lead(queries.experiment_runs(con, frontier=frontier), what)
    tick(appears, shown)
    end()
