"""Part 2: any target and draft row of up to eight tokens, under every rule."""

import numpy as np
import streamlit as st

from avlab.bias.cases import LARGEST, Bias, bias, check_pair, parse_distribution, random_rows, typed
from avlab.bias.grammar import KINDS, CaseError, parse_rule
from avlab.bias.process import RowsProcess
from avlab.bias.real_rows import Rows, recorded
from avlab.bias.scenes import LETTERS
from avlab.escaping import in_markdown
from avlab.figures import bias as figures
from avlab.ui.bias import asked, lesson, words
from avlab.ui.chart import chart

PART, OWN = "rows", "a prompt of your own …"
RANDOM = "random, without looking"
SOURCES = ("typed", "random", "rows of the real model")
THRESHOLDS = np.linspace(0, 1, 51)
FORMULAS = r"""
Scores of a draft row $q$: the drawn token's $q(x)$; $\max_y q(y)$; $e^{-H(q)}$ with $H$ the entropy; $q_{(1)} -
q_{(2)}$; a perfect head that knows the token, $\min(1, p(x)/q(x))$; a perfect head that knows only the prefix,
$\sum_y \min(p(y), q(y))$. By threshold a slot is verified if its score is $t$ or more; by chance, with its score as
probability; at random, with probability $t$.

Total variation is $\tfrac12 \sum_y |o(y) - p(y)|$, the most by which the chance of any event differs. An auditor who
tests $n$ outputs by chi-square sees a noncentral $\chi^2$ with noncentrality $n \sum_y (o(y)-p(y))^2 / p(y)$ and $V-1$
degrees of freedom; the number given is the smallest $n$ that rejects at the 1 % level with probability 90 %.
"""


class Waiting(Exception):
    """The rows are not there yet; the page has said why."""


def draw() -> None:
    """The part: rows from where the reader wants them, a table of rules, and how bias grows with the threshold."""
    show = lesson.head(
        "2 · Any distributions",
        "Find rows for which the perfect head that knows the drawn token causes most bias, and see how many outputs it "
        "takes to notice a small bias.",
        "Every rule that uses the drawn token can bias the output, even a perfect predictor. Every rule of the row "
        "stays at zero.",
    )
    source = st.segmented_control(
        "Rows", SOURCES, default=SOURCES[0], key="rows", bind="query-params", label_visibility="collapsed"
    )
    try:
        target, draft, names = _rows(source or SOURCES[0])
        check_pair(target, draft)
    except CaseError as error:
        way_out = " Or switch *Normalise* on." if error.way_out == "normalise" else ""
        st.error(f"{in_markdown(error)}{way_out}")
        return
    except Waiting:
        return
    left, right = st.columns([2, 3])
    way = left.segmented_control(
        "Trimming", ["by threshold", "by chance"], default="by threshold", key="way", bind="query-params",
        help="By chance: the score itself is the probability of being verified.",
    )  # fmt: skip
    cut = right.slider(
        "Threshold t", 0.0, 1.0, 0.5, 0.01, key="cut", bind="query-params", disabled=way == "by chance"
    )
    ending = "chance" if way == "by chance" else f"{cut:g}"
    rules = {kind.name: parse_rule(f"{name}:{ending}") for name, kind in KINDS.items()}
    rules[RANDOM] = parse_rule(f"random:{cut:g}")
    found = {name: bias(target, draft, rule) for name, rule in rules.items()}
    bend = [name for name, each in found.items() if each.total_variation > 1e-9] or [lesson.NONE]
    case = f"any-{typed(target)}-{typed(draft)}-{ending}"
    options = [*rules, lesson.NONE]
    why = "Rules of the row never do. A rule that uses the drawn token may decide the same for every token here."
    if not lesson.revealed(case, "Which rules bend the output here?", options, bend, why):
        return
    show()
    _outputs(target, draft, names, found)
    _table(target, names, found)
    if way != "by chance":
        _over_thresholds(target, draft, cut)
    lesson.formulas(FORMULAS)


def _outputs(target: np.ndarray, draft: np.ndarray, names: list[str], found: dict[str, Bias]) -> None:
    """What comes out under the worst rule and under those of the row, beside the rows themselves."""
    worst = max(
        (name for name in found if not found[name].sound), key=lambda name: found[name].total_variation
    )
    bends = found[worst].total_variation > 1e-9
    left, right = st.columns(2)
    with left:
        chart(
            figures.outputs(
                names, target,
                [
                    (worst, found[worst].output, False),
                    ("every rule of the row", found["maximum probability"].output, True),
                ],
            ),
            "any-bars", "What comes out, exactly",
            "Grey is what is due. "
            + (f"Red is the rule that bends most here: {worst}." if bends else "No rule bends it here."),
        )  # fmt: skip
    with right:
        chart(
            figures.rows(names, target, draft),
            "any-rows", "The rows", "The acceptance probability is the mass that both bars share.",
        )  # fmt: skip


def _over_thresholds(target: np.ndarray, draft: np.ndarray, cut: float) -> None:
    """How bias grows with the threshold, rule by rule; cut: the chosen one."""
    curves: dict[str, tuple[np.ndarray, bool]] = {
        kind.name: (_curve(target, draft, name), kind.sound) for name, kind in KINDS.items() if not kind.sound
    }
    curves["every rule of the row"] = (_curve(target, draft, "maximum"), True)
    chart(
        figures.over_thresholds(THRESHOLDS, curves, cut), "any-curves", "The same for every threshold",
        "At 0 everything is verified and nothing is biased. Above 0 the red lines show the bias of each threshold.",
    )  # fmt: skip


def _rows(source: str) -> tuple[np.ndarray, np.ndarray, list[str]]:
    if source == SOURCES[1]:
        columns = st.columns(3)
        V = columns[0].slider("Tokens", 2, LARGEST, 4, key="V", bind="query-params")
        sharp = columns[1].slider(
            "Sharpness", 0.2, 5.0, 1.0, 0.1, key="sharp", bind="query-params", help=words.SHARPNESS
        )
        seed = columns[2].number_input("Seed", 0, 10**6, 0, key="seed", bind="query-params")
        target, draft = random_rows(V, sharp, int(seed))
        return target, draft, list(LETTERS[:V])
    if source == SOURCES[2]:
        rows = _real_rows()
        st.caption(
            "The default target's next-token distribution and the shipped drafter's first draft row, at "
            "temperature 1: the "
            "seven tokens that matter most, and all others taken together."
        )
        return rows.target, rows.draft, rows.names
    left, right, third = st.columns([3, 3, 1.4], vertical_alignment="bottom")
    scale = third.toggle("Normalise", key="normalise", bind="query-params")
    given = left.text_input("Target", "0.5, 0.3, 0.2", key="target", bind="query-params")
    target = parse_distribution(given or "", "target", scale)
    given = right.text_input("Draft", "0.2, 0.7, 0.1", key="draft", bind="query-params")
    draft = parse_distribution(given or "", "draft", scale)
    if max(len(target), len(draft)) > LARGEST:
        raise CaseError(f"This page draws up to {LARGEST} tokens: give fewer, or use `avlab bias exact`.")
    return target, draft, list(LETTERS[: len(target)])


def _real_rows() -> Rows:
    """Rows at a recorded prompt, or at the reader's own once the model has been asked for them."""
    known = recorded()
    prompt = st.selectbox("At the end of this prompt", [*known, OWN], key="prompt", bind="query-params")
    if prompt != OWN:
        return known[prompt or next(iter(known))]
    own = st.text_input("Your prompt", "Say hello in French.", key="own-prompt", bind="query-params") or ""
    asked.buttons(
        PART, "Ask the model", ":material/neurology:", lambda: RowsProcess(own), bool(own.strip()),
        "A worker process loads the model, computes both rows at the end of the prompt, and ends.",
    )  # fmt: skip
    asked.rows(PART, lambda rows: None)
    newest = asked.newest(PART)
    found = newest.process.rows.get((own,)) if newest else None
    if found is None:
        raise Waiting
    return Rows.of(found)


def _row(
    rule: str, by: str, output: np.ndarray, names: list[str], variation: str, needs: str, verdict: str
) -> dict[str, str]:
    """A row of the table; a column for each token's probability."""
    shares = {f"P({name})": f"{value:.4f}" for name, value in zip(names, output, strict=True)}
    first = {
        "rule": rule,
        "verdict": verdict,
        "total variation": variation,
        "an auditor needs": needs,
    }
    return first | shares | {"decides by": by}


def _curve(target: np.ndarray, draft: np.ndarray, kind: str) -> np.ndarray:
    return np.array([bias(target, draft, parse_rule(f"{kind}:{t:g}")).total_variation for t in THRESHOLDS])


def _table(target: np.ndarray, names: list[str], found: dict[str, Bias]) -> None:
    """What each rule looks at, what comes out under it and what an auditor makes of it, below what is due."""
    scores = {kind.name: kind.sentence for kind in KINDS.values()} | {RANDOM: "a coin with probability t"}
    rows = [_row("due", "", target, names, "", "", "")]
    for name, each in found.items():
        bends = each.total_variation > 1e-9
        rows.append(
            _row(
                name, scores[name], each.output, names, f"{each.total_variation:.4f}" if bends else "0",
                lesson.needs(each.sample_size), "sound" if each.sound else "UNSOUND" if bends else "harmless here",
            )
        )  # fmt: skip
    st.markdown("#### Every rule")
    st.dataframe(rows, hide_index=True, width="stretch")
    st.caption(
        "An auditor needs: independent outputs until a chi-square test rejects, at the 1 % level with power 90 %. A "
        "server generates thousands of tokens a second, so even a small bias is soon noticeable."
    )
