"""What the Sampling bias page says before it asks anything: the opening, its words, and the engine's rules by name."""

from collections.abc import Iterable

import streamlit as st

OPENING = (
    "A cheap model, the **drafter**, proposes tokens; the **target** verifies them. It keeps or replaces each one, so "
    "that the text is distributed exactly as if the target had generated it alone. Verifying costs time, so a rule "
    "**trims** drafts that would probably be rejected, and the target samples there itself. This page shows which "
    "rules keep the target's distribution, which bias it, and how many outputs it takes to notice."
)
WORDS = {
    "draft": "a token that the drafter proposes, sampled from its distribution q (draft_probs, the draft *row*); or "
    "several in sequence, one for each *position*.",
    "target": "the model whose distribution p must be kept.",
    "verify": "let the target judge a draft token: it is accepted with probability min(1, p/q). After a rejection a "
    "*recovered token* is sampled from the residual distribution (p − q)⁺ in its place.",
    "bonus token": "the target's own token after every verified draft token was accepted, sampled from p.",
    "trim": "leave a draft token unverified; the target then samples the next token from p.",
    "rule": "what decides which draft tokens are verified.",
    "rule of the row": "a rule that uses the draft row, which is known before the draw, and not the token that was "
    "drawn from it.",
    "sound": "a rule is sound if the output has the target's distribution for every p and q; otherwise it is UNSOUND.",
    "total variation (TV)": "the largest difference between two distributions in the probability of any event.",
    "auditor": "someone who sees only outputs, knows the target's distribution, and tests the fit.",
    "noise floor": "the total variation that a correct sampler shows by chance at this number of outputs.",
}
RULES = {
    "adaptive": "vLLM's rule: the budget follows from the estimates of the step before, the slots from this step's. "
    "Estimates come from an online regression on the draft row's maximum.",
    "adaptive:raw": "the same, with the draft row's maximum probability as the estimate.",
    "fixed": "always verify the first k draft positions.",
    "maximum": "verify up to the first draft token whose row has a maximum below the threshold.",
    "entropy": "the same with exp(−entropy) of the row.",
    "margin": "the same with the row's largest probability minus its second largest.",
    "budget:earlier": "the number of verified drafts follows from the maxima of the *step before*, under a cost at "
    "which one draft token costs as much as all of them.",
    "budget:same-step": "UNSOUND: the same from the maxima of *this* step, which depend on the tokens drawn before.",
    "drawn": "UNSOUND: the threshold applies to the probability of the drawn token.",
    "noise:correction": "UNSOUND: verify everything, but sample the recovered or bonus token with the uniform that "
    "drew the draft.",
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
