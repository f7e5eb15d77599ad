"""What happened in a run, as a table."""

import streamlit as st

from avlab.ui import formats

ROWS = 200
ICONS = {"info": "", "warning": "⚠️ ", "error": "⛔ "}


def events_table(events: list[dict]) -> None:
    """The last events, newest first."""
    st.markdown("#### Events")
    if not events:
        st.caption("Nothing out of the ordinary has happened.")
        return
    rows = [
        {"at": formats.seconds(event["time"]), "what": ICONS.get(event["level"], "") + (event["text"] or event["kind"])}
        for event in reversed(events[-ROWS:])
        if event["kind"] != "log"
    ]
    st.dataframe(
        rows, hide_index=True, height=300,
        column_config={"at": st.column_config.TextColumn(width="small"), "what": st.column_config.TextColumn(width="large")},
    )  # fmt: skip
    st.caption("Faults, refusals, pauses and changes, newest first, on the run's own clock.")
