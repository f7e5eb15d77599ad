"""vLLM: what a running server does, whether adaptive verification will start, and a run that vLLM serves."""

import streamlit as st

from avlab.ui import attaching, preflight, vllm_serving

TITLE = "vLLM"
ICON = ":material/dns:"
ORDER = 90

QUESTION = "Will adaptive verification start on that deployment, and what does a running server do?"

st.markdown(f"## {TITLE}")
st.markdown(f"<p class='avlab-question'>{QUESTION}</p>", unsafe_allow_html=True)
st.markdown("#### Watch a running server")
attaching.form()
st.markdown("#### Check a deployment before loading weights")
line = preflight.form()
preflight.support()
st.markdown("#### Serve it with the lab")
vllm_serving.form(line)
