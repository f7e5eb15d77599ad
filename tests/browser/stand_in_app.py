"""The dashboard, with a worker that needs no model: `streamlit run` as for app.py."""

import functools
import sys
from pathlib import Path

import streamlit as st

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS.parent))

from avlab.ui import host  # noqa: E402

WORKER = (sys.executable, str(TESTS / "support" / "stand_in_serving.py"))
host.open_lab = functools.partial(host.open_lab, worker_commands={"reference": WORKER})
app = st.App(TESTS.parent / "app.py", lifespan=host.lifespan, routes=host.ROUTES)
