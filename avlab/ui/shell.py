"""What surrounds every page: its frame, the navigation, the sidebar."""

from pathlib import Path

import streamlit as st

from avlab.escaping import in_markdown
from avlab.glossary import WORDS
from avlab.ui import badge, host, sidebar
from avlab.ui.browser import read
from avlab.ui.chart import preload
from avlab.ui.page_files import page_files

ICON = str(Path(__file__).with_name("icon.svg"))  # of our own: nothing is fetched from elsewhere

STYLE = f"<style>{read('shell.css')}</style>"


def visit(pages: Path) -> None:
    """Draw the page that the browser asks for; pages: the folder with one file a page, beside the running script."""
    st.set_page_config(page_title="avlab", page_icon=ICON, layout="wide")
    st.html(STYLE)
    page = st.navigation([st.Page(file.path, title=file.title, icon=file.icon) for file in page_files(pages)])
    if host.problem():
        st.error(in_markdown(host.problem()))
        st.button("Try again", on_click=host.open_lab)
        return
    host.begin_story()
    sidebar.draw()
    with st.sidebar:
        with st.expander("Words", icon=":material/dictionary:"):
            st.markdown("  \n".join(f"**{word}**: {means}." for word, means in WORDS.items()))
        preload()
    badge.put("")  # until the page shows a run
    page.run()
