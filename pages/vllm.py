"""vLLM: will adaptive verification start there, and what does a running server do."""

import streamlit as st

from avlab.ui import attaching, preflight

QUESTION = "Will adaptive verification start on that deployment, and what does a running server do?"

st.markdown("## vLLM")
st.markdown(f"<p class='avlab-question'>{QUESTION}</p>", unsafe_allow_html=True)
st.markdown("#### Watch a running server")
attaching.form()
st.markdown("#### Before the weights are loaded")
preflight.form()
