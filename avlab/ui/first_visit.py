"""What stands above the run that a first visit opens on: its scene, what is to be seen, and where to go next."""

import streamlit as st

from avlab import formats, story
from avlab.escaping import in_markdown
from avlab.figures.base import Columns
from avlab.ui import host, settings, shown
from avlab.ui.refusals import refusals

WAS = (
    "**What this was:** recorded texts on the published step costs of four B300 GPUs, emulated, while policy and load "
    "changed. Dotted lines mark the changes of policy; the table below gives each part's tokens/s. With 128 requests "
    "adaptive verification is ahead of fixed:2, the best fixed length there, and far ahead of fixed:7."
)


def shows_it(run: shown.Shown) -> bool:
    """Whether this run is the one of a first visit."""
    return story.is_story(run.description)


def scene(run: shown.Shown, steps: Columns) -> None:
    """The scene under way; of a run that has ended, what it was. Its place keeps its height when the words change."""
    seconds = float(steps["time"][-1]) if len(steps.get("step", ())) else 0.0
    now = story.scene_at(seconds)
    number = story.SCENES.index(now) + 1
    ends = [scene.begins for scene in story.SCENES[1:]] + [story.SECONDS]
    with st.container(key="avlab-scene", border=True):
        st.markdown(
            f"**{number} of {len(ends)}: {now.title}** · {formats.counted(now.requests, 'request')} · `{now.policy}` · "
            f"next in {max(ends[number - 1] - seconds, 0.0):.0f} s  \n{now.says}"
            if run.live
            else WAS
        )


def ways_on(run: shown.Shown) -> None:
    """Buttons that lead on from the story."""
    left, middle, right = st.columns(3)
    left.button(
        "Your own machine, real engine", key="own-machine", type="primary", icon=":material/play_arrow:",
        width="stretch", on_click=_own_machine,
        help="Ends this replay. A model serves prompts here with the lab's own engine, which times its steps first.",
    )  # fmt: skip
    middle.button(
        "Once more", key="story-again", icon=":material/replay:", width="stretch", disabled=run.live,
        on_click=_again,
    )  # fmt: skip
    right.page_link(
        "pages/tour.py", label="How it works, in eight scenes", icon=":material/school:", width="stretch"
    )


def _own_machine() -> None:
    with refusals():
        config, wrong = settings.check(settings.values())
        if config is None:
            st.error(in_markdown(" ".join(wrong.values())))
            return
        host.replace(config)
        shown.follow()


def _again() -> None:
    with refusals():
        story.play(host.lab())
        shown.follow()
