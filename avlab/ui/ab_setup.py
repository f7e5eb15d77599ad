"""The form that sets an A/B up and starts it."""

import contextlib
from collections.abc import Callable, Sequence

import streamlit as st

from avlab.config import ConfigError, RunConfig
from avlab.escaping import in_markdown
from avlab.experiments.plan import ARMS, DECIDED, DEFAULT_BLOCKS, DESIGNS, MOST_ROUNDS, make_plan, notes
from avlab.policies.arm import PolicyError, arm_of, labels, unlabelled
from avlab.store import queries
from avlab.ui import host, settings, shown
from avlab.ui.refusals import refusals
from avlab.ui.typed import Fields
from avlab.wire.commands import Experiment

MOST_REQUESTS, MOST_LEARNING = 4096, 100_000


def form() -> None:
    """Arms, design, block length, rounds; traffic and sampling are those of Settings."""
    busy = host.lab().supervisor.status().alive
    with host.connection() as con:
        seen = st.session_state.get("run") in queries.experiment_runs(con)
    with st.expander("Set up an A/B", expanded=not busy and not seen, icon=":material/science:"):
        fields = Fields()
        arms, baseline, concurrency, rounds = _arms(fields)
        design, block, washout, learn = _blocks(fields)
        traffic = base_config()
        st.caption(
            f"Traffic: {in_markdown(traffic.workload)}, {traffic.sampling.words()}; everything else as in Settings "
            "(sidebar)."
        )
        planned = arms, baseline, concurrency, rounds, design, block, washout, learn
        say_notes(lambda: make_plan(base_config(), *planned))
        if st.button(
            "Start the A/B", type="primary", key="ab-start", icon=":material/play_arrow:", disabled=busy
        ):
            with refusals():
                fields.check()
                config, plan = make_plan(base_config(), *planned)
                shown.start(config, plan)
                st.rerun()
        if busy:
            st.caption("A worker is serving: stop it in the sidebar before another A/B.")


def _arms(fields: Fields) -> tuple[list[str], str | None, int, int]:
    """What is compared: arms, baseline, requests under way, rounds."""
    known = list(dict.fromkeys([*ARMS, *settings.SUGGESTED["policy"]]))
    arms = st.multiselect(
        "Arms", known, default=list(ARMS), key="ab-arms", accept_new_options=True,
        help="Policies to compare. Type others, such as fixed:1 or verify:3.",
    )  # fmt: skip
    fields.arms(st, arms, draft_positions())
    if twice := said_twice(arms):
        st.caption(twice)
    left, middle, right = st.columns(3)
    baseline = left.selectbox(
        "Baseline", arms, index=_first_fixed(arms), key="ab-baseline", help="Ratios are relative to this arm."
    )
    concurrency = fields.whole(middle, "Requests under way", 1, MOST_REQUESTS, 16, key="ab-concurrency")
    rounds = fields.whole(
        right, "Rounds", 1, MOST_ROUNDS, 30, key="ab-rounds",
        help="More rounds narrow the intervals. You may look, and stop, at any time.",
    )  # fmt: skip
    return arms, baseline, concurrency, rounds


def _blocks(fields: Fields) -> tuple[str, str, int, int]:
    """How it is compared: design, length of a block, steps of wash-out and of learning."""
    design = (
        st.segmented_control("Design", list(DESIGNS), default="switchback", key="ab-design") or "switchback"
    )
    st.caption("  \n".join(f"**{name.capitalize()}.** {text}" for name, text in DESIGNS.items()))
    left, middle, right = st.columns(3)
    block = left.text_input(
        "Block", DEFAULT_BLOCKS[design], key=f"ab-block-{design}",
        help="Length of a counted block: 40steps, 2s.",
    )  # fmt: skip
    washout = fields.whole(
        middle, "Wash-out (steps)", 1, 1000, 4, key="ab-washout",
        help="Steps after each switch that are not counted.",
    )  # fmt: skip
    learn = fields.whole(
        right, "Learning (steps)", 0, MOST_LEARNING, 200, key="ab-learn",
        help="Each adaptive arm serves these before the first round, to learn.",
    )  # fmt: skip
    return design, block, washout, learn


def say_notes(make: Callable[[], tuple[RunConfig, Experiment]]) -> None:
    """What a reader should know of the plan that stands in the form; nothing while that cannot be served."""
    with contextlib.suppress(ConfigError):
        for note in notes(make()[1]):
            st.caption(note)


def draft_positions() -> int | None:
    """K of this browser's settings; None where it is the drafter's, or the settings are wrong."""
    with contextlib.suppress(ConfigError):
        return base_config().K
    return None


def said_twice(arms: Sequence[str]) -> str:
    """What becomes of policies that stand there twice, under whatever name; "" where none does."""
    with contextlib.suppress(PolicyError):
        again = [label for label in labels(arms) if "#" in label]
        return again_means(again) if again else ""
    return ""


def again_means(again: Sequence[str]) -> str:
    """What labels such as none#2 mean, in a sentence."""
    which = ", ".join(f"{label} is {unlabelled(label)} again" for label in again)
    zero = " (fixed:0 is none)" if any(not arm_of(label).drafts for label in again) else ""
    return f"{which}{zero}: comparing an arm with itself shows the noise."


def base_config() -> RunConfig:
    """This browser's settings, without what the plan of an experiment decides. Raises ConfigError."""
    kept = {name: value for name, value in settings.values().items() if name not in DECIDED}
    return RunConfig.make(kept, policy="none")


def _first_fixed(arms: list[str]) -> int | None:
    fixed = (
        place for place, arm in enumerate(arms) if arm_of(arm).verified is not None and arm_of(arm).drafts
    )
    return next(fixed, 0 if arms else None)
