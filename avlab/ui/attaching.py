"""The form that begins to watch a vLLM server which somebody else started."""

import streamlit as st

from avlab.ui import host, shown
from avlab.ui.refusals import refusals
from avlab.ui.typed import Fields
from avlab.vllm.attach_config import AttachConfig


def form() -> None:
    """Address, what to watch there, how often, and where its key is."""
    busy = host.lab().supervisor.status().alive
    url = st.text_input("Server", key="attach-url", placeholder="http://HOST:8000", help="Of `vllm serve`.")
    left, second, middle, right = st.columns(4)
    model = left.text_input("Model", key="attach-model", help="Only where the server serves several.")
    engine = second.text_input(
        "Engine", key="attach-engine", placeholder="all",
        help="One engine's number, where several serve the model; the worker extension answers for 0.",
    )  # fmt: skip
    fields = Fields()
    interval = fields.number(
        middle, "Interval (s)", 0.2, 60.0, 1.0, key="attach-interval", help="Between two readings."
    )
    verification = right.selectbox(
        "Verification", ("ask", "adaptive", "fixed"), key="attach-verification",
        help="The server says it in development mode only (VLLM_SERVER_DEV_MODE=1).",
    )  # fmt: skip
    left, right = st.columns(2)
    key = left.text_input(
        "Variable with the key",
        key="attach-key",
        help="An environment variable of this dashboard; never the key itself.",
    )
    ca_file = right.text_input(
        "Certificates", key="attach-ca", help="A file to trust for https, beside the system's."
    )
    st.caption("Nothing is changed there: /metrics is read, and recorded as a run that the Live page shows.")
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
