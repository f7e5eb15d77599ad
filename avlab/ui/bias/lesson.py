"""What every part shares: its head, its formulas, and a question that is answered before the bars are shown."""

import math
from collections.abc import Callable, Sequence

import streamlit as st

from avlab import formats

NONE = "none of them"  # a choice that stands alone


def head(title: str, try_this: str, shows: str) -> Callable[[], None]:
    """A part's title and its two `sentences`."""
    st.markdown(f"### {title}")
    return sentences(try_this, shows)


def sentences(try_this: str, shows: str) -> Callable[[], None]:
    """One sentence that says what to try, and a place for one that says what it shows.

    The second stands there at once without the quiz. With it, whoever asks calls what is returned once the reader has
    answered, for it gives the answer.
    """
    left, right = st.columns(2)
    left.markdown(f":blue-badge[Try this] {try_this}")
    place = right.empty()

    def say() -> None:
        place.markdown(f":green-badge[What it shows] {shows}")

    if not st.session_state.get("quiz"):
        say()
    return say


def formulas(text: str) -> None:
    """Formulas, closed until they are wanted."""
    with st.expander("Formulas", icon=":material/function:"):
        st.markdown(text)


def revealed(case: str, question: str, options: Sequence[str], right: Sequence[str] | None, why: str) -> bool:
    """Whether the results may be shown: at once without the quiz, else when the reader has answered.

    case: what the question is about; another case asks anew. right: the options that are true, None while nobody can
    know. why: the reason, or what is being waited for.
    """
    if not st.session_state.get("quiz"):
        return True
    key = f"answer-{case}"
    with st.container(border=True):
        if key not in st.session_state:
            chosen = st.pills(question, list(options), selection_mode="multi", key=f"pills-{case}")
            both = NONE in chosen and len(chosen) > 1
            st.button(
                "Reveal", icon=":material/visibility:", key=f"reveal-{case}", disabled=not chosen or both,
                on_click=st.session_state.__setitem__, args=(key, tuple(chosen)),
            )  # fmt: skip
            st.caption(
                f'"{NONE.capitalize()}" stands alone: untick it, or the others.'
                if both
                else "Tick all that hold, then reveal. The bars are hidden until you have said what you expect."
            )
            return False
        said = f"You said: {', '.join(st.session_state[key])}."
        if right is None:
            st.markdown(f"{said} {why}")
        else:
            verdict = "**Right.**" if set(st.session_state[key]) == set(right) else "**Not quite.**"
            st.markdown(f"{verdict} {said} It is: {', '.join(right)}. {why}")
        return True


def needs(outputs: float) -> str:
    """How many outputs an auditor needs, in words."""
    return "any number is too few" if math.isinf(outputs) else f"{formats.number(outputs, 0)} outputs"
