"""Where the run on show has nothing for a page: which runs have, and buttons that lead to them."""

from collections.abc import Sequence

import streamlit as st

from avlab import sample
from avlab.ui.shown import pick

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
