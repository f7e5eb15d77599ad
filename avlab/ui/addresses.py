"""What the dashboard's server answers beside Streamlit: plotly, and links that lead straight to a page.

All of it stands below `server.baseUrlPath`, where one is set. The browser asks below whatever prefix it finds itself
under, so that a proxy may add one that nobody here knows.
"""

from collections.abc import Iterable
from pathlib import Path

import plotly
import streamlit as st
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse
from starlette.routing import Route

PLOTLY = "avlab/plotly.min.js"
INDEX = Path(st.__file__).parent / "static" / "index.html"
# Streamlit's page looks for its server below the page's own address first, which gives two 404 for every link to a
# page; told where the server is, it does not.
KNOWN = (
    "<script>window.__streamlit = {BACKEND_BASE_URL: "
    "new URL('.', location.origin + location.pathname.replace(/\\/+$/, '')).href}</script>"
)


def routes(pages: Iterable[str]) -> list[Route]:
    """Routes for `st.App`. pages: the addresses of pages, each below the server's."""
    base = str(st.get_option("server.baseUrlPath") or "").strip("/")
    base = f"/{base}" if base else ""
    return [
        Route(f"{base}/{PLOTLY}", _plotly),
        *(Route(f"{base}/{page}", _page, name=f"page {page}") for page in pages),
    ]


def _plotly(_: Request) -> FileResponse:
    """The wheel's own copy: nothing is fetched from elsewhere."""
    path = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    return FileResponse(path, headers={"Cache-Control": "public, max-age=86400"})


def _page(_: Request) -> HTMLResponse:
    """Streamlit's own page, told where its server is."""
    html = INDEX.read_text(encoding="utf-8").replace("<script", f"{KNOWN}\n    <script", 1)
    return HTMLResponse(html, headers={"Cache-Control": "no-cache"})
