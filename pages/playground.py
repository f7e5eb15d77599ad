"""Playground: a prompt of the reader's own, step by step."""

import streamlit as st

from avlab.kinds.registry import kind_named
from avlab.kinds.replay import ReplayConfig
from avlab.store import queries
from avlab.ui import host, prompting, sidebar
from avlab.ui.shown import page
from avlab.ui.tokens import shipped_answer, tokens

TITLE = "Playground"
ICON = ":material/edit_note:"
ORDER = 70

shown = page(
    TITLE,
    "What does one step do to one request: which draft tokens are made, verified and kept, with what probabilities?",
    without=sidebar.start_button,
)
lab = host.lab()
status = lab.supervisor.status()


def follow() -> None:
    """The generation in service, or the last one."""
    prompting.controls()
    generation = lab.generation.now
    if generation.steps:
        tokens(generation.steps, f"{status.run}{generation.request}")


def without_model() -> None:
    """What stands where no prompt can be served: the last answer, or the one that ships."""
    last = lab.generation.now
    if last.steps:
        st.markdown("#### The last answer")
        tokens(last.steps, f"last-{status.run}{last.request}")
        return
    shipped_answer()


if status.run is None or not status.alive:
    st.info(
        "The playground needs a model that is serving: press **Start a run**, then type a prompt here.",
        icon=":material/play_circle:",
    )
    sidebar.start_button()
    without_model()
elif not kind_named(status.kind).playground:
    st.info(
        "The worker replays recorded texts and serves no prompts of yours: stop it, and press **Start**. Below is an "
        "answer that was recorded."
        if status.kind == ReplayConfig.kind
        else "This worker serves no prompts of yours: stop it, and start a run.",
        icon=":material/edit_off:",
    )
    without_model()
elif sidebar.is_preparing(status):
    st.info(
        f"The worker is preparing ({status.state}). Type a prompt here in a few seconds.",
        icon=":material/hourglass_top:",
    )
    without_model()
else:
    st.markdown(
        "While your prompt is served, **the workload waits**: its requests and its clock are paused. The estimator "
        "predicts but does not learn, and the run's rates leave this time out."
    )
    with host.connection() as con:
        keeps = queries.describe(con, status.run)["config"].get("keep_text")
    st.caption(
        "This run keeps text: your prompts and their tokens, step by step, are stored with it."
        if keeps
        else "This run keeps no text: your prompt and its tokens are not stored, and the next prompt replaces them. "
        "To keep them, start a run with the setting *Keep text*."
    )
    prompting.form(lab.tally.snapshot()["policy"])
    st.fragment(follow, run_every=prompting.FOLLOW_SECONDS, key="follow")()

with host.connection() as con:
    found = queries.generations(con, shown.run)
served_now = lab.generation.now.request if shown.live else 0
kept = {each["request"]: each for each in found if each["request"] != served_now}
if kept:
    st.markdown("#### Earlier prompts of the run on show")
    chosen = st.selectbox(
        "Prompt",
        list(reversed(kept)),
        index=None,
        placeholder="Choose a prompt",
        format_func=lambda request: f"{-request}: {(kept[request]['prompt'] or 'cut short').strip()[:90]}",
        label_visibility="collapsed",
    )
    if chosen is not None:
        about = kept[chosen]
        parts = [f"**{about['arm']}**"]
        if about["finish"]:
            parts += [
                f"temperature {about['temperature']:g}",
                f"top-p {about['top_p']:g}",
                f"seed {about['seed']}",
                f"{about['output_tokens']} tokens",
            ]
        st.markdown(" · ".join(parts))
        with host.connection() as con:
            tokens(queries.generation_steps(con, shown.run, chosen), f"{shown.run}{chosen}")
elif not shown.live:
    st.caption(
        "No prompts of the playground are stored with this run: it does not keep text, or nobody typed one."
    )
