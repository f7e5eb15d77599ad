"""What the Sampling bias page says before it asks anything: the opening, its words, and the engine's rules by name."""

from collections.abc import Iterable

import streamlit as st

OPENING = (
    "A cheap model, the **drafter**, proposes tokens, and the **target** verifies them: it keeps each or replaces it, "
    "so that the text is distributed exactly as if the target had written alone. Verifying costs time, so a rule "
    "**trims**: it leaves those drafts out that would probably be refused, and there the target draws by itself. This "
    "page shows which rules keep the target's distribution, which bend it, and how many outputs it takes to notice."
)
WORDS = {
    "draft": "a token that the drafter proposes, drawn from its distribution q, the draft *row*; or several in a row, "
    "one for each *position*.",
    "target": "the model whose distribution p is to be kept.",
    "verify": "to have the target look at a draft token: it is kept with probability min(1, p/q), and otherwise "
    "refused, and a *correction* drawn in its place.",
    "trim": "not to verify a draft token; the target then draws the next token from p.",
    "rule": "what decides which draft tokens are verified.",
    "rule of the row": "a rule that looks at the draft row, which is known before the draw, and not at the token that "
    "was drawn from it.",
    "sound": "said of a rule under which the output has the target's distribution, whatever p and q are; otherwise it "
    "is UNSOUND.",
    "total variation (TV)": "how far two distributions are apart: the most by which the chance of any event differs.",
    "auditor": "somebody who sees only outputs, knows the target's distribution, and tests whether they fit.",
    "noise floor": "the total variation that a faithful sample shows by chance, having so few outputs.",
}
RULES = {
    "adaptive": "as vLLM does: the budget by the estimates of the step before, its places by this step's; the "
    "estimates are an online regression on the draft row's maximum.",
    "adaptive:raw": "the same with the draft row's maximum probability itself as the estimate.",
    "fixed": "the first so many draft positions are always verified.",
    "maximum": "draft tokens are verified up to the first whose row has its largest probability below the threshold.",
    "entropy": "the same with exp(−entropy) of the row.",
    "margin": "the same with the row's largest probability less its second largest.",
    "budget:earlier": "how many are verified follows from the maxima of the *step before*, under a cost at which one "
    "draft token is as dear as all.",
    "budget:same-step": "UNSOUND: the same from the maxima of *this* step, which know the tokens drawn before them.",
    "drawn": "UNSOUND: the threshold is on the probability of the token that was drawn.",
    "noise:correction": "UNSOUND: everything is verified, but the target's own token is drawn with the noise that drew "
    "the draft.",
}
SHARPNESS = "How unequal the probabilities of a row are: flat at 0.2, nearly one token at 5."


def opening() -> None:
    """Three sentences on what the page is about, and its words, closed until they are wanted."""
    st.markdown(OPENING)
    _legend("Words", ":material/menu_book:", WORDS)


def rules(offered: Iterable[str]) -> None:
    """What each of these rules of the engine does, closed until it is wanted."""
    _legend("What these rules do", ":material/rule:", {rule: sentence_of(rule) for rule in offered})


def sentence_of(rule: str) -> str:
    """What a rule does, by its name with or without a number behind it."""
    return RULES[rule if rule in RULES else rule.partition(":")[0]]


def _legend(title: str, icon: str, words: dict[str, str]) -> None:
    with st.expander(title, icon=icon):
        st.markdown("\n".join(f"- **{word}**: {sentence}" for word, sentence in words.items()))
