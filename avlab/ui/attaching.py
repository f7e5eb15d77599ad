"""The form that begins to watch a vLLM server which somebody else started."""

import streamlit as st

from avlab.ui import host, shown
from avlab.ui.refusals import refusals
from avlab.ui.typed import Fields
from avlab.vllm.attach_config import AttachConfig


def form() -> None:
    """Address, what to watch there, how often, and where its key is."""
    busy = host.lab().supervisor.status().alive
    url = st.text_input(
        "Server", key="attach-url", placeholder="http://HOST:8000", help="Address of a `vllm serve`."
    )
    left, second, middle, right = st.columns(4)
    model = left.text_input("Model", key="attach-model", help="Needed only if the server serves several.")
    engine = second.text_input(
        "Engine", key="attach-engine", placeholder="all",
        help="Number of one engine, if several serve the model. The worker extension answers for engine 0.",
    )  # fmt: skip
    fields = Fields()
    interval = fields.number(
        middle, "Interval (s)", 0.2, 60.0, 1.0, key="attach-interval", help="Seconds between two readings."
    )
    verification = right.selectbox(
        "Verification", ("ask", "adaptive", "fixed"), key="attach-verification",
        help="A server tells this only in development mode (VLLM_SERVER_DEV_MODE=1).",
    )  # fmt: skip
    left, right = st.columns(2)
    key = left.text_input(
        "Key's variable",
        key="attach-key",
        help="Name of an environment variable of this dashboard that holds the API key; never the key itself.",
    )
    ca_file = right.text_input(
        "Certificates",
        key="attach-ca",
        help="A file of certificates to trust for https, beside the system's.",
    )
    st.caption(
        "Only /metrics is read; nothing on the server changes. The readings become a run on the Live page."
    )
    if st.button("Watch", type="primary", key="attach-start", icon=":material/visibility:", disabled=busy):
        values = {
            "url": url, "model": model or None, "engine": engine.strip() or None, "interval": interval,
            "verification": verification, "key_variable": key, "ca_file": ca_file or None,
        }  # fmt: skip
        with refusals():
            fields.check()
            shown.start(AttachConfig.make(values))
            st.switch_page("pages/live.py")
    if busy:
        st.caption("A worker is serving or watching: stop it in the sidebar first.")
