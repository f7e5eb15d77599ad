"""The badge of a replayed run: whatever the pages state as a speed says beside it that it is emulated.

`page` sets it for each page (`avlab.ui.shown`); a page without a run has none.
"""

import re
from collections.abc import Sequence
from typing import Any

import streamlit as st

from avlab import formats
from avlab.escaping import in_markdown

SPEED = re.compile(
    r"tokens/s|tokens a second|tokens per second|milliseconds|\bms\b|throughput|interactivity|faster|cost",
    re.I,
)


def put(emulation: str) -> None:
    """What of the run on show is emulated, in words; "" for a run that was measured."""
    st.session_state["emulation"] = emulation


def emulation() -> str:
    """What was put."""
    return str(st.session_state.get("emulation", ""))


def titled(title: str, *told: str) -> str:
    """A title over a speed, with the badge; told: what else stands there, by which it is known to be one."""
    return f"{title}, emulated" if emulation() and SPEED.search(" ".join((title, *told))) else title


def said(text: str) -> str:
    """Text that states a speed."""
    return formats.emulated(text, emulation())


def table(rows: Sequence[dict[str, Any]], **options: Any) -> None:
    """A table of speeds, under a line that says whose they are where they are emulated."""
    if rows and emulation():
        st.caption(f"All times and rates of this table are {in_markdown(emulation())}.")
    st.dataframe(rows, **options)
