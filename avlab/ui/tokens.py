"""A generation of the playground: its text coloured by what happened to each token, and every step's slots."""

from collections.abc import Sequence

import msgspec
import streamlit as st

from avlab.ui.tokens_script import CSS, JS
from avlab.wire.frames import Tokens

_component = st.components.v2.component("avlab_tokens", css=CSS, js=JS, isolate_styles=False)


def tokens(steps: Sequence[Tokens], key: str) -> None:
    """Draw steps; more may follow under the same key. Another key begins anew."""
    st.caption(
        "The newest step stands on top. Point at a slot, or reach it with Tab and the arrow keys, to see the likeliest "
        "tokens of the drafter's distribution q and the target's p."
    )
    _component(key=key, data={"key": key, "steps": [msgspec.to_builtins(step) for step in steps]})
