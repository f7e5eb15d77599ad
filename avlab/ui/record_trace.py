"""Recording a trace from the dashboard: of the pair and the sampling that the settings of the next run name."""

import streamlit as st

from avlab.config import ConfigError, RunConfig
from avlab.escaping import in_markdown
from avlab.lab import recording_job
from avlab.lab.recording import NOT_OF_A_TRACE
from avlab.replay.about import TraceError
from avlab.ui import settings
from avlab.ui.typed import Fields

TICK_SECONDS = 1.0
LEAST, MOST, USUAL = 1, 100_000, 140
ABOUT = (
    "Texts of the next run's workload by its model, at its sampling, with a draft at every position. It takes one "
    "core, some minutes for 140 texts, and slows a run that serves meanwhile."
)


def options(config: RunConfig) -> list[str]:
    """The options of `avlab trace record` that say the same as these settings."""
    given = settings.different(config)
    return settings.options({name: value for name, value in given.items() if name not in NOT_OF_A_TRACE})


def draw() -> None:
    """A name, how many texts, and a button; while one is recorded, how far it is and a button that stops it."""
    st.markdown("**Record a trace of your own**")
    st.caption(ABOUT)
    left, middle, right = st.columns([3, 2, 2], vertical_alignment="bottom")
    name = left.text_input("Name of the new trace", key="record-name", placeholder="own")
    typed = Fields()
    texts = typed.whole(middle, "Texts", LEAST, MOST, USUAL, key="record-texts")
    job = recording_job.current()
    busy = job is not None and job.running
    if right.button("Record", key="record-start", disabled=busy, width="stretch"):
        try:
            typed.check()
            config = RunConfig.make(settings.values())
            recording_job.start(name.strip() or "own", texts, options(config))
            busy = True
        except (ConfigError, TraceError) as error:
            st.error(in_markdown(error))
            return
    st.fragment(_progress, run_every=TICK_SECONDS if busy else None)()


def _progress() -> None:
    job = recording_job.current()
    if job is None:
        return
    if job.running:
        st.progress(min(job.done / job.due, 1.0), text=f"{job.name}: {job.done} of {job.due} texts")
        st.button("Stop recording", key="record-stop", on_click=recording_job.stop)
    else:
        st.caption(in_markdown(job.said()))
