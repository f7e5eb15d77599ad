"""Live: how fast tokens come, what happens to draft tokens, where a step's time goes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import streamlit as st

from avlab import diagnosis, formats
from avlab.figures import budget, coefficients, latency, live, segments
from avlab.figures import numbers as figure_numbers
from avlab.figures.base import Columns
from avlab.store import queries
from avlab.ui import badge, first_visit, host, watched
from avlab.ui.chart import chart
from avlab.ui.events import events_table
from avlab.ui.shown import page, span, span_named, tick, within

TITLE = "Live"
ICON = ":material/monitoring:"
ORDER = 10
MOST_SEGMENTS = 12  # the last ones of a run

shown = page(
    TITLE,
    "How fast do tokens come, what happens to draft tokens, and where does the time go?",
    of_watched=True,
)
of_story = first_visit.shows_it(shown)
if of_story:
    first_visit.ways_on(shown)
seconds = span()


def draw() -> None:
    if shown.watched:
        watched.draw(shown, seconds)
        return
    feed = host.feed(shown.run)
    with host.connection() as con:
        steps, positions = within(feed.steps, seconds), feed.positions(con)
        refits = feed.refits(con)
        requests = feed.requests(con)
        profile = feed.now_and_then("profile", lambda: queries.cost_profile(con, shown.run).to_pydict())
    parts = segments.segments(feed.steps, feed.blocks, MOST_SEGMENTS)
    if of_story:
        first_visit.scene(shown, feed.steps)
    tables = budget.tables_of(figure_numbers.arrays(profile))
    verify = tables.verify if tables else None
    numbers = figure_numbers.headline(steps, feed.blocks)
    headline(numbers, requests)
    if told := segments.change(parts, span_named(seconds)):
        st.caption(badge.said(told))
    if len(steps.get("step", ())) and not numbers["steps"]:
        st.caption(
            "No counted steps yet. These numbers leave out learning, wash-out, windows of full verification and the "
            "playground; the charts show them."
        )
    diagnose(steps, feed.blocks, verify)
    arm = diagnosis.arm_in_force(feed.blocks)
    if arm in coefficients.arms_of(refits) and (told := coefficients.stuck(coefficients.of_arm(refits, arm))):
        st.warning(told, icon=":material/lock:")
    left, right = st.columns(2)
    with left:
        chart(
            live.throughput(steps, feed.blocks), "throughput", "Throughput",
            "Output tokens per second, all requests together. Dotted lines: the policy or workload changed.",
        )  # fmt: skip
    with right:
        chart(
            live.interactivity(requests, steps), "interactivity", "Interactivity",
            "Tokens/s of one request, first token to last. Throughput up and this down is a trade-off, not a gain.",
        )  # fmt: skip
    by_segment(parts)
    four(numbers)
    left, right = st.columns(2)
    with left:
        totals = figure_numbers.by_position(positions, feed.blocks, seconds, steps)
        chart(
            live.positions(totals, numbers["steps"]), "positions", "Draft tokens by position",
            "Wide bar: scheduled by the drafter. Middle: admitted, so the target verifies them. Narrow: accepted. "
            "Wide minus middle is verification saved; middle minus narrow is verification wasted. "
            + diagnosis.exploration(numbers),
        )  # fmt: skip
    with right:
        chart(
            live.acceptance(steps, feed.blocks), "acceptance", "Acceptance",
            "accepted / labelled is conditional acceptance. Adaptive verification can lower accepted / scheduled while "
            "throughput rises: judge by tokens/s.",
        )  # fmt: skip
    where_time_goes(steps, feed.blocks, figure_numbers.saved(steps, verify))
    latencies(requests)
    left, right = st.columns(2)
    with left:
        chart(
            live.queue(steps), "queue", "Requests",
            "Waiting requests that keep rising: more arrive than the engine can serve.",
        )  # fmt: skip
    with right:
        events_table(feed.events)


def headline(numbers: Mapping[str, Any], requests: Columns) -> None:
    top = st.columns(4)
    top[0].metric(badge.titled("Throughput"), formats.number(numbers["tokens_per_s"], 1, "tokens/s"))
    rate = figure_numbers.median(live.request_rates(requests))
    top[1].metric(badge.titled("Interactivity"), formats.number(rate, 1, "tokens/s"))
    top[2].metric(badge.titled("Step", "ms"), formats.number(numbers["step_ms"], 1, "ms"))
    top[3].metric("Running, waiting", f"{numbers['running']:.0f}, {numbers['waiting']:.0f}")


def by_segment(parts: Sequence[Mapping[str, Any]]) -> None:
    """What each policy gave, where the run had more than one."""
    if len(parts) < 2:
        return
    st.markdown(f"#### {badge.titled('By segment', 'tokens/s')}")
    badge.table(
        segments.shown(parts),
        hide_index=True,
        placeholder=formats.DASH,
        column_config={
            "tokens/s": st.column_config.NumberColumn(format="localized"),
            "× before": st.column_config.NumberColumn(
                format="%.2f", help="Over the segment before, where as many requests were under way."
            ),
            "verified": st.column_config.NumberColumn(
                format="%.2f", help="Draft tokens that the target verified, a request and step."
            ),
            "tokens per step": st.column_config.NumberColumn(format="%.2f"),
            "step (ms)": st.column_config.NumberColumn(format="%.1f"),
        },
    )
    st.caption(
        "One row from one change of policy or workload to the next, its first second left out. The numbers at the top "
        "leave out nothing, so they need not be the mean of these. The interval shows how much the rate varied within "
        "the segment. Segments follow each other in time: for a comparison that allows for "
        "drift, run an A/B."
    )


def latencies(requests: Columns) -> None:
    """What users wait for."""
    left, right = st.columns(2)
    with left:
        chart(
            latency.first_token(requests), "first-token", "Time to first token, milliseconds",
            "From arrival, with queue and prompt. Half of the requests wait less than the 50 % line, one in a hundred "
            "longer than the 99 % line. A percentile is drawn where enough requests ended.",
        )  # fmt: skip
    with right:
        chart(
            latency.between_tokens(requests), "between-tokens", "Time between tokens, milliseconds",
            "Each request's mean behind its first token, when it ends.",
        )  # fmt: skip


def diagnose(steps: Columns, blocks: Sequence[Mapping[str, Any]], verify: np.ndarray | None) -> None:
    """What may be done about the last seconds, if anything; verify: the cost table's, [tokens]."""
    recent = figure_numbers.headline(within(steps, 20.0), blocks[-1:])
    told = diagnosis.sentence(
        diagnosis.arm_in_force(blocks), recent["steps"], recent["scheduled"], recent["admitted"],
        recent["target_tokens"], [] if verify is None else verify,
    )  # fmt: skip
    if told:
        st.info(told, icon=":material/lightbulb:")


def four(numbers: Mapping[str, Any]) -> None:
    st.markdown("#### Four numbers that are easily confused")
    for column, (name, value, meaning) in zip(st.columns(4), figure_numbers.four(numbers), strict=True):
        column.metric(name, formats.share(value) if name != "tokens per step" else formats.number(value, 2))
        column.caption(meaning)


def where_time_goes(steps: Columns, blocks: Sequence[Mapping[str, Any]], saved: float | None) -> None:
    """saved: milliseconds a step that trimming saves."""
    left, right = st.columns(2)
    with left:
        said = (
            "" if saved is None else f" Verifying every draft token would cost {formats.number(saved, 1, 'ms')} "
            "more a step (cost table)."
        )  # fmt: skip
        chart(
            live.ledger(steps),
            "ledger",
            "Where a step's time goes",
            "Mean of each part of a step." + said,
        )
    with right:
        chart(
            live.tokens_per_step(steps, blocks), "tokens-per-step", "Tokens per step",
            "Decoding without drafts gives 1. Above 1: steps that speculation saves.",
        )  # fmt: skip


tick(draw, shown)
