"""The form of the next replay: whose costs, whose texts, how fast it moves, and what it serves."""

import shlex
from typing import Any, Literal, get_args, get_origin

import streamlit as st

from avlab import machines
from avlab.config import DEFAULT_ARRIVAL, ConfigError
from avlab.escaping import in_markdown
from avlab.kinds.replay import PACES, POLICIES, ReplayConfig
from avlab.replay import traces
from avlab.replay.doubts import doubts
from avlab.ui import record_trace
from avlab.ui.presets import REPLAY_PRESETS, Preset
from avlab.ui.settings import SUGGESTED, workloads

FIRST = ("machine", "trace", "pace")
GROUPS = {
    "What is served": ("policy", "workload", "arrival", "seed"),
    "When it ends": ("duration", "tokens", "requests"),
    "The machine": ("requests_at_once", "kv_tokens", "prefill_tokens", "new_request", "drafts"),
}
NAMES = {
    "kv_tokens": "Memory for keys and values (tokens)",
    "requests_at_once": "Requests at once",
    "prefill_tokens": "Prompt tokens a step",
    "drafts": "Raw draft slots",
    "duration": "Duration (s of that machine)",
    "tokens": "Token limit",
    "requests": "Request limit",
}
ABOUT = (
    "Replay: recorded texts on another machine's costs. Starts at once, needs no model; speeds are emulated."
)


def values() -> dict[str, Any]:
    """This browser's settings of a replay: what differs from the defaults."""
    return st.session_state.setdefault("replay-settings", {})


def config() -> ReplayConfig:
    """The configuration of the next replay. Raises ConfigError."""
    return ReplayConfig.make(values())


def in_short() -> str:
    """Whose costs and texts the next replay has, and its pace."""
    try:
        chosen = config()
        return f"{chosen.emulated.about.title}; trace {chosen.trace}; {pace_in_words(chosen.pace)}"
    except ConfigError as error:
        return str(error)


def pace_in_words(pace: str) -> str:
    """How fast a replay moves: "at that machine's speed", "as fast as it computes", "at 10 times its speed"."""
    words = {"machine": "at that machine's speed", "fast": "as fast as it computes"}
    return words.get(pace, f"at {pace} times that machine's speed")


@st.dialog("Settings of the next replay", width="large")
def dialog() -> None:
    """The form: presets, fields by group, what is wrong, and the command line of the same run."""
    st.caption(f"{ABOUT} A preset fills in the form. Nothing runs until you press Replay.")
    for column, preset in zip(st.columns(len(REPLAY_PRESETS)), REPLAY_PRESETS, strict=True):
        column.button(
            preset.name, key=f"replay-preset-{preset.name}", help=preset.shows, on_click=_choose, args=(preset,),
            width="stretch",
        )  # fmt: skip
    if "replay-machine" not in st.session_state:
        _fill(values())
        st.session_state["replay-shows"] = ""
    if shows := st.session_state.get("replay-shows"):
        st.info(shows)
    with st.form("replay-form", border=False):
        for column, name in zip(st.columns(len(FIRST)), FIRST, strict=True):
            with column:
                _field(name)
        for tab, names in zip(st.tabs(list(GROUPS)), GROUPS.values(), strict=True):
            with tab:
                columns = st.columns(2)
                for place, name in enumerate(names):
                    with columns[place % 2]:
                        _field(name)
        if problem := st.session_state.get("replay-wrong"):
            st.error(in_markdown(f"Nothing was changed: {problem}"))
        st.form_submit_button("Use these settings", type="primary", on_click=_submit)
    record_trace.draw()
    try:
        now = config()
    except ConfigError:
        return
    if st.session_state.pop("replay-saved", False):
        st.success("Press Replay to run with these settings.")
    about = now.emulated.about
    st.caption(
        in_markdown(
            f"In force now: {now.emulation}. Costs from {about.source} ({about.trust}; {about.licence})."
        )
    )
    for note in doubts(now.emulated, now.about):
        st.caption(in_markdown(note))
    st.caption("The run in force, from a terminal:")
    st.code(command_line(now), language="bash", wrap_lines=True)


def command_line(now: ReplayConfig) -> str:
    """The call of the command line that starts the same replay."""
    default = ReplayConfig.make().model_dump() | {"database": now.database}
    words = ["avlab", "run", "--machine", now.machine]
    for name, value in now.model_dump().items():
        if name != "machine" and value is not None and value != default[name]:
            words += [f"--{name.replace('_', '-')}", f"{value:g}" if isinstance(value, float) else str(value)]
    if now.duration is None and now.tokens is None and now.requests is None:
        words += ["--duration", "forever"]
    return shlex.join(words)


def _options(name: str) -> list[str]:
    """What a field offers; others can be typed."""
    match name:
        case "machine":
            return machines.known()
        case "trace":
            return traces.known()
        case "pace":
            return [*PACES, "10"]
        case "policy":
            return list(POLICIES)
        case "workload":
            return workloads()
        case "arrival":
            return [DEFAULT_ARRIVAL, *(each for each in SUGGESTED["arrival"] if each != DEFAULT_ARRIVAL)]
        case _:
            return []


def _field(name: str) -> None:
    field, key = ReplayConfig.model_fields[name], f"replay-{name}"
    title = NAMES.get(name, name.replace("_", " ").capitalize())
    if get_origin(field.annotation) is Literal:
        st.selectbox(title, get_args(field.annotation), key=key, help=field.description)
    elif offered := _options(name):
        offered = list(dict.fromkeys([*offered, st.session_state[key]]))
        st.selectbox(title, offered, key=key, help=field.description, accept_new_options=True)
    else:
        empty = "no limit" if name in GROUPS["When it ends"] else "automatic"
        st.text_input(title, key=key, help=field.description, placeholder=empty)


def _fill(chosen: dict[str, Any]) -> None:
    """Put settings into the form's fields."""
    for name in _names():
        field = ReplayConfig.model_fields[name]
        value = chosen.get(name, field.get_default(call_default_factory=True))
        text = "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
        st.session_state[f"replay-{name}"] = text or next(iter(_options(name)), "")
    st.session_state["replay-wrong"] = ""


def _choose(preset: Preset) -> None:
    _fill(preset.values)
    st.session_state["replay-shows"] = preset.shows


def _names() -> list[str]:
    return [*FIRST, *(name for names in GROUPS.values() for name in names)]


def _submit() -> None:
    given = {name: str(st.session_state.get(f"replay-{name}") or "").strip() for name in _names()}
    try:
        checked = ReplayConfig.make({name: value for name, value in given.items() if value})
    except ConfigError as error:
        st.session_state["replay-wrong"] = str(error)
        return
    default = ReplayConfig.make().model_dump()
    st.session_state["replay-wrong"] = ""
    st.session_state["replay-settings"] = {
        name: value
        for name, value in checked.model_dump().items()
        if name != "database" and value != default[name]
    }
    st.session_state["replay-saved"] = True
