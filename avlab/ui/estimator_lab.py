"""What the Estimators page asks of traces and machines; answers are kept, so that only what is new is computed."""

import streamlit as st

from avlab.experiments import estimator_learning as learning
from avlab.experiments.estimator_losses import Rung
from avlab.experiments.estimator_losses import losses as found_losses
from avlab.experiments.estimator_scores import Judged
from avlab.experiments.estimator_scores import judge as judged
from avlab.machines import known as machines
from avlab.machines import machine as machine_named
from avlab.replay.traces import known as traces
from avlab.replay.traces import trace_named

__all__ = ["about", "estimators", "losses_of", "machines", "scores_of", "traces"]
REPEATS = 4  # sets of texts behind the losses: what a page can wait for


def about(trace: str, machine: str) -> str:
    """Whose drafts and whose costs, in a sentence."""
    recorded = trace_named(trace)
    return (
        f"{recorded.about.target} at {recorded.about.sampling()}: {recorded.texts} texts, {recorded.anchors:,} drafts "
        f"of {recorded.about.K} positions. Speeds are emulated by the costs of "
        f"{machine_named(machine, recorded.about.K).about.title}."
    )


def estimators(trace: str) -> list[str]:
    """Those that can be judged on a trace."""
    return learning.judgeable(trace_named(trace))


@st.cache_data(max_entries=40, show_spinner=False)
def scores_of(trace: str, machine: str, name: str) -> Judged:
    """One estimator on a trace."""
    recorded = trace_named(trace)
    return judged(recorded, machine_named(machine, recorded.about.K), [name])[0]


@st.cache_data(max_entries=40, show_spinner=False)
def losses_of(trace: str, machine: str, name: str, load: int, depth: bool) -> list[Rung]:
    """What one estimator's arm loses there."""
    recorded = trace_named(trace)
    emulated = machine_named(machine, recorded.about.K)
    return found_losses(recorded, emulated, name, load, depth, repeats=REPEATS)
