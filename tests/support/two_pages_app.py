"""Two pages of a second's work each, under a sidebar whose fragment has a button and reruns the page by its timer."""

import contextlib
import os
import time

import streamlit as st

from avlab.ui import streamlit_repairs


def sidebar() -> None:
    st.button("Count", on_click=count)
    if st.session_state.get("drawn"):
        st.session_state.drawn = False
        st.rerun()


def count() -> None:
    st.session_state.count = st.session_state.get("count", 0) + 1


def body(name: str) -> None:
    for part in range(10):
        time.sleep(0.1)
        st.caption(str(part))
    st.markdown(f"drawn: {name} with {st.session_state.get('count', 0)}")
    st.session_state.drawn = True


def first() -> None:
    body("first")


def second() -> None:
    body("second")


@contextlib.asynccontextmanager
async def lifespan(_):
    if os.environ["REPAIRED"] == "yes":
        streamlit_repairs.make()
    yield {}


if __name__ == "__main__":
    page = st.navigation([st.Page(first, default=True), st.Page(second)])
    st.session_state.drawn = False
    with st.sidebar:
        st.fragment(sidebar, run_every=3600, key="sidebar")()
    page.run()
else:
    app = st.App(__file__, lifespan=lifespan)
