"""Windows of full verification: asking for one, and what came of those so far."""

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from avlab.errors import is_ours
from avlab.escaping import in_markdown
from avlab.figures import numbers
from avlab.figures.base import Columns
from avlab.ui import host
from avlab.ui.typed import text_of, whole
from avlab.wire.commands import MOST_WINDOW_STEPS

EVERY, UNTRIMMED = "every block", "windows only (untrimmed)"
LABELS = {EVERY: ("serve", "window"), UNTRIMMED: ("window",)}
STEPS = 200


def form(K: int) -> None:
    """Start a window in the live run. K: draft positions; without any there is nothing to verify."""
    if not K:
        return
    with st.popover("Window of full verification", icon=":material/select_all:"):
        st.markdown(
            "Trimmed draft tokens get no label. In a window the target verifies every scheduled token, so labels are "
            "untrimmed. The estimator still predicts; the run's rates leave the window out."
        )
        with st.form("window", border=False):
            st.text_input("Steps", str(STEPS), key="window-steps")
            st.toggle("Let the estimator learn from the window", key="window-teach")
            st.form_submit_button("Start the window", type="primary", on_click=_ask)
        if problem := st.session_state.get("window-refused"):
            st.error(in_markdown(problem))


def _ask() -> None:
    state = st.session_state
    state["window-refused"] = ""
    try:
        steps = whole(text_of("window-steps"), "Steps", 1, MOST_WINDOW_STEPS)
        host.lab().window(steps, bool(state["window-teach"]))
    except Exception as error:
        if not is_ours(error):
            raise
        state["window-refused"] = str(error)


def report(steps: Columns, blocks: Sequence[Mapping[str, Any]]) -> None:
    """Say that a window is running, and how many untrimmed labels the run has; nothing where there was none."""
    count, labels = numbers.untrimmed(steps, blocks)
    if blocks and blocks[-1]["kind"] == "window":
        st.info(
            f"A window of full verification is running: {count:,} steps with {labels:,} untrimmed labels so far.",
            icon=":material/select_all:",
        )
    elif count:
        gave = f"**{labels:,} untrimmed labels** in {count:,} steps"
        st.markdown(f":material/select_all: Windows of full verification gave {gave}.")
