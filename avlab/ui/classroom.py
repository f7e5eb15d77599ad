"""Classroom mode: large letters, one chart at a time, and keys that step on."""

import streamlit as st

from avlab.ui.browser import read

LETTERS = 20  # pixels, at least
CHART_HEIGHT = 560
_keys = st.components.v2.component("avlab_tour_keys", js=read("classroom.js"), isolate_styles=False)


def toggle() -> bool:
    """The reader's choice, which is in the address."""
    return st.toggle(
        "Classroom", key="classroom", bind="query-params",
        help="Large letters, one chart, no sidebar. A chart's own button shows it on the whole screen.",
    )  # fmt: skip


def enlarge() -> None:
    """The page's letters, of everything that is drawn on it."""
    st.html(f"<style>{read('classroom.css')}</style>")


def keys() -> None:
    """Arrow keys, and those of a presenter, press the buttons with the keys tour-next and tour-previous."""
    _keys(key="tour-keys", height=1)
