"""The Live page of a server that is only watched: what its counters tell, and what they do not."""

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from avlab import formats
from avlab.figures import live
from avlab.figures import watched as figures
from avlab.figures.base import Columns
from avlab.ui import host
from avlab.ui.chart import chart
from avlab.ui.events import events_table
from avlab.ui.shown import Shown, within
from avlab.vllm.unknown import cannot_know


def draw(shown: Shown, seconds: float | None) -> None:
    """Everything below the run's head."""
    feed = host.feed(shown.run)
    with host.connection() as con:
        samples = within(feed.engine_samples(con), seconds)
    steps = within(feed.steps, seconds)
    about = shown.description["machine"]
    _headline(samples)
    sentences = cannot_know(
        about.get("adaptive"), shown.K > 0, bool(about.get("told")), about.get("unread", ())
    )
    st.info("\n\n".join(sentences), icon=":material/visibility_off:")
    _charts(samples, steps, feed.blocks)
    _engines(samples)
    events_table(feed.events)


def _headline(samples: Columns) -> None:
    numbers = figures.headline(samples)
    top = st.columns(4)
    top[0].metric("Throughput", formats.number(numbers["tokens_per_s"], 1, "tokens/s"))
    top[1].metric("Between outputs", formats.number(numbers["later_output_ms"], 1, "ms"))
    top[2].metric("Engine steps", formats.number(numbers["engine_steps_per_s"], 1, "a second"))
    running, waiting = (formats.number(numbers[name], 0) for name in ("running", "waiting"))
    top[3].metric("Running, waiting", f"{running}, {waiting}")


def _charts(samples: Columns, steps: Columns, blocks: Sequence[Mapping[str, Any]]) -> None:
    left, right = st.columns(2)
    with left:
        about = "Output tokens per second, all requests together."
        chart(live.throughput(steps, blocks), "throughput", "Throughput", about)
    with right:
        chart(
            figures.latency(samples), "latency", "Latency",
            "Means per interval: from arrival to first token, and from one output to the next. An output holds several "
            "tokens where drafts are accepted.",
        )  # fmt: skip
    left, right = st.columns(2)
    with left:
        chart(
            figures.by_position(samples), "positions", "Accepted by position",
            "Share of all drafts whose token at this position was accepted: vLLM's per-position acceptance. It falls "
            "with depth and, under adaptive verification, with trimming.",
        )  # fmt: skip
    with right:
        chart(
            figures.acceptance(samples), "acceptance", "Accepted of scheduled",
            "vLLM's acceptance rate. Adaptive verification can lower it while throughput rises. Judge by tokens/s.",
        )  # fmt: skip
    left, right = st.columns(2)
    with left:
        chart(
            live.tokens_per_step(steps, blocks), "tokens-per-step", "Tokens per step",
            "Tokens per output of a request. Decoding without drafts gives 1.",
        )  # fmt: skip
    with right:
        chart(live.queue(steps), "queue", "Requests", "Requests running in the engines, and waiting.")


def _engines(samples: Columns) -> None:
    rows = figures.engines(samples)
    if len(rows) > 1:
        st.markdown("#### Engines")
        st.dataframe(rows, hide_index=True, placeholder=formats.DASH)
