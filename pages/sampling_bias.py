"""Sampling bias: why a better predictor can break sampling, exactly, by sampling, and on the running engine."""

import streamlit as st

from avlab.ui.bias import any_rows, audit, noise, scenes, texts, two_tokens, words

TITLE = "Sampling bias"
ICON = ":material/balance:"
ORDER = 80

PARTS = {
    "1 Two tokens": two_tokens.draw,
    "2 Any distributions": any_rows.draw,
    "3 Positions and steps": scenes.draw,
    "4 Noise": noise.draw,
    "5 The engine": audit.draw,
    "6 Texts": texts.draw,
}

st.markdown(f"## {TITLE}")
st.markdown(
    "<p class='avlab-question'>Why can a better predictor of acceptance bias sampling, and how many outputs does it "
    "take to notice?</p>",
    unsafe_allow_html=True,
)
words.opening()
left, right = st.columns([5, 1], vertical_alignment="center")
part = left.segmented_control(
    "Part",
    list(PARTS),
    default=next(iter(PARTS)),
    key="part",
    bind="query-params",
    label_visibility="collapsed",
)
right.toggle("Quiz", key="quiz", bind="query-params", help="Say what you expect before the bars are shown.")
PARTS[part or next(iter(PARTS))]()
