"""The run on show: which one it is, how it is, and what the address of the page says about it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import streamlit as st
from streamlit.runtime.scriptrunner import StopException

from avlab import formats, sample
from avlab.config import arrival_shown, sampled
from avlab.escaping import in_markdown
from avlab.figures.base import Columns
from avlab.kinds.base import Config
from avlab.kinds.registry import recorded_kind
from avlab.lab.supervisor import WorkerStatus
from avlab.store import queries
from avlab.ui import badge, host
from avlab.ui.refusals import refusals
from avlab.wire.commands import Experiment

TICK_SECONDS = 1.0  # of a live run
IDLE_SECONDS = 3.0  # of the sidebar while no worker runs
SPANS = {"whole run": None, "last minute": 60.0, "last 10 s": 10.0}


def end() -> NoReturn:
    """End the page here. `st.stop` also ends the session's queue, and loses the clicks that wait for this run's end."""
    raise StopException


@dataclass(frozen=True)
class Shown:
    """run: its id. description: as `queries.describe` gives it. live: the worker is serving it now."""

    run: str
    description: dict[str, Any]
    live: bool

    @property
    def watched(self) -> bool:
        """Whether the run has only a server's counters to show."""
        machine = self.description["machine"] or {}
        return self.of_server and not machine.get("extension")

    @property
    def of_server(self) -> bool:
        """Whether somebody else's server did what the run shows."""
        return recorded_kind(self.description["kind"]).watches

    @property
    def K(self) -> int:
        return int(self.description["K"])


def choose(runs: list[dict[str, Any]]) -> str | None:
    """The id of the run to show, and put it into the address. Follows the newest run until another is picked.

    runs: as `host.run_list` gives them. The address decides once, when the page is opened.
    """
    known = [run["run_id"] for run in runs]
    state = st.session_state
    if "follow" not in state:
        asked = st.query_params.get("run", "").lower()
        found = [
            run for run in known if asked and (run == asked or run.endswith(asked) or run.startswith(asked))
        ]
        state.run = found[0] if found else None
        state.follow = not found or found[0] == known[0]
        if asked and not found:
            state.unknown = asked
    awaited = host.lab().supervisor.status()
    if state.follow or state.run not in known:
        state.run = (
            awaited.run if awaited.alive and awaited.run not in known else (known[0] if known else None)
        )
    if state.run is not None:
        st.query_params["run"] = state.run
    return state.run


def pick(run: str, newest: bool) -> None:
    """Show this run from now on; the newest is followed."""
    st.session_state.run, st.session_state.follow = run, newest


def follow() -> None:
    """Show the newest run from now on."""
    st.session_state.follow = True


def start(config: Config, experiment: Experiment | None = None) -> None:
    """Start a run, or the A/B of a plan, and show it from now on. Raises WorkerError."""
    host.start(config, experiment)
    follow()


def page(
    title: str,
    question: str,
    without: Callable[[], None] = lambda: None,
    before: Callable[[], None] = lambda: None,
    of_watched: bool = False,
) -> Shown:
    """The head of a page, and the run it shows. Without one it says what to do, and the page ends there.

    without: draws what a page has to add where nothing runs and nothing was recorded. before: draws what it has between
    its question and the run. of_watched: it has something to show of a server that is only watched.
    """
    st.markdown(f"## {title}")
    st.markdown(f"<p class='avlab-question'>{question}</p>", unsafe_allow_html=True)
    before()
    if asked := st.session_state.pop("unknown", None):
        st.warning(f"No run answers to '{in_markdown(asked)}' in this database; this is the newest one.")
    run = st.session_state.get("run")
    status = host.lab().supervisor.status()
    recorded = [known["run_id"] for known in host.run_list()]
    if run is None or (status.run == run and run not in recorded):
        if not status.alive or not recorded:
            _nothing_yet(status)
            if not status.alive:
                without()
            end()
        _preparing()
        run = recorded[0]
    with host.connection() as con:
        description = queries.describe(con, run)
    shown = Shown(run, description, status.alive and status.run == run)
    badge.put(description["emulated"])
    _line(shown)
    if run in sample.shipped() and not status.alive:
        st.info(
            f"This recorded run ships with avlab. {sample.shipped()[run]} "
            "Press **Replay** in the sidebar for one on another machine's costs, within a second or two; **Start** "
            "serves a model on this machine.",
            icon=":material/play_circle:",
        )
    if shown.watched and not of_watched:
        st.info(
            "This run watches a server somebody else started: its counters do not cover this page. The "
            "Live page shows them; choose another run in the sidebar.",
            icon=":material/visibility_off:",
        )
        end()
    return shown


def _preparing() -> None:
    """What the worker of the run that was started does, second by second, above an earlier run."""

    def told() -> None:
        status = host.lab().supervisor.status()
        doing = re.sub(r"(\d+)/(\d+)$", r"(\1 of \2)", status.state)
        st.info(
            f"Your run is being prepared: **{doing}**. Its first tokens come within seconds. Until then, the run "
            "before it is shown.",
            icon=":material/hourglass_top:",
        )

    st.fragment(told, run_every=TICK_SECONDS, key="preparing")()


def _nothing_yet(status: WorkerStatus) -> None:
    if status.alive:
        st.info(
            f"The worker is preparing ({in_markdown(status.state)}). First tokens in a few seconds.",
            icon=":material/hourglass_top:",
        )
    elif status.error:
        st.error(in_markdown(status.error))
    else:
        st.info(
            "Nothing was recorded yet. Press **Start** in the sidebar: a model serves prompts here, and this "
            "page shows the run. Or **Replay**: recorded texts on another machine's costs, at once.",
            icon=":material/play_circle:",
        )


def _line(shown: Shown) -> None:
    about = shown.description
    config = about["config"]
    if shown.of_server:
        parts = [
            about["target"],
            config.get("url") or formats.DASH,
            f"every {config.get('interval') or 1.0:g} s",
        ]
    else:
        parts = [
            about["compared"] or config.get("policy") or formats.DASH,
            config.get("workload") or formats.DASH,
            arrival_shown(about["arrival"], config.get("workload")),
            sampled(config).words(),
        ]
    first, *others = map(in_markdown, parts)
    parts = [f"**{first}**", *others, formats.moment(about["started"]), f"`{shown.run[-8:]}`"]
    state = ":green-badge[live]" if shown.live else f":gray-badge[{about['state']}]"
    st.markdown(f"{state} " + " · ".join(parts))
    if about["emulated"]:
        st.markdown(f":violet-badge[:material/memory: {in_markdown(about['emulated'])}]")
    if about["state"] in ("failed", "cut short"):
        st.error(in_markdown(about["reason"] or "The run ended without a reason."), icon=":material/error:")


def tick(draw: Callable[[], None], shown: Shown) -> None:
    """Draw, and again every second while the run is live. Errors of ours are said in their sentence."""

    def drawn() -> None:
        with refusals():
            draw()

    st.fragment(drawn, run_every=TICK_SECONDS if shown.live else None, key=f"tick-{draw.__name__}")()


def span_named(seconds: float | None) -> str:
    """The name of a choice of `span`."""
    return next(name for name, length in SPANS.items() if length == seconds)


def span(key: str = "span") -> float | None:
    """The reader's choice of how much of the run to show, in seconds; None for all. It is in the address."""
    chosen = st.segmented_control(
        "Show", list(SPANS), default="whole run", key=key, bind="query-params", label_visibility="collapsed"
    )
    return SPANS.get(chosen or "whole run")


def within(columns: Columns, seconds: float | None) -> Columns:
    """The rows of the last `seconds` on the run's clock (column "time"); all for None."""
    if seconds is None or not len(columns.get("time", ())):
        return dict(columns)
    kept = columns["time"] >= columns["time"].max() - seconds
    return {name: column[kept] for name, column in columns.items()}
