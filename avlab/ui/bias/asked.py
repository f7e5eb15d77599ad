"""What a part asks of the real engine: one process at a time for all browsers of this dashboard, and its progress."""

import atexit
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from avlab.bias.process import AskedProcess
from avlab.escaping import in_markdown
from avlab.ui import host

TICK_SECONDS = 1.0
Setting = str | int | None | Sequence[str]  # as a part's form has it


@dataclass(frozen=True)
class Asked:
    """A process, and what it was asked for: settings by their names on the page, which may have changed since."""

    process: AskedProcess
    order: Mapping[str, Setting]


_asked: dict[str, Asked] = {}  # the newest of each part; at most one of them is at work
_starting = threading.Lock()


def buttons(
    part: str,
    words: str,
    icon: str,
    make: Callable[[], AskedProcess],
    ready: bool,
    note: str,
    order: Mapping[str, Setting] | None = None,
) -> None:
    """The button that starts `make`, or stops what it started, and beside it what stands in the way, or a note.

    part: whose process it is. ready: whether the part's settings make an order. order: these settings by name; the
    answers are shown with them.
    """
    left, right = st.columns([1, 4], vertical_alignment="center")
    serving, others = _serving(), any(_busy(each) for each in _asked if each != part)
    if _busy(part):
        left.button(
            "Stop", icon=":material/stop:", on_click=stop, args=(part,), width="stretch", key=f"stop-{part}"
        )
    else:
        left.button(
            words, type="primary", icon=icon, width="stretch", on_click=_start, args=(part, make, order or {}),
            key=f"start-{part}",
            disabled=serving or others or not ready,
        )  # fmt: skip
    if serving:
        right.info("A worker is serving, and this would spoil its timing: stop it in the sidebar first.")
    elif others:
        right.info("Another part of this page is at work on the engine: wait for it, or stop it there.")
    else:
        right.caption(note)


def rows(part: str, show: Callable[[list[dict[str, Any]]], None]) -> None:
    """What was asked, progress or what went wrong, and `show` for the rows so far; renewed each second of work."""
    asked = _asked.get(part)
    if asked is None:
        return
    process = asked.process
    if asked.order:
        st.caption(
            "Below: "
            + "; ".join(f"{name} {in_markdown(_said(value))}" for name, value in asked.order.items())
            + "."
        )

    def tick() -> None:
        _progress(part, process)
        if process.rows:
            show(list(process.rows.values()))

    st.fragment(tick, run_every=TICK_SECONDS if _busy(part) else None)()


def _progress(part: str, process: AskedProcess) -> None:
    """How far a process is, or what went wrong; at its end the page is drawn once more, to tick no longer."""
    text, done, total = process.progress
    if process.error:
        st.error(in_markdown(process.error))
    elif not process.done.is_set():
        share = min(done / total, 1.0) if total else 0.0
        st.progress(share, text=f"{text}: {done:,} of {total:,}" if total else text)
    elif st.session_state.get(f"seen-{part}") is not process:
        st.session_state[f"seen-{part}"] = process
        st.rerun()


def newest(part: str) -> Asked | None:
    """What a part asked last."""
    return _asked.get(part)


def stop(part: str) -> None:
    """End a part's process, whatever it is doing."""
    if part in _asked:
        _asked[part].process.close()


def _said(value: Setting) -> str:
    """A setting's value in words."""
    if isinstance(value, int):
        return f"{value:,}"
    return str(value) if value is None or isinstance(value, str) else ", ".join(value)


def _busy(part: str) -> bool:
    return part in _asked and not _asked[part].process.done.is_set()


def _serving() -> bool:
    return host.lab().supervisor.status().alive


def _start(part: str, make: Callable[[], AskedProcess], order: Mapping[str, Setting]) -> None:
    """Start a part's process, unless something began since the button was drawn, perhaps in another browser.

    The page, which is drawn next, says what.
    """
    with _starting:
        if not _serving() and not any(map(_busy, _asked)):
            _asked[part] = Asked(make(), dict(order))


@atexit.register
def _stop_all() -> None:
    for part in _asked:
        stop(part)
