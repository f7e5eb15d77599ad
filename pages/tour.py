"""Tour: eight scenes that explain adaptive verification, for a reader or a class."""

import streamlit as st

from avlab.escaping import in_markdown
from avlab.tour import all_scenes
from avlab.tour.base import Scene
from avlab.ui import badge, classroom
from avlab.ui.chart import chart

TITLE = "Tour"
ICON = ":material/school:"
ORDER = 16

ALL = all_scenes()
NAMES = [scene.name for scene in ALL]


def go(to: int) -> None:
    st.session_state["scene"] = NAMES[to]


def place_of(scene: Scene) -> int:
    """The position of the scene's control that the reader chose."""
    control, key = scene.control, f"tour-at-{scene.name}"
    st.session_state.setdefault(key, control.options[control.at])
    if control.slider:
        chosen = st.select_slider(control.label, control.options, key=key)
    else:
        chosen = st.segmented_control(control.label, control.options, key=key) or ""
    return control.options.index(chosen) if chosen in control.options else control.at


def revealed(scene: Scene) -> bool:
    """Whether the figure may be seen: where the scene asks first, once there is an answer."""
    quiz = scene.quiz
    if quiz is None:
        return True
    chosen = st.pills(quiz.asked, quiz.answers, key=f"quiz-{scene.name}")
    if chosen is None:
        st.caption("Answer to see the figure.")
        return False
    right = quiz.answers[quiz.right]
    st.markdown(f"**Right.** {right}." if chosen == right else f"**Not quite.** It is: {right}.")
    return True


if "scene" not in st.session_state:
    asked = st.query_params.get("scene", "")
    st.session_state["scene"] = asked if asked in NAMES else NAMES[0]
large = st.session_state.get("classroom", False) or st.query_params.get("classroom") == "true"
if large:
    classroom.enlarge()
steps = st.container(key="avlab-tour-steps")
first, second, third, last = steps.columns([1, 4, 1, 1.4], vertical_alignment="center")
name = second.segmented_control(
    "Scene", NAMES, key="scene", label_visibility="collapsed",
    format_func=lambda each: f"{NAMES.index(each) + 1}", width="stretch",
)  # fmt: skip
number = NAMES.index(name) if name in NAMES else 0
scene = ALL[number]
st.query_params["scene"] = scene.name
first.button(
    "Back", key="tour-previous", icon=":material/arrow_back:", disabled=number == 0, on_click=go,
    args=(number - 1,), width="stretch",
)  # fmt: skip
third.button(
    "Next", key="tour-next", icon=":material/arrow_forward:", disabled=number == len(ALL) - 1, on_click=go,
    args=(number + 1,), width="stretch", type="primary",
)  # fmt: skip
with last:
    classroom.toggle()
classroom.keys()

st.markdown(f"## {number + 1} · {scene.title}")
st.markdown(f"<p class='avlab-question'>{scene.question}</p>", unsafe_allow_html=True)
badge.put(scene.emulated() if scene.emulated else "")
if revealed(scene):
    place = place_of(scene)
    if scene.name == "learning":
        st.button(
            "Forget", icon=":material/restart_alt:", disabled=place == 0,
            on_click=st.session_state.__setitem__, args=(f"tour-at-{scene.name}", scene.control.options[0]),
        )  # fmt: skip
    view = scene.draw(place)
    st.markdown(f"**{view.says}**")
    if large:
        view.figure.update_layout(height=classroom.CHART_HEIGHT, font={"size": classroom.LETTERS})
    chart(view.figure, f"tour-{scene.name}", view.title, view.reading)
    if scene.emulated:
        st.caption(in_markdown(f"Speeds are {scene.emulated()}."))
with st.expander("Speaker's notes", icon=":material/speaker_notes:"):
    st.markdown("\n".join(f"- {note}" for note in scene.notes))
st.caption("Arrow keys step through the scenes. The address leads to this one.")
