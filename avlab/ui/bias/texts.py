"""Part 6: what a sound and an unsound rule do to whole answers of the real model."""

from typing import Any

import streamlit as st

from avlab.bias.process import TEXT_POSITIONS, TEXT_SEED, AskedProcess, TextProcess
from avlab.bias.text_measures import MEASURES, known, within_noise
from avlab.config import RunConfig
from avlab.figures import bias as figures
from avlab.speculation.sampling import MODELS_OWN
from avlab.ui.bias import asked, lesson, words
from avlab.ui.chart import chart
from avlab.workloads import kinds

PART = "texts"
SOUND = ("maximum:t", "entropy:t", "margin:t", "fixed:4", "adaptive")
UNSOUND = ("drawn:t", "noise:correction")
FORMULAS = r"""
For the tokens $x_1, x_2, \dots$ of an answer, with $p_i$ the target's distribution in which $x_i$ stands:
log-probability $\ln p_i(x_i)$, entropy $H_i = -\sum_y p_i(y) \ln p_i(y)$, each averaged over all tokens of all answers.

If $x_i$ is drawn from $p_i$, the expectation of $\ln p_i(x_i)$ is $-H_i$, whatever came before. So
$\sum_i \left( \ln p_i(x_i) + H_i \right)$ is a martingale and the average of $\ln p_i(x_i) + H_i$ is 0 up to noise: the
text itself shows whether it was sampled from the target; no second text is needed.

Repetition: the share of runs of four tokens that came before in the same answer.

Intervals: 95 %, percentile bootstrap over requests (2,000 resamples). Both rules answer the same requests with the same
seeds; for differences a resample takes both answers of a request together.
"""


def draw() -> None:
    """The part: two rules and a workload; measures with intervals, differences, and texts side by side."""
    show = lesson.head(
        "6 · What it does to text",
        "Generate the same answers under both rules, then change the threshold and see which measures differ.",
        "Under the drawn-token rule the text is likelier than the target's own. Log-probability plus entropy is 0 for "
        "a correct sampler, so one text alone shows the bias.",
    )
    columns = st.columns([2, 2, 2, 2, 2])
    sound = columns[0].selectbox("Sound rule", SOUND, key="text-sound", bind="query-params")
    bent = columns[1].selectbox(
        "Unsound rule",
        UNSOUND,
        key="text-unsound",
        bind="query-params",
        format_func=lambda rule: f"UNSOUND {rule}",
    )
    cut = columns[2].slider("Threshold t", 0.05, 0.95, 0.1, 0.05, key="text-cut", bind="query-params")
    workload = columns[3].selectbox("Workload", ["mixed", *kinds()], key="text-workload", bind="query-params")
    count = columns[4].select_slider(
        "Requests", [16, 32, 64, 128, 256], 64, key="text-count", bind="query-params"
    )
    rules = [str(rule).replace(":t", f":{cut:g}") for rule in (sound, bent)]
    asked.buttons(
        PART, "Write", ":material/edit_note:",
        lambda: TextProcess(
            rules, count, config=RunConfig.make(MODELS_OWN._asdict(), workload=workload, seed=TEXT_SEED)
        ), True,
        f"Temperature 1, {TEXT_POSITIONS} draft positions, answers of up to 96 tokens; 64 requests take minutes.",
        {"rules": rules, "workload": workload, "requests": count},
    )  # fmt: skip
    newest = asked.newest(PART)
    if newest is not None and lesson.revealed(
        f"texts-{newest.order}", "Which measures will differ by more than noise?", [*MEASURES.values(), lesson.NONE],
        *_truth(newest.process),
    ):  # fmt: skip
        show()
        asked.rows(PART, _show)
    words.rules([*SOUND, *UNSOUND])
    lesson.formulas(FORMULAS)


def _truth(process: AskedProcess) -> tuple[list[str] | None, str]:
    """The measures that differ, for the quiz, and what there is to say of it; None before both texts are written."""
    rows = list(process.rows.values())
    if len(rows) < 2 or not process.done.is_set():
        return None, "There is an answer when the texts of both rules are written."
    change = rows[1]["difference"]
    differ = [title for name, title in MEASURES.items() if not within_noise(known(change[name]))]
    return differ or [lesson.NONE], ""


def _show(rows: list[dict[str, Any]]) -> None:
    chart(
        figures.measures(MEASURES, [(row["label"], row["measures"], row["sound"]) for row in rows]),
        "text-measures", "What the target says of the texts",
        f"{rows[0]['requests']} answers under each rule, "
        + " and ".join(f"{row['tokens']:,}" for row in rows)
        + " tokens; 95 % intervals. The third panel needs no comparison: a correct sampler has 0 (dashed).",
    )  # fmt: skip
    if len(rows) > 1:
        st.markdown(f"#### {rows[1]['label']} minus {rows[0]['label']}")
        st.dataframe(
            [_difference(name, rows[1]["difference"][name]) for name in MEASURES],
            hide_index=True,
            width="stretch",
        )
        st.caption(
            "Paired by request: the same prompts and seeds. Within the noise: the 95 % interval holds 0."
        )
    st.markdown("#### The same request under each rule")
    for numbered in zip(*(row["texts"] for row in rows), strict=True):
        with st.expander(_short(numbered[0]["prompt"])):
            for column, row, each in zip(st.columns(len(rows)), rows, numbered, strict=True):
                column.caption(row["label"])
                column.text(each["text"].strip() or "(it ended at once)")


def _difference(name: str, values: list[float | None]) -> dict[str, str]:
    interval = known(values)
    if interval is None:
        return {
            "measure": MEASURES[name],
            "difference": "–",
            "95 % interval": "–",
            "verdict": "nothing to compare",
        }
    estimate, low, high = interval
    verdict = "within the noise" if within_noise(interval) else "higher" if estimate > 0 else "lower"
    return {
        "measure": MEASURES[name],
        "difference": f"{estimate:+.3f}",
        "95 % interval": f"{low:+.3f} to {high:+.3f}",
        "verdict": verdict,
    }


def _short(prompt: str, most: int = 110) -> str:
    line = " ".join(prompt.split())
    return line if len(line) <= most else f"{line[:most]} …"
