"""The chart of every page: plotly that is updated in place, so that a reader's zoom and legend choices stay."""

import plotly.graph_objects as go
import streamlit as st

from avlab.escaping import figure_without_links, in_markdown
from avlab.ui import badge
from avlab.ui.browser import read

_component = st.components.v2.component(
    "avlab_chart", css=read("chart.css"), js=read("plotly.js", "chart.js"), isolate_styles=False
)
_preloader = st.components.v2.component(
    "avlab_preload", js=read("plotly.js", "preload.js"), isolate_styles=False
)


def preload() -> None:
    """Have the browser fetch plotly now, so that the first chart does not wait for it."""
    _preloader(key="preload", height=1)


def chart(figure: go.Figure, key: str, title: str, reading: str) -> None:
    """A titled chart and, under it, the sentence that says what to read from it (which is also its alt text).

    key: the same for the same chart, on every run and tick. Colours of text, grid and background are the theme's.
    """
    axes = (str(axis.title.text or "") for axis in (figure.layout.xaxis, figure.layout.yaxis))
    title = badge.titled(title, *axes)
    st.markdown(f"#### {in_markdown(title)}")
    _component(
        key=key,
        data={
            "figure": figure_without_links(figure.to_json()),
            "alt": f"Chart: {title}. {reading}",
            "key": key,
        },
    )
    st.caption(in_markdown(reading))
