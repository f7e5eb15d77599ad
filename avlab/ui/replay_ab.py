"""The A/B page where it replays: arms at one load, on the same texts."""

from __future__ import annotations

import streamlit as st

from avlab.escaping import in_markdown
from avlab.experiments.plan import baseline_of
from avlab.experiments.replay_ab import compared
from avlab.experiments.replay_sweep import Case
from avlab.figures import replay
from avlab.policies.arm import DEFAULT_ARM
from avlab.ui import experiment_columns, replay_setup, replays
from avlab.ui.ab_setup import MOST_REQUESTS
from avlab.ui.chart import chart
from avlab.ui.refusals import refusals
from avlab.ui.settings import SUGGESTED
from avlab.ui.typed import Fields

ARMS = (DEFAULT_ARM, "adaptive", "adaptive+depth", "fixed:2", "fixed:3", "none")


def draw() -> None:
    """Machine, trace, arms, baseline, load; then ratios and what they say."""
    case = replay_setup.case("ab")
    known = list(dict.fromkeys([*ARMS, *SUGGESTED["policy"]]))
    arms = st.multiselect("Arms", known, default=list(ARMS), key="ab-replay-arms", accept_new_options=True)
    fields = Fields()
    fields.arms(st, arms, case.opened()[0].about.K)
    left, right = st.columns(2)
    load = fields.whole(left, "Requests under way", 1, MOST_REQUESTS, 16, key="ab-replay-load")
    if len(arms) < 2:
        st.info("An A/B needs two arms or more.", icon=":material/science:")
        return
    if fields.wrong:
        return
    with refusals():
        wanted = replay_setup.arms_that_fit(case, arms, [load])
        names = [arm for arm, _ in wanted]
        baseline = right.selectbox(
            "Baseline", names, index=names.index(baseline_of(names, None)), key="ab-replay-baseline",
            help="Ratios are relative to this arm.",
        )  # fmt: skip
        replay_setup.follow("ab", case, wanted, lambda seen: _show(case, seen, baseline, len(wanted)))


def _show(case: Case, seen: replays.Seen, baseline: str, due: int) -> None:
    badge = case.emulation
    blocks = min((len(cell.blocks) for cell in seen.cells), default=0)
    if len(seen.cells) < due:
        st.caption("Every arm is being served the same texts; ratios stand once all have been.")
        return
    answer = compared(seen.cells, baseline)
    for text in answer.sentences(badge):
        st.markdown(f"- {in_markdown(text)}")
    chart(
        replay.ratios(answer.ratios, badge), "ab-replayed", f"Ratio to {baseline}",
        f"{badge}. Right of the dashed line: faster. Bars: 95 % by text; grey: the interval holds 1, so the arms are "
        "equal as far as this replay can tell.",
    )  # fmt: skip
    st.dataframe(
        [
            {
                "arm": each.arm, "tokens/s": each.tokens_per_s, "one user": each.tokens_per_s_per_user,
                "tokens a step": each.tokens_per_step,
            }
            for each in answer.arms
        ],
        hide_index=True, column_config=experiment_columns.COLUMNS,
    )  # fmt: skip
    said = f"{blocks} repeats, each on a sample of texts of its own. Every speed here is {badge}."
    st.caption(in_markdown(" ".join([said, *case.doubts(seen.cells)])))
