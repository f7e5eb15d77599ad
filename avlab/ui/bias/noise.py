"""Part 4: noise that is used twice, exactly where it can be enumerated and by sampling where it cannot."""

import numpy as np
import streamlit as st

from avlab import formats
from avlab.bias import reused_noise
from avlab.bias.first_token import first_token_by_shared_race
from avlab.bias.goodness_of_fit import fit
from avlab.figures import bias as figures
from avlab.ui.bias import lesson
from avlab.ui.chart import chart

PLACES = 20
DUE, DRAFT = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.2, 0.6])
RACES, TEXTS, LENGTH = 200_000, 4000, 100
FAULTS = ("the draft's noise in the correction", "a trimmed position drawn again")
FORMULAS = r"""
Draws are races: token $x$ has noise $E_x \sim \mathrm{Exp}(1)$ and the smallest $E_x / q(x)$ wins, which happens with
probability $q(x)$, at a value $m \sim \mathrm{Exp}(1)$. After a rejection the recovered token is raced again, with
$r = (p-q)^+$ in place of $q$. With the *same* $E$ every rival of the refused token is known to have noise
$E_y = q_y m + \mathrm{Exp}(1)$: in the second race it starts $a_y m$ late, $a_y = q_y / r_y$, and finishes at rate
$r_y$. So it wins with chance

$$r_y \int_{a_y}^{\infty} \frac{du}{\big(1 + \sum_{z: a_z < u} r_z (u - a_z)\big)^2}$$

instead of $r_y / \sum_z r_z$, whichever token was refused; between two starts the integral has a closed form. With
draws by inverse transform in place of races, the same fault is the scene *noise in the correction* of part 3, exact as
well.

The fix: each draw (draft, acceptance, recovered or bonus token, coin) has noise of its own, keyed by the request's
seed, the kind of draw and a counter that never repeats.
"""


def draw() -> None:
    """The part: two faults that were real, each beside fresh noise."""
    show = lesson.head(
        "4 · Noise used twice",
        "Choose a fault, then compare the same rule with fresh noise: nothing else differs.",
        "A rule that uses only the past can still bias the output, if two draws share noise.",
    )
    fault = st.segmented_control(
        "Fault", FAULTS, default=FAULTS[0], key="fault", bind="query-params", label_visibility="collapsed"
    )
    options = ["it stays as due", "it comes out too often", "it comes out too rarely"]
    if fault == FAULTS[1]:
        why = (
            "The estimate of the step before was made from the same noise, so it depends on the coming draw."
        )
        asked = "A place that was trimmed is drawn again with the same noise. What happens to token a?"
        if lesson.revealed("redrawn", asked, options, options[1:2], why):
            show()
            _redrawn()
    else:
        why = (
            "The rejected token won the first race, so every other token's noise E/q is larger than the winner's. That "
            "delay is smallest for tokens with a large residual relative to q, so they win too often."
        )
        asked = "The recovered token is raced with the rejected draft token's noise. What happens to token a?"
        if lesson.revealed("correction", asked, options, options[1:2], why):
            show()
            _correction()
    lesson.formulas(FORMULAS)


@st.cache_data(show_spinner="Drawing …")
def _raced(seed: int) -> tuple[np.ndarray, np.ndarray]:
    fresh = reused_noise.raced_outputs(DUE, DRAFT, RACES, seed, shared=False)
    return fresh, reused_noise.raced_outputs(DUE, DRAFT, RACES, seed, shared=True)


def _correction() -> None:
    seed = st.number_input("Seed", 0, 10**6, 0, key="race-seed", bind="query-params")
    fresh, shared = _raced(int(seed))
    exact = first_token_by_shared_race(DUE, DRAFT)
    left, right = st.columns([3, 2])
    with left:
        chart(
            figures.outputs(
                ["a", "b", "c"], DUE,
                [
                    ("the draft's noise again, exactly", exact, False),
                    ("the draft's noise again, drawn", shared / RACES, False),
                    ("fresh noise, drawn", fresh / RACES, True),
                ],
            ),
            "race-bars", f"Exactly, and {RACES:,} draws of each",
            f"Target (0.6, 0.3, 0.1), draft (0.2, 0.2, 0.6), every draft verified. With shared noise a comes out at "
            f"{exact[0]:.4g} exactly and at {shared[0] / RACES:.4f} in these draws, with fresh noise at "
            f"{fresh[0] / RACES:.4f}; {DUE[0]:g} is due. The scene *noise in the correction* of part 3 is the same "
            "fault where draws are by inverse transform.",
        )  # fmt: skip
    with right:
        st.markdown("#### Where it was real")
        st.markdown(
            "vLLM until pull request **#54282**: a request's draft and recovered token shared one noise tensor. A "
            "public report measured 63.0 % instead of 60.0 %; another a chi-square of 1,585 against a limit of 70."
        )
        _test("fresh noise", fresh)
        _test("the draft's noise again", shared)


def _test(name: str, counts: np.ndarray) -> None:
    found = fit(counts, DUE)
    st.metric(f"G-test, {name}", "p < 1e-100" if found.p_value < 1e-100 else f"p = {found.p_value:.2g}")
    st.caption(
        f"Total variation {found.total_variation:.4f}; sampling alone shows {found.noise_floor:.4f} with so many draws."
    )


@st.cache_data(show_spinner="Enumerating every draw …")
def _places() -> tuple[np.ndarray, np.ndarray, float]:
    fresh, again = (reused_noise.shares_by_place(PLACES, again) for again in (False, True))
    return fresh, again, reused_noise.settled_share()


@st.cache_data(show_spinner="Writing texts …")
def _long(seed: int) -> tuple[tuple[float, float], ...]:
    return tuple(reused_noise.long_run(TEXTS, LENGTH, seed, again) for again in (False, True))


def _redrawn() -> None:
    fresh, again, settles = _places()
    left, right = st.columns([3, 2])
    with left:
        chart(
            figures.by_place(
                [("noise keyed by position", again, False), ("fresh noise", fresh, True)], 0.5, settles
            ),
            "places", "Share of a at each place of the text, exactly",
            "Target (½, ½); the drafter gives a 0.9 after a and ½ after b; three draft positions. All three drafts are "
            "verified, or none, by the maximum at the last slot of the step before. The bias first overshoots, to "
            f"{again.max():.4f} at place {again.argmax() + 1}, and settles at {settles:.4f} (dotted).",
        )  # fmt: skip
    with right:
        st.markdown("#### Where it was real")
        st.markdown(
            "vLLM **0.32** keyed draft noise by request seed and position in the text; **0.33** mixes the draft "
            f"column in. Here long texts settle at {settles:.4f} instead of ½."
        )
        seed = st.number_input("Seed", 0, 10**6, 0, key="long-seed", bind="query-params")
        for name, (share, error) in zip(
            ("fresh noise", "noise keyed by position"), _long(int(seed)), strict=True
        ):
            st.metric(f"Long run, {name}", f"{share:.4f} ± {formats.number(error, 4)}")
        st.caption(
            f"{TEXTS:,} sampled texts of {LENGTH} tokens, without the first {reused_noise.SETTLED}; ± one standard "
            "error over texts. The drawn-token rule one step late (part 3) even gives (0.4, 0.6)."
        )
