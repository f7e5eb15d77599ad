"""The dashboard that `avlab serve` opens: navigation, and the lab's lifetime; nothing else.

The server imports this file once and gets the application, whose start and end are the lab's. A browser's visit
runs it as a script, which draws the page asked for.
"""

from pathlib import Path

import streamlit as st

from avlab.ui import host, shell

if __name__ == "__main__":
    shell.visit(Path(__file__).parent / "pages")
else:
    app = st.App(__file__, lifespan=host.lifespan, routes=host.ROUTES)
