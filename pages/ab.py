"""A/B: does one policy beat another on this traffic at this load, by how much, and why?"""

import streamlit as st

from avlab import formats
from avlab.escaping import in_markdown
from avlab.experiments import progress
from avlab.experiments.analysis import analyse
from avlab.experiments.answers import ABAnswer
from avlab.experiments.plan import DESIGNS
from avlab.experiments.words import blocks_of, errors_together, provisional, ratios_explained, requests, until
from avlab.figures import ab
from avlab.kinds.registry import recorded_kind
from avlab.store import queries
from avlab.ui import ab_setup, badge, experiment_columns, host, other_runs, replay_ab, replay_setup, transfer
from avlab.ui.chart import chart
from avlab.ui.shown import end, page, tick

TITLE = "A/B"
ICON = ":material/science:"
ORDER = 50


def before() -> None:
    """Replay instead, which needs no run; or the form that measures."""
    if replay_setup.asked("ab"):
        replay_ab.draw()
        end()
    ab_setup.form()


shown = page(
    TITLE,
    "Does adaptive verification beat the best fixed length on this traffic at this load, by how much, and why?",
    before=before,
)
other_runs.where_absent(
    shown, "A/B", False, "The run on show has no A/B in it. Set one up above, or see one that was recorded."
)
slo = experiment_columns.objective()


def draw() -> None:
    with host.connection() as con:
        rounds = queries.rounds(con, shown.run)
        version = (shown.live, len(rounds))  # only whole rounds count
        answer = host.feed(shown.run).as_of(("ab", slo), version, lambda: analyse(con, shown.run, slo))
    plan = answer.plan
    st.markdown(
        f"**{plan.design}** · {len(plan.arms)} arms, {requests(plan.concurrency)}, {in_markdown(blocks_of(plan))}",
        help=DESIGNS[plan.design],
    )
    if notes := recorded_kind(shown.description["kind"]).ab_notes(shown.description["config"]):
        st.caption(notes)
    if shown.live:
        how_far(answer, progress.progress(plan, rounds, host.feed(shown.run).last_step()))
    if again := [arm for arm in plan.arms if "#" in arm]:
        st.caption(ab_setup.again_means(again))
    for place, sentence in enumerate(in_markdown(formats.unbroken(each)) for each in answer.verdicts):
        st.markdown(sentence if place else f"##### {sentence}")
    for reason in answer.why:
        st.warning(in_markdown(formats.unbroken(reason.text)), icon=":material/troubleshoot:")
    chart(
        ab.ratios(answer), "ab-ratios", f"Ratio to {plan.baseline}, round by round",
        "Line: estimate so far. Band: 95 % interval, valid at all rounds at once: you may stop as soon as it leaves "
        "the dashed line. Dots: single rounds.",
    )  # fmt: skip
    badge.table(
        ab.table(answer),
        hide_index=True,
        column_config=experiment_columns.COLUMNS | {f"× {plan.baseline}": THREE_DIGITS},
        placeholder=formats.DASH,
    )
    if said := f"{errors_together(answer)} {until(answer)}".strip():
        st.caption(formats.unbroken(said))
    with st.expander("How to read these numbers"):
        st.markdown(formats.unbroken(ratios_explained(answer)))
    reasons(answer)


def how_far(answer: ABAnswer, so_far: progress.Progress) -> None:
    """What is under way, how long there is to go, and what the rounds say before they give an interval."""
    pace = st.session_state.setdefault(f"pace-{shown.run}", progress.Pace())
    share = min(so_far.done / so_far.total, 1.0)
    st.progress(share, text=so_far.text + pace(so_far.done, so_far.total))
    if said := provisional(answer):
        st.caption(badge.said(said))


def reasons(answer: ABAnswer) -> None:
    """Where the time goes, and what becomes of draft tokens, by arm."""
    left, right = st.columns(2)
    with left:
        chart(
            ab.ledger(answer), "ab-ledger", "Why: where the time goes",
            "The shorter bar is faster; the part that differs is the reason. Diamonds: the time if every draft token "
            "were verified, by the cost table.",
        )  # fmt: skip
    with right:
        chart(
            ab.drafts(answer), "ab-drafts", "What became of draft tokens",
            "All three parts cost drafting; accepted and verified in vain also cost verification.",
        )  # fmt: skip
    with st.expander("The ledger in numbers"):
        whole = {arm: st.column_config.NumberColumn(format="%.0f") for arm in answer.plan.arms}
        badge.table(
            ab.ledger_table(answer),
            hide_index=True,
            column_config=whole,
            height="content",
            placeholder=formats.DASH,
        )


THREE_DIGITS = st.column_config.NumberColumn(format="%.3f", help="Of throughput, within rounds.")

tick(draw, shown)
transfer.report_button(shown.run, slo)
