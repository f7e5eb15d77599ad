"""Budget: what a step costs, and how many draft tokens are worth verifying."""

import streamlit as st

from avlab import diagnosis
from avlab.figures import budget, numbers
from avlab.machines import known, machine, path_of, read
from avlab.speculation.costs import CostTable
from avlab.store import queries
from avlab.store.feeds import RECENT_STEPS, columns
from avlab.ui import badge, host
from avlab.ui.chart import chart
from avlab.ui.cost_file import CostFileError, read_costs
from avlab.ui.shown import page, tick

OWN = "this run's own costs"
TITLE = "Budget"
ICON = ":material/savings:"
ORDER = 40

shown = page(TITLE, "How many draft tokens is it worth verifying in a step, and why that many?")


def objective() -> None:
    feed = host.feed(shown.run)
    with host.connection() as con:
        step = queries.last_stored_step(con, shown.run)
        profile = feed.now_and_then("profile-columns", lambda: columns(queries.cost_profile(con, shown.run)))
    tables = budget.tables_of(profile)
    left, right = st.columns([3, 2])
    with left:
        chart(
            budget.objective_curve(step, tables, scale, other, emulated_machine()), "objective",
            "Expected tokens a second by budget",
            "The peak is the best budget. The engine chooses from the previous step's estimates, so that no draw "
            "decides whether it is verified; its choice (dotted) may differ from this step's peak. In a step that also "
            "prefills, +depth may take fewer than the peak: a long step makes drafts look cheap.",
        )  # fmt: skip
        if told := budget.against_served(step, tables, feed.steps):
            st.caption(badge.said(told))
    with right:
        chart(
            budget.budgets(feed.steps), "budgets", "Draft tokens over the run",
            "Grey minus blue: trimmed. Blue minus green: verified in vain. "
            + diagnosis.exploration(numbers.headline(feed.steps, feed.blocks)),
        )  # fmt: skip


def costs() -> None:
    feed = host.feed(shown.run)
    with host.connection() as con:
        profile = feed.now_and_then("profile-columns", lambda: columns(queries.cost_profile(con, shown.run)))
        after = max(-1, feed.last_step() - RECENT_STEPS)
        medians = feed.now_and_then("medians", lambda: columns(queries.cost_medians(con, shown.run, after)))
        lengths = feed.now_and_then("lengths", lambda: columns(queries.admitted_lengths(con, shown.run)))
    left, right = st.columns(2)
    with left:
        chart(
            budget.verify_costs(profile, medians), "verify-cost", "Cost of the target's pass",
            "Where the line is flat, another draft token is nearly free; where it rises, each has a price. Red points "
            "off the line: costs have drifted since they were timed.",
        )  # fmt: skip
    with right:
        chart(
            budget.draft_costs(profile, medians), "draft-cost", "Cost of drafting, by depth",
            "Paid before verification: it lowers the whole throughput curve and hardly moves its peak. +depth "
            "chooses among depths; other policies always draft at one. Crosses: timed at start. Dots: this run.",
        )  # fmt: skip
    chart(
        budget.admitted_map(lengths), "admitted", "Admitted draft tokens, request by request",
        "Strong colours: many draft tokens of the request were verified. Columns that turn pale "
        "together had a small budget.",
    )  # fmt: skip


def emulated_machine() -> tuple[str, CostTable] | None:
    """The machine whose costs the reader asked for, by its title, with its table."""
    if chosen == OWN:
        return None
    found = machine(chosen, max(shown.K, 1))
    return found.about.title, found.table()


above = st.container()
chosen = st.selectbox(
    "What if: on another machine", [OWN, *known()], key="budget-machine", bind="query-params",
    format_func=lambda name: name if name == OWN else read(path_of(name)).title,
    help="Its table of step costs over this run's estimates: emulated. `avlab machine import` adds your own.",
)  # fmt: skip
left, right = st.columns(2)
scale = left.slider(
    "What if: the target's pass costs × as much", 0.25, 4.0, 1.0, 0.25, key="scale", bind="query-params"
)
file = right.file_uploader(
    "What if: another machine's costs, as CSV with phase, size, ms (and depth)", type="csv"
)
other = None
if file is not None:
    try:
        other = read_costs(file.getvalue())
    except CostFileError as error:
        right.error(str(error))
with above:
    tick(objective, shown)
tick(costs, shown)
