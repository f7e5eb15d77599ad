"""What the Frontier and A/B pages share where they replay: the choice, machine and trace, and drawing as it goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from avlab import machines
from avlab.escaping import in_markdown
from avlab.experiments.replay_sweep import Case
from avlab.machines import DEFAULT_MACHINE, MachineError
from avlab.policies.arm import labels
from avlab.replay import traces
from avlab.replay.about import TraceError
from avlab.replay.traces import DEFAULT_TRACE
from avlab.ui import badge, replays, shown
from avlab.ui.refusals import refusals

MEASURE, REPLAY = "Measure", "Replay"
SECONDS = 0.7  # between two looks at a replay under way
EXPLAINED = (
    "**Measure**: this machine's model serves, in minutes. **Replay**: recorded texts on another machine's table of "
    "step costs, in seconds. Drafts and acceptance are exact; the speeds are emulated."
)


def asked(page: str) -> bool:
    """Whether this page is to replay rather than to measure; the choice is in the address."""
    chosen = st.segmented_control(
        "How", [MEASURE, REPLAY], default=MEASURE, key=f"{page}-how", bind="query-params", help=EXPLAINED
    )
    if chosen != REPLAY:
        replays.give_up(_reader(page))
    return chosen == REPLAY


def case(page: str) -> Case:
    """Machine and trace, chosen here."""
    known, recorded = machines.known(), traces.known()
    left, right = st.columns(2)
    machine = left.selectbox(
        "Machine", known, index=known.index(DEFAULT_MACHINE), key=f"{page}-machine", bind="query-params",
        format_func=lambda name: machines.read(machines.path_of(name)).title,
        help="Whose step costs. `avlab machine import` adds your own.",
    )  # fmt: skip
    trace = right.selectbox(
        "Trace", recorded, index=recorded.index(DEFAULT_TRACE), key=f"{page}-trace", bind="query-params",
        format_func=_shown,
        help="Whose texts and drafts, at which sampling.",
    )  # fmt: skip
    found = Case(trace, machine)
    try:
        found.opened()
    except (TraceError, MachineError) as error:
        st.error(in_markdown(error))
        shown.end()
    badge.put(found.emulation)
    st.markdown(f":violet-badge[:material/memory: {in_markdown(found.emulation)}]")
    return found


def _shown(trace: str) -> str:
    """A trace's name and sampling; a damaged one says so where it is chosen."""
    try:
        return f"{trace}: {traces.about_named(trace).sampling()}"
    except TraceError:
        return f"{trace}: cannot be read"


def arms_that_fit(case: Case, arms: Sequence[str], loads: Sequence[int]) -> list[replays.Wanted]:
    """The cells of these arms and loads. Raises PolicyError, TraceError."""
    return case.wanted(labels(arms, case.opened()[0].about.K), loads)


def follow(
    page: str, case: Case, wanted: Sequence[replays.Wanted], draw: Callable[[replays.Seen], None]
) -> None:
    """Draw what stands by now, and again until all of it does. The app serves on meanwhile."""
    done = replays.seen(_reader(page), case, wanted).done

    def drawn() -> None:
        with refusals():
            seen = replays.seen(_reader(page), case, wanted)
            if not seen.done:
                st.progress(seen.share, text=f"Replaying: {100 * seen.share:.0f} % of {len(wanted)} cells")
            if seen.error:
                st.error(in_markdown(seen.error))
            draw(seen)
            if seen.done and not done:
                st.rerun()  # without the timer

    st.fragment(drawn, run_every=None if done else SECONDS, key=f"{page}-replay")()


def _reader(page: str) -> str:
    context = get_script_run_ctx()
    return f"{context.session_id if context else ''} {page}"
