"""Part 1: two tokens, the paths between them, and draws that converge on the exact bar."""

import numpy as np
import streamlit as st

from avlab.bias.cases import Bias, bias, pair_of, paths
from avlab.bias.grammar import CaseError, parse_rule
from avlab.bias.sampled import sample_outputs
from avlab.escaping import in_markdown
from avlab.figures import bias as figures
from avlab.ui.bias import lesson
from avlab.ui.chart import chart

NAMES = ("a", "b")
AT_ONCE = {"one by one": 1, "a thousand at a time": 1000}
TICK_SECONDS = 0.7
MOST_DRAWS = 500_000
FORMULAS = r"""
A draft token $x$ is drawn from $q$. If it is verified, it is kept with probability $\min(1, p(x)/q(x))$; otherwise the
target samples a recovered token from $(p-q)^+ / \sum_y (p(y)-q(y))^+$. If it is not verified, the target
samples from $p$.

With $v(x)$ the chance that draft $x$ is verified, the output is

$$o(y) = v(y)\,\min(p(y), q(y)) + \Big[\sum_x v(x)\,(q(x)-p(x))^+\Big] r(y) + \Big[1-\sum_x v(x)\,q(x)\Big] p(y),
\qquad r = \tfrac{(p-q)^+}{\sum (p-q)^+}$$

If $v$ is one number for all $x$, the first two terms add up to $v\,p(y)$ and the whole to $p(y)$. If $v$ depends on the
drawn token, nothing makes them add up.
"""


def draw() -> None:
    """The part: sliders, exact bars under both rules, the tree of paths, and draws."""
    show = lesson.head(
        "1 · Two tokens",
        "Move the threshold past the draft's probabilities and compare the red bars with the grey ones. Then turn on "
        "the greedy draft.",
        "A rule that uses the drawn token's probability can bias the output. One that uses the row's maximum, which is "
        "known before the draw, never does.",
    )
    columns = st.columns(4)
    p = columns[0].slider("Target: P(a)", 0.0, 1.0, 0.5, 0.01, key="p", bind="query-params")
    greedy = columns[3].toggle(
        "Greedy draft", key="greedy", bind="query-params", help="q is 1 on its likelier token."
    )
    q = columns[1].slider("Draft: P(a)", 0.0, 1.0, 0.2, 0.01, key="q", bind="query-params", disabled=greedy)
    t = columns[2].slider("Threshold t", 0.0, 1.0, 0.5, 0.01, key="t", bind="query-params")
    if greedy:
        q = 1.0 if q >= 0.5 else 0.0
    target, draft = np.array([p, 1 - p]), np.array([q, 1 - q])
    try:
        drawn, maximum = (bias(target, draft, parse_rule(f"{kind}:{t:g}")) for kind in ("drawn", "maximum"))
    except CaseError as error:
        st.error(in_markdown(error))
        return
    options = ["a comes out as often as due", "a comes out too rarely", "a comes out too often"]
    change = drawn.output[0] - p
    right = options[0] if abs(change) < 1e-9 else options[1 if change < 0 else 2]
    asked = f"A draft token is verified only if its own q is {t:g} or more. With target ({p:g}, {1 - p:g}) and draft " \
        f"({q:g}, {1 - q:g}):"  # fmt: skip
    if not lesson.revealed(f"two-{p}-{q}-{t}", asked, options, [right], _why(drawn)):
        return
    show()
    _outcome(target, draft, t, drawn, maximum, _why(drawn))
    st.markdown("#### Draws that converge")
    _draws(target, draft, t, drawn, maximum)
    lesson.formulas(FORMULAS)


def _outcome(target: np.ndarray, draft: np.ndarray, t: float, drawn: Bias, maximum: Bias, why: str) -> None:
    """The bars under both rules, and the tree of the one that is chosen."""
    left, right = st.columns([2, 3])
    with left:
        chart(
            figures.outputs(
                NAMES, target, [("drawn token's q", drawn.output, False), ("maximum of q", maximum.output, True)]
            ),
            "two-bars", "What comes out, exactly", why,
        )  # fmt: skip
    with right:
        kind = st.segmented_control(
            "Tree of",
            ["drawn token's q", "maximum of q"],
            default="drawn token's q",
            key="tree",
            bind="query-params",
        )
        named = parse_rule(f"{'maximum' if kind == 'maximum of q' else 'drawn'}:{t:g}")
        found = paths(target, draft, named)
        chart(
            figures.tree(found, NAMES), "two-tree", "Where the probability goes",
            "From left to right: what is drafted, whether it is verified and kept, what comes out. " + _sums(found),
        )  # fmt: skip


def _why(drawn: Bias) -> str:
    p, o = drawn.target[0], drawn.output[0]
    if drawn.draft.max() == 1:
        return (
            "A greedy draft can only be one token, so its probability, 1, is known before the draw: here the "
            "drawn-token rule is a rule of the row, and sound."
        )
    if drawn.target.max() == 1:
        return (
            "The target is certain here: only its one token can come out, whether accepted, recovered or sampled by "
            "the target itself. No rule can change that."
        )
    if abs(o - p) < 1e-9:
        return "With these numbers both rules verify the same drafts, or none: the output is the target's."
    return (
        f"Under the drawn-token rule a comes out at {o:.4g} instead of {p:.4g}; an auditor would need "
        f"{lesson.needs(drawn.sample_size)} to notice (1 % level, power 90 %). Under the maximum it stays at {p:.4g}."
    )


def _sums(found) -> str:
    parts = []
    for token, name in enumerate(NAMES):
        chances = [f"{path.chance:.4g}" for path in found if path.output == token]
        total = sum(path.chance for path in found if path.output == token)
        parts.append(f"{name} = {' + '.join(chances) or '0'} = {total:.4g}")
    return "; ".join(parts) + "."


def _draws(target: np.ndarray, draft: np.ndarray, t: float, drawn: Bias, maximum: Bias) -> None:
    case = (*target, *draft, t)
    if st.session_state.get("draws-case") != case:
        st.session_state["draws-case"] = case
        st.session_state["draws"] = {"n": [], "drawn": [], "maximum": []}
    left, middle, right = st.columns([2, 1, 1], vertical_alignment="bottom")
    pace = left.segmented_control(
        "Draw", list(AT_ONCE), default="a thousand at a time", key="pace", bind="query-params"
    )
    running = middle.toggle("Keep drawing", key="drawing")
    if right.button("Begin again", icon=":material/restart_alt:", width="stretch"):
        st.session_state["draws"] = {"n": [], "drawn": [], "maximum": []}

    def tick() -> None:
        clicked = st.button("Draw", key="draw-once", icon=":material/casino:", disabled=running)
        kept = st.session_state["draws"]
        if (clicked or running) and (not kept["n"] or kept["n"][-1] < MOST_DRAWS):
            _more(kept, target, draft, t, AT_ONCE[pace or "one by one"])
        chart(
            figures.convergence(
                [
                    ("drawn token's q", kept["n"], kept["drawn"], float(drawn.output[0]), False),
                    ("maximum of q", kept["n"], kept["maximum"], float(maximum.output[0]), True),
                ],
                float(target[0]), "a",
            ),
            "two-draws", f"After {kept['n'][-1] if kept['n'] else 0:,} draws",
            "Every draw samples a draft token, decides, accepts or rejects, and samples a recovered token where "
            "needed, with fresh noise. A few draws cannot tell the rules apart; many can.",
        )  # fmt: skip

    st.fragment(tick, run_every=TICK_SECONDS if running else None)()


def _more(kept: dict[str, list[int]], target: np.ndarray, draft: np.ndarray, t: float, count: int) -> None:
    random = st.session_state.setdefault("draws-random", np.random.default_rng())
    kept["n"].append((kept["n"][-1] if kept["n"] else 0) + count)
    for kind in ("drawn", "maximum"):
        rule = parse_rule(f"{kind}:{t:g}").make(target)
        came = sample_outputs(pair_of(target, draft), rule, count, random, memory=1)[0]
        kept[kind].append((kept[kind][-1] if kept[kind] else 0) + int(came))
