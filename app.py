"""The dashboard that `avlab serve` opens: navigation, and the lab's lifetime; nothing else.

The server imports this file once and gets the application, whose start and end are the lab's. A browser's visit
runs it as a script, which draws the page asked for.
"""

from pathlib import Path

import streamlit as st

from avlab.ui import addresses, host, shell
from avlab.ui.page_files import page_files

PAGES = Path(__file__).parent / "pages"

if __name__ == "__main__":
    shell.visit(PAGES)
else:
    links = [page.name for page in page_files(PAGES)]
    app = st.App(__file__, lifespan=host.lifespan, routes=addresses.routes(links))
