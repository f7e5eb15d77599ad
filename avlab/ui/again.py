"""A recorded run once more: with its settings, its seed and the step costs that it decided by."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from avlab.cost_file import text_of
from avlab.kinds.base import Config
from avlab.kinds.reference import KIND as REFERENCE_KIND
from avlab.kinds.registry import kind_named, make_config
from avlab.kinds.replay import ReplayConfig
from avlab.store import queries
from avlab.store.errors import NoCosts
from avlab.ui import host, shown
from avlab.ui.refusals import refusals

REFERENCE = REFERENCE_KIND.config.kind
REPEATED = (REFERENCE, ReplayConfig.kind)
HELP = (
    "Starts a run with the same settings, seed and step costs: the same tokens, where arrivals count steps."
)


def settings_of(description: Mapping[str, Any], costs: Path | None) -> Config:
    """The configuration of a run, as `queries.describe` gives it, with these costs. Raises ConfigError.

    What an older avlab recorded and this one does not know is left out.
    """
    kind = description["kind"]
    known = set(kind_named(kind).config.model_fields) - {"database"}
    values = {
        name: value for name, value in description["config"].items() if name in known and value is not None
    }
    if costs is not None:
        values["costs"] = str(costs)
    return make_config(values, kind)


def button(run: str) -> None:
    """A button that starts it, where a run of its kind can be started here."""
    with host.connection() as con:
        description = queries.describe(con, run)
    if description["kind"] not in REPEATED or description["compared"]:
        return
    busy = host.lab().supervisor.status().alive
    st.button(
        "Run again with this seed and these costs", icon=":material/replay:", help=HELP, disabled=busy,
        on_click=_start, args=(run, description),
    )  # fmt: skip


def _start(run: str, description: Mapping[str, Any]) -> None:
    with refusals():
        shown.start(settings_of(description, _costs(run) if description["kind"] == REFERENCE else None))


def _costs(run: str) -> Path | None:
    """A file of the costs that the run timed, beside the database; None where it timed none."""
    try:
        with host.connection() as con:
            found = queries.cost_samples(con, run)
    except NoCosts:
        return None
    path = host.lab().database.path.with_name(f"costs-{run[-8:]}.json")
    path.write_text(text_of(found["draft"], found["verify"]), encoding="utf-8")
    return path
