"""Part 4: noise that is used twice, exactly where it can be enumerated and by sampling where it cannot."""

import numpy as np
import streamlit as st

from avlab.figures import bias as figures
from avlab.speculation.auditing import fit
from avlab.teaching import noise
from avlab.ui import formats
from avlab.ui.bias import lesson
from avlab.ui.chart import chart

PLACES = 8
DUE, DRAFT = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.2, 0.6])
RACES, TEXTS, LENGTH = 200_000, 4000, 100
FAULTS = ("the draft's noise in the correction", "a trimmed position drawn again")
FORMULAS = r"""
Draws are races: token $x$ has noise $E_x \sim \mathrm{Exp}(1)$ and the smallest $E_x / q(x)$ wins, which happens with
probability $q(x)$. After a rejection the correction races again, with $r = (p-q)^+$ in place of $q$. With the *same*
$E$ the loser of the first race is known to have had large noise, so the second is no longer a draw from $r$.

The repair: each draw (draft, acceptance, correction, coin) has noise of its own, keyed by the request's seed, the
kind of draw and a counter that never repeats.
"""


def draw() -> None:
    """The part: two faults that were real, each beside fresh noise."""
    lesson.head(
        "4 · Noise used twice",
        "Choose a fault, then compare the same rule with fresh noise: nothing else differs.",
        "A rule that looks at nothing forbidden still bends the output, if the noise of one draw tells of another.",
    )
    fault = st.segmented_control(
        "Fault", FAULTS, default=FAULTS[0], key="fault", bind="query-params", label_visibility="collapsed"
    )
    options = ["it stays as due", "it comes out too often", "it comes out too rarely"]
    if fault == FAULTS[1]:
        why = "The estimate of the step before knows what will be drawn."
        asked = "A place that was trimmed is drawn again with the same noise. What happens to token a?"
        if lesson.revealed("redrawn", asked, options, options[1:2], why):
            _redrawn()
    else:
        why = "A likely token was refused, so its rivals' noise is known to be large."
        asked = (
            "The correction races with the noise that drew the refused draft token. What happens to token a?"
        )
        if lesson.revealed("correction", asked, options, options[1:2], why):
            _correction()
    lesson.formulas(FORMULAS)


@st.cache_data(show_spinner="Drawing …")
def _raced(seed: int) -> tuple[np.ndarray, np.ndarray]:
    fresh = noise.raced_outputs(DUE, DRAFT, RACES, seed, shared=False)
    return fresh, noise.raced_outputs(DUE, DRAFT, RACES, seed, shared=True)


def _correction() -> None:
    seed = st.number_input("Seed", 0, 10**6, 0, key="race-seed", bind="query-params")
    fresh, shared = _raced(int(seed))
    left, right = st.columns([3, 2])
    with left:
        chart(
            figures.outputs(
                ["a", "b", "c"], DUE,
                [("the draft's noise again", shared / RACES, False), ("fresh noise", fresh / RACES, True)],
            ),
            "race-bars", f"{RACES:,} draws of each",
            f"Target (0.6, 0.3, 0.1), draft (0.2, 0.2, 0.6), every draft verified. With shared noise a comes out at "
            f"{shared[0] / RACES:.4f}, with fresh noise at {fresh[0] / RACES:.4f}; 0.6 is due.",
        )  # fmt: skip
    with right:
        st.markdown("#### Where it was real")
        st.markdown(
            "vLLM until pull request **#54282**: draft and correction of a request shared one noise tensor. A public "
            "report measured 63.0 % where 60.0 % was due; another a chi-square of 1,585 against a limit of 70."
        )
        _test("fresh noise", fresh)
        _test("the draft's noise again", shared)


def _test(name: str, counts: np.ndarray) -> None:
    found = fit(counts, DUE)
    st.metric(f"G-test, {name}", "p < 1e-100" if found.p_value < 1e-100 else f"p = {found.p_value:.2g}")
    st.caption(
        f"Total variation {found.total_variation:.4f}; sampling alone shows {found.noise_floor:.4f} with so many draws."
    )


@st.cache_data(show_spinner="Enumerating eight steps …")
def _places() -> tuple[np.ndarray, np.ndarray]:
    return noise.shares_by_place(PLACES, again=False), noise.shares_by_place(PLACES, again=True)


@st.cache_data(show_spinner="Writing texts …")
def _long(seed: int) -> tuple[tuple[float, float], ...]:
    return tuple(noise.long_run(TEXTS, LENGTH, seed, again) for again in (False, True))


def _redrawn() -> None:
    fresh, again = _places()
    left, right = st.columns([3, 2])
    with left:
        chart(
            figures.by_place([("noise keyed by position", again, False), ("fresh noise", fresh, True)], 0.5),
            "places", "Share of a, place by place, exactly",
            "Target (½, ½); the drafter says a with 0.9 after a and with ½ after b; three draft positions. Three "
            "drafts "
            "are verified, or none, by the step before's largest probability at the last slot.",
        )  # fmt: skip
    with right:
        st.markdown("#### Where it was real")
        st.markdown(
            "vLLM **0.32** keyed draft noise by request seed and position in the text; **0.33** mixes the draft "
            "column in. "
            "Long runs settle near 0.5105 ± 0.0009 where ½ is due."
        )
        seed = st.number_input("Seed", 0, 10**6, 0, key="long-seed", bind="query-params")
        for name, (share, error) in zip(
            ("fresh noise", "noise keyed by position"), _long(int(seed)), strict=True
        ):
            st.metric(f"Long run, {name}", f"{share:.4f} ± {formats.number(error, 4)}")
        st.caption(
            f"{TEXTS:,} sampled texts of {LENGTH} tokens; the error is one standard error over texts. The "
            f"drawn-token rule "
            "one step late (part 3) even returns (0.4, 0.6)."
        )
