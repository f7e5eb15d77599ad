"""What surrounds every page: its frame, the navigation, the sidebar."""

from pathlib import Path

import streamlit as st

from avlab.ui import host, sidebar
from avlab.ui.chart import preload

PAGES = (
    ("pages/live.py", "Live", ":material/monitoring:"),
    ("pages/coefficients.py", "Coefficients", ":material/tune:"),
    ("pages/calibration.py", "Calibration", ":material/target:"),
    ("pages/budget.py", "Budget", ":material/savings:"),
    ("pages/ab.py", "A/B", ":material/science:"),
    ("pages/frontier.py", "Frontier", ":material/show_chart:"),
    ("pages/playground.py", "Playground", ":material/edit_note:"),
    ("pages/sampling_bias.py", "Sampling bias", ":material/balance:"),
    ("pages/vllm.py", "vLLM", ":material/dns:"),
    ("pages/runs.py", "Runs", ":material/table_rows:"),
)

ICON = str(Path(__file__).with_name("icon.svg"))  # of our own: nothing is fetched from elsewhere

STYLE = """
<style>
.block-container { padding-top: 2.2rem; max-width: 1400px; }
h2 { padding-bottom: 0; }
h4 { padding: 0.4rem 0 0; font-size: 1.02rem; font-weight: 600; }
.avlab-question { opacity: 0.75; margin: 0 0 0.3rem; }
[data-testid="stMetricValue"] { font-variant-numeric: tabular-nums; font-size: 1.55rem; }
[data-testid="stSidebar"] [data-testid="stMetricValue"] { font-size: 1.2rem; }
[data-testid="stCaptionContainer"] { margin-bottom: 0.6rem; }
@media (max-width: 640px) {
  .block-container { padding: 3rem 1rem 2rem; }
  [data-testid="stColumn"]:has([data-testid="stMetric"]) { min-width: calc(50% - 1rem); }
}
</style>
"""


def visit() -> None:
    """Draw the page that the browser asks for."""
    st.set_page_config(page_title="avlab", page_icon=ICON, layout="wide")
    st.html(STYLE)
    page = st.navigation([st.Page(path, title=title, icon=icon) for path, title, icon in PAGES])
    if host.problem():
        st.error(host.problem())
        st.button("Try again", on_click=host.open_lab)
        return
    sidebar.draw()
    with st.sidebar:
        preload()
    page.run()
