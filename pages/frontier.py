"""Frontier: throughput against interactivity for every arm and load."""

import streamlit as st

from avlab import formats
from avlab.escaping import in_markdown
from avlab.experiments.answers import Point
from avlab.experiments.frontier_analysis import analyse_frontier
from avlab.experiments.published import PUBLISHED, PublishedPoint, read_frontier, scaled, shared_loads
from avlab.experiments.words import requests
from avlab.figures import frontier
from avlab.store import queries
from avlab.ui import (
    badge,
    experiment_columns,
    frontier_setup,
    host,
    other_runs,
    replay_frontier,
    replay_setup,
    transfer,
)
from avlab.ui.chart import chart
from avlab.ui.refusals import refusals
from avlab.ui.shown import end, page, tick

TITLE = "Frontier"
ICON = ":material/show_chart:"
ORDER = 60

NONE, SHIPPED, OWN = "nothing", "DeepSeek-V4-Pro with DSpark, 8 B300 (vLLM blog)", "a CSV of mine"
LOGARITHMIC, LINEAR = "logarithmic", "linear"


def before() -> None:
    """Replay instead, which needs no run; or the form that measures."""
    if replay_setup.asked("frontier"):
        replay_frontier.draw()
        end()
    frontier_setup.form()


shown = page(
    TITLE,
    "Which policy gives the most tokens at the speed a user wants, from an idle machine to a full one?",
    before=before,
)
other_runs.where_absent(
    shown,
    "frontier",
    True,
    "The run on show measured no frontier. Start one above, or see one that was recorded.",
)

slo = experiment_columns.objective()
published: list[PublishedPoint] = []
overlay = st.selectbox("Lay over it", [NONE, SHIPPED, OWN], key="overlay", bind="query-params")
if overlay == SHIPPED:
    published = read_frontier(PUBLISHED.read_text(encoding="utf-8"))
elif overlay == OWN:
    file = st.file_uploader("A CSV with the columns arm, concurrency, tok_s_user, tok_s", type="csv")
    if file is not None:
        with refusals():
            published = read_frontier(file.getvalue().decode("utf-8", "replace"))


def laid(points: list[Point]) -> tuple[list[PublishedPoint], bool, str]:
    """The published frontier as it is drawn over these points, whether on log axes, and what to read from it."""
    if not published:
        return [], False, ""
    shared = shared_loads(published, points)
    if not shared:
        loads = ", ".join(str(load) for load in sorted({p.load for p in published if p.arm == "none"}))
        st.caption(
            "The published frontier is not drawn: it is scaled at a load where both have the arm none. Measure none "
            f"with {loads} requests."
        )
        return [], False, ""
    left, right = st.columns(2)
    axes = left.segmented_control(
        "Axes", [LOGARITHMIC, LINEAR], default=LOGARITHMIC, key="axes",
        help="On logarithmic axes scaling only shifts a curve, so its shape can be compared.",
    )  # fmt: skip
    load = right.selectbox(
        "Laid on ours at", shared, key="anchor", format_func=requests,
        help="Load at which the two curves of the arm none meet. Default: the lowest that both have.",
    )  # fmt: skip
    told = (
        f" Hollow points on broken lines: published, scaled so that its none with {requests(load)} lies on ours. "
        "Compare shapes only"
    )
    bends = ": both axes are logarithmic, so scaling shifts a curve and does not bend it."
    return scaled(published, points, load), axes != LINEAR, told + ("." if axes == LINEAR else bends)


def draw() -> None:
    with host.connection() as con:
        version = (shown.live, queries.finished_blocks(con, shown.run))
        answer = host.feed(shown.run).as_of(
            ("frontier", slo), version, lambda: analyse_frontier(con, shown.run, slo)
        )
    points, plan = answer.points, answer.plan
    done, planned = answer.cells[0], answer.planned
    if not shown.live:
        more = ": the same form goes on from there" if done < planned else ""
        st.caption(f"{answer.state.capitalize()}, with {done} of {planned} cells measured{more}.")
    else:
        learning = not done and plan.learn
        st.progress(
            min(done / planned, 1.0),
            text=f"{done} of {planned} cells" + (" (adaptive arms learn first)" if learning else ""),
        )
    if earlier := len(answer.runs) - 1:
        st.caption(f"Continues {earlier} earlier run{'s' if earlier > 1 else ''}, whose cells count too.")
    st.markdown("\n".join(f"- {in_markdown(sentence)}" for sentence in answer.sentences))
    over, logarithmic, at = laid(points)
    chart(
        frontier.frontier(points, over, logarithmic, shown.live), "frontier-cells", "Throughput against interactivity",
        "Up and to the right is better. Numbers: requests under way. Faint points are dominated: another one is at "
        "least as good in both (error bars ignored). Bars: 95 % over repeats, from three on." + at,
    )  # fmt: skip
    if points:
        badge.table(
            frontier.table(points),
            hide_index=True,
            column_config=experiment_columns.COLUMNS,
            placeholder=formats.DASH,
        )


tick(draw, shown)
transfer.report_button(shown.run, slo)
