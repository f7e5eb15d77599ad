"""Part 5: an audit of the real engine's step, in a process of its own."""

import atexit
from typing import Any

import streamlit as st

from avlab.audit import PROMPT, SOUND_RULES, UNSOUND_RULES, AuditProcess
from avlab.figures import bias as figures
from avlab.ui import formats, host
from avlab.ui.bias import lesson
from avlab.ui.chart import chart

TICK_SECONDS = 1.0
FORMULAS = r"""
$G = 2 \sum_i O_i \ln (O_i / E_i)$ over cells of first tokens, and over cells of the first two tokens. Cells expected
fewer than five times are pooled, at most 200 remain; $G$ is divided by Williams' factor
$1 + (\sum_i 1/p_i - 1) / (6 n (C - 1))$ and compared with $\chi^2$ of $C - 1$ degrees of freedom. Rejected: the smaller
p-value, times the number of all tests of this audit, is below 0.01. Watching a p-value until it is small is no test:
only the last one counts.

The noise floor is the total variation from its own law that a faithful sample shows on average,
$\tfrac12 \sum_i \sqrt{2 p_i (1 - p_i) / (\pi n)}$.
"""

_running: dict[str, AuditProcess] = {}  # at most one, for all browsers of this dashboard


def draw() -> None:
    """The part: choose rules and a prompt, watch p-values and total variation, read the verdicts."""
    lesson.head(
        "5 · On the real engine",
        "Audit a sound and an unsound rule side by side, and watch how long chance can hide the difference.",
        "The engine's own step samples from the target under every rule it can serve with; the UNSOUND rules, which "
        "exist only in this audit, do not.",
    )
    left, middle, right = st.columns([4, 3, 2], vertical_alignment="bottom")
    options = [*SOUND_RULES, *UNSOUND_RULES]
    rules = left.multiselect(
        "Rules", options, default=["adaptive", "drawn:0.2"], key="audit-rules", bind="query-params",
        format_func=_label,
    )  # fmt: skip
    prompt = middle.text_input("Prompt", PROMPT, key="audit-prompt", bind="query-params")
    count = right.select_slider(
        "Continuations", [2_000, 5_000, 10_000, 20_000, 50_000, 100_000], 10_000, key="audit-count",
        bind="query-params",
    )  # fmt: skip
    process = _running.get("audit")
    busy = process is not None and not process.done.is_set()
    serving = host.lab().supervisor.status().alive
    left, right = st.columns([1, 4], vertical_alignment="center")
    if busy:
        left.button("Stop the audit", icon=":material/stop:", on_click=_stop, width="stretch")
    else:
        left.button(
            "Audit", type="primary", icon=":material/fact_check:", width="stretch", on_click=_start,
            args=(list(rules), prompt, count), disabled=serving or not rules or not (prompt or "").strip(),
        )  # fmt: skip
    if serving:
        right.info("A worker is serving, and an audit would spoil its timing: stop it in the sidebar first.")
    else:
        right.caption("float32, temperature 1, two draft positions; a worker process loads the model for it.")
    if process is not None:
        st.fragment(_progress, run_every=TICK_SECONDS if busy else None)()
    lesson.formulas(FORMULAS)


def _label(rule: str) -> str:
    return f"UNSOUND {rule}" if rule in UNSOUND_RULES else rule


def _start(rules: list[str], prompt: str, count: int) -> None:
    _stop()
    _running["audit"] = AuditProcess(rules, [0], count, prompt)


def _stop() -> None:
    if "audit" in _running:
        _running["audit"].close()


atexit.register(_stop)


def _progress() -> None:
    process = _running["audit"]
    text, done, total = process.progress
    if process.error:
        st.error(process.error)
    elif not process.done.is_set():
        st.progress(done / total if total else 0.0, text=f"{text}: {done:,} of {total:,}" if total else text)
    elif st.session_state.get("audit-drawn") is not process:
        st.session_state["audit-drawn"] = process
        st.rerun()  # the page stops ticking
    rows = list(process.rows.values())
    if not rows:
        return
    left, right = st.columns(2)
    with left:
        chart(
            figures.p_values([(r["label"], r["history"], r["sound"]) for r in rows]), "audit-p", "p-value",
            "The smaller of two tests. Below the dotted line chance would bring a faithful sampler once in a hundred "
            "audits. A sound rule's line "
            "wanders; an unsound one's falls for good.",
        )  # fmt: skip
    with right:
        chart(
            figures.against_floor([(r["label"], r["history"], r["sound"]) for r in rows]), "audit-tv",
            "Total variation of the first token",
            "Dashed is the noise floor, what a faithful sampler would show. Bias is what stays when the floor sinks.",
        )  # fmt: skip
    st.markdown("#### Verdicts")
    st.dataframe([_row(r) for r in rows], hide_index=True, width="stretch")
    st.caption(
        "Exact total variation: of the first token for one request, by drafting every token that the drafter knows. "
        f"Verdict: smaller p-value × {rows[0]['tests']} tests below 0.01 is rejected. Published AUC of the features: "
        "drawn token 0.847, trained head 0.823, top-two margin 0.805 – the best ranking is the one that may not "
        "be used."
    )


def _row(row: dict[str, Any]) -> dict[str, Any]:
    exact = row["exact_total_variation"]
    return {
        "rule": row["label"],
        "continuations": row["continuations"],
        "a second": round(row["per_second"]),
        "exact TV": formats.number(exact, 4),
        "counted TV": formats.number(row["one"]["total_variation"], 4),
        "noise floor": formats.number(row["one"]["noise_floor"], 4),
        "p, one token": f"{row['one']['p_value']:.3g}",
        "p, two tokens": f"{row['two']['p_value']:.3g}",
        "verdict": "rejected" if row["rejected"] else "not rejected",
    }
