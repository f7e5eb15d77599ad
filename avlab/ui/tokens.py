"""A generation of the playground: its text coloured by what happened to each token, and every step's slots."""

from collections.abc import Sequence

import msgspec
import streamlit as st

from avlab import sample_answer
from avlab.escaping import in_markdown
from avlab.figures import palette
from avlab.ui.browser import read
from avlab.wire.frames import Tokens

COLOURS = {
    "accepted": palette.ACCEPTED,
    "rejected": palette.REJECTED,
    "bonus": palette.BONUS,
    "plain": palette.SCHEDULED,
    "target": palette.ADMITTED,
}  # names of tokens.js and tokens.css
_component = st.components.v2.component(
    "avlab_tokens", css=read("tokens.css"), js=read("tokens.js"), isolate_styles=False
)


def tokens(steps: Sequence[Tokens], key: str) -> None:
    """Draw steps; more may follow under the same key. Another key begins anew."""
    st.caption(
        "Steps follow downwards. The drafter proposes a row of slots; the target verifies those that are not trimmed "
        "in parallel, in one pass, whose time stands beside it. Point at a slot, or reach it with Tab and the arrow "
        "keys, to see the likeliest tokens of the drafter's distribution q and the target's p."
    )
    data = {"key": key, "colours": COLOURS, "steps": [msgspec.to_builtins(step) for step in steps]}
    _component(key=key, data=data)


def shipped_answer() -> None:
    """Draw the recorded answer that ships."""
    answer = sample_answer.shipped()
    st.markdown("#### A recorded answer")
    st.caption(
        f"Ships with avlab: served by its own engine on a CPU under {answer.arm}, temperature {answer.temperature:g}, "
        f"top-p {answer.top_p:g}."
    )
    st.markdown(f"**Prompt:** {in_markdown(answer.prompt)}")
    tokens(answer.steps, "shipped-answer")
