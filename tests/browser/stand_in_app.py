"""The dashboard, with a worker that needs no model: `streamlit run` as for app.py."""

import functools
import sys
from pathlib import Path

import streamlit as st

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS.parent))

from avlab.ui import addresses, host  # noqa: E402
from avlab.ui.page_files import page_files  # noqa: E402

WORKER = (sys.executable, str(TESTS / "support" / "stand_in_serving.py"))
host.open_lab = functools.partial(host.open_lab, worker_commands={"reference": WORKER})
links = [page.name for page in page_files(TESTS.parent / "pages")]
app = st.App(TESTS.parent / "app.py", lifespan=host.lifespan, routes=addresses.routes(links))
