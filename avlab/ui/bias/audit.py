"""Part 5: an audit of the real engine's step, in a process of its own."""

from typing import Any

import streamlit as st

from avlab import formats
from avlab.bias.process import PROMPT, PUBLISHED_AUC, PUBLISHED_IN, SOUND_RULES, UNSOUND_RULES, AuditProcess
from avlab.figures import bias as figures
from avlab.ui.bias import asked, lesson, words
from avlab.ui.chart import chart

PART = "audit"
FORMULAS = r"""
$G = 2 \sum_i O_i \ln (O_i / E_i)$ over cells of first tokens, and over cells of the first two tokens. Cells expected
fewer than five times are pooled, at most 200 remain; $G$ is divided by Williams' factor
$1 + (\sum_i 1/p_i - 1) / (6 n (C - 1))$ and compared with $\chi^2$ of $C - 1$ degrees of freedom. Rejected: the smaller
p-value, times the number of all tests of this audit, is below 0.01 at the end. Only the last p-value counts:
stopping as soon as one is small is no valid test.

The noise floor is the mean total variation between a correct sample and its own distribution,
$\tfrac12 \sum_i \sqrt{2 p_i (1 - p_i) / (\pi n)}$.

Exact total variation, of the first token for one request: every token that the drafter knows is drafted, the rule says
whether it is verified, and accepted, recovered and directly sampled tokens add up in closed form, as in part 1.

AUC: the chance that a score is higher on an accepted draft token than on a rejected one, over the first drafts of
continuations whose drafts are all verified, so that no score chooses what it is judged on. Behind one prompt all first
drafts come from one row; sixteen prompts give rows that can be ranked. At one position the online estimator rises with
the maximum probability, so it has the same AUC.
"""
SCORES = {
    "drawn": "probability of the drawn token (UNSOUND)", "head": "confidence head", "margin": "top-two margin",
    "maximum": "maximum probability", "entropy": "entropy",
}  # fmt: skip


def draw() -> None:
    """The part: choose rules and a prompt, watch p-values and total variation, read the verdicts."""
    show = lesson.head(
        "5 · On the real engine",
        "Audit a sound and an unsound rule side by side, and watch how many continuations tell them apart.",
        "The engine's own step samples from the target under every rule it can serve with. The UNSOUND rules, which "
        "exist only in this audit, do not.",
    )
    left, middle, right = st.columns([4, 3, 2], vertical_alignment="bottom")
    options = [*SOUND_RULES, *UNSOUND_RULES]
    rules = left.multiselect(
        "Rules", options, default=["adaptive", "drawn:0.2"], key="audit-rules", bind="query-params",
        format_func=_label,
    )  # fmt: skip
    prompt = middle.text_input("Prompt", PROMPT, key="audit-prompt", bind="query-params") or ""
    count = right.select_slider(
        "Continuations", [2_000, 5_000, 10_000, 20_000, 50_000, 100_000], 10_000, key="audit-count",
        bind="query-params",
    )  # fmt: skip
    asked.buttons(
        PART, "Audit", ":material/fact_check:", lambda: AuditProcess(list(rules), [0], count, prompt),
        bool(rules and prompt.strip()),
        "float32, temperature 1, two draft positions; a worker process loads the model for it.",
        {"rules": list(map(_label, rules)), "prompt": f"“{prompt}”", "continuations": count},
    )  # fmt: skip
    newest = asked.newest(PART)
    if newest is not None and isinstance(newest.process, AuditProcess) and lesson.revealed(
        f"audit-{newest.order}", "Which of these rules will the audit reject with this many continuations?",
        [*newest.process.rules, lesson.NONE], *_verdict(newest.process),
    ):  # fmt: skip
        show()
        asked.rows(PART, _show)
    words.rules(options)
    lesson.formulas(FORMULAS)


def _verdict(process: AuditProcess) -> tuple[list[str] | None, str]:
    """The rules that the audit rejects, for the quiz, and what there is to say of it; None before all are audited."""
    audited = [row for row in process.rows.values() if row["done"]]
    if len(audited) < len(process.rules):
        return None, "There is a verdict when every rule has had all its continuations."
    rejected = [row["rule"] for row in audited if row["rejected"]]
    missed = [row["rule"] for row in audited if not row["sound"] and not row["rejected"]]
    why = f"More continuations are needed to notice {', '.join(missed)}." if missed else ""
    return rejected or [lesson.NONE], why


def _label(rule: str) -> str:
    return f"UNSOUND {rule}" if rule in UNSOUND_RULES else rule


def _show(rows: list[dict[str, Any]]) -> None:
    tests = rows[0]["tests"]
    left, right = st.columns(2)
    with left:
        chart(
            figures.p_values([(r["label"], r["history"], r["sound"]) for r in rows], tests), "audit-p",
            "p-value, corrected",
            f"The smaller of a rule's p-values times the {tests} tests of this audit, 1 at most. A rule whose line "
            "ends below 0.01 (dotted) is rejected; a correct sampler is rejected in at most one of a hundred audits. "
            "The line may cross 0.01 by chance while the audit runs: only its end counts. A sound rule's line wanders; "
            "an unsound rule's keeps falling.",
        )  # fmt: skip
    with right:
        chart(
            figures.against_floor([(r["label"], r["history"], r["sound"]) for r in rows]), "audit-tv",
            "Total variation of the first token",
            "Dashed: the noise floor of a correct sampler. Bias stays above it as the floor falls.",
        )  # fmt: skip
    st.markdown("#### Ranking and verdict of each rule")
    st.dataframe([_row(r) for r in rows], hide_index=True, width="stretch")
    st.caption(
        "AUC: how well the rule's score ranks acceptance. Exact TV: of the first token for one request, by drafting "
        f"every token that the drafter knows. Rejected: the smaller p-value times {tests} tests is below 0.01."
    )
    st.markdown("**A score that ranks well can still be unsound**")
    st.dataframe(_ranking(rows[0]["ranking"]), hide_index=True, width="stretch")
    st.caption(
        f"Here: over {rows[0]['labelled']:,} first drafts behind sixteen prompts. Published: {PUBLISHED_IN}, over all "
        "positions, with other models: the figures and their order differ."
    )


def _ranking(auc: dict[str, float]) -> list[dict[str, Any]]:
    """A row a score, the best first."""
    return [
        {
            "score of a draft token": SCORES[name],
            "AUC here": formats.number(auc[name], 3),
            "AUC published": formats.number(PUBLISHED_AUC.get(name), 3),
        }
        for name in sorted(auc, key=lambda name: -auc[name])
    ]


def _row(row: dict[str, Any]) -> dict[str, Any]:
    exact = row["exact_total_variation"]
    return {
        "rule": row["label"],
        "AUC": formats.number(row["auc"], 3),
        "exact TV": formats.number(exact, 4),
        "counted TV": formats.number(row["one"]["total_variation"], 4),
        "noise floor": formats.number(row["one"]["noise_floor"], 4),
        "p, one token": f"{row['one']['p_value']:.3g}",
        "p, two tokens": f"{row['two']['p_value']:.3g}",
        "verdict": "rejected" if row["rejected"] else "not rejected",
        "continuations": f"{row['continuations']:,}",
        "a second": f"{row['per_second']:,.0f}",
    }
