"""What every part shares: its head, its formulas, and a question that is answered before the bars are shown."""

import math
from collections.abc import Sequence

import streamlit as st

from avlab.ui import formats


def head(title: str, try_this: str, shows: str) -> None:
    """A part's title, one sentence that says what to try and one that says what it shows."""
    st.markdown(f"### {title}")
    left, right = st.columns(2)
    left.markdown(f":blue-badge[Try this] {try_this}")
    right.markdown(f":green-badge[What it shows] {shows}")


def formulas(text: str) -> None:
    """Formulas, closed until they are wanted."""
    with st.expander("Formulas", icon=":material/function:"):
        st.markdown(text)


def revealed(case: str, question: str, options: Sequence[str], right: Sequence[str], why: str) -> bool:
    """Whether the results may be shown: at once without the quiz, else when the reader has answered.

    case: what the question is about; another case asks anew. right: the options that are true.
    """
    if not st.session_state.get("quiz"):
        return True
    key = f"answer-{case}"
    with st.container(border=True):
        if key not in st.session_state:
            chosen = st.pills(question, list(options), selection_mode="multi", key=f"pills-{case}")
            st.button(
                "Reveal", icon=":material/visibility:", key=f"reveal-{case}", disabled=not chosen,
                on_click=st.session_state.__setitem__, args=(key, tuple(chosen)),
            )  # fmt: skip
            st.caption(
                "Tick all that hold, then reveal. The bars are hidden until you have said what you expect."
            )
            return False
        chosen = st.session_state[key]
        verdict = "**Right.**" if set(chosen) == set(right) else "**Not quite.**"
        st.markdown(f"{verdict} You said: {', '.join(chosen)}. It is: {', '.join(right)}. {why}")
        return True


def needs(outputs: float) -> str:
    """How many outputs an auditor needs, in words."""
    return "any number is too few" if math.isinf(outputs) else f"{formats.number(outputs, 0)} outputs"
