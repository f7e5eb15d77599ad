"""What happened in a run, newest first."""

import streamlit as st

from avlab import formats
from avlab.escaping import in_markdown

ROWS = 50
ICONS = {"info": "", "warning": ":material/warning: ", "error": ":red[:material/error:] "}
ENDS = {"done": "The run finished.", "stopped": "The run was stopped."}  # reasons, as the worker names them


def events_table(events: list[dict]) -> None:
    """The last events, newest first."""
    st.markdown("#### Events")
    if not events:
        st.caption("No events.")
        return
    shown = [event for event in reversed(events) if event["kind"] != "log"][:ROWS]
    with st.container(height=270, border=False):
        for event in shown:
            text = in_markdown(ENDS.get(event["text"], event["text"]) or event["kind"])
            when = formats.seconds(event["time"])
            st.markdown(
                f"{'' if when == formats.DASH else f'`{when}` '}{ICONS.get(event['level'], '')}{text}"
            )
    st.caption("Faults, refusals, pauses and changes, newest first. Times are since the run's start.")
