"""The settings of the next run: one form over RunConfig, the same that the command line has."""

import re
import shlex
from typing import Any, Literal, get_args, get_origin

import streamlit as st
from pydantic import ValidationError

from avlab.config import DEFAULT_ARRIVAL, RunConfig
from avlab.engine.fetch import DEFAULT_TARGET
from avlab.engine.recommended import recommended
from avlab.escaping import in_markdown
from avlab.field_sentences import sentences
from avlab.kinds import reference
from avlab.ui import prompt_upload
from avlab.ui.presets import PRESETS
from avlab.workloads import kinds

GROUPS = {
    "What is served": ("policy", "target", "drafter", "K", "new_request", "head"),
    "Traffic": ("workload", "arrival", "temperature", "top_k", "top_p", "max_new_tokens", "seed", "strict"),
    "When it ends": ("duration", "tokens", "requests"),
    "What is kept": ("drafts", "features", "keep_text"),
    "The machine": (
        "max_num_seqs",
        "max_model_len",
        "max_num_batched_tokens",
        "device",
        "dtype",
        "threads",
        "spin",
        "costs",
        "depth_costs",
    ),
}
NAMES = {"K": "Draft positions K", "head": "Confidence head", "spin": "Spin count", "tokens": "Token limit"}
NAMES |= {
    "strict": "Strict prompt files",
    "drafts": "Raw draft slots",
    "features": "Features of raw draft slots",
    "requests": "Request limit",
    "duration": "Duration (s)",
}
SUGGESTED = {
    "policy": list(reference.POLICIES),
    "arrival": [DEFAULT_ARRIVAL, "closed:4", "closed:64", "poisson:2", "burst:32@30s"],
}


def values() -> dict[str, Any]:
    """This browser's settings: what differs from the defaults."""
    return st.session_state.setdefault("settings", {})


def check(given: dict[str, Any]) -> tuple[RunConfig | None, dict[str, str]]:
    """The configuration, or the sentence for each field that is wrong ("" for what concerns several)."""
    try:
        return RunConfig(**given), {}
    except ValidationError as error:
        found: dict[str, str] = {}
        for problem, sentence in zip(
            error.errors(include_url=False), sentences(error, RunConfig), strict=True
        ):
            place = str(problem["loc"][0]) if problem["loc"] else _named(sentence)
            found[place] = sentence
        return None, found


def _named(sentence: str) -> str:
    """The field that a sentence about several begins with, or ""."""
    word = re.match(r"(?:policy|arrival|max_new_tokens)\b", sentence)
    return word[0] if word else ""


def different(config: RunConfig) -> dict[str, Any]:
    """The settings that are not the defaults, the database left out."""
    recommended = RunConfig.make(target=config.target).sampling._asdict()
    default = RunConfig.make().model_dump() | recommended | {"database": config.database}
    return {name: value for name, value in config.model_dump().items() if value != default[name]}


def options(values: dict[str, Any]) -> list[str]:
    """Settings as options of the command line; what is None is left out."""
    words: list[str] = []
    for name, value in values.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            words += [f"--{flag}", f"{value:g}" if isinstance(value, float) else str(value)]
    return words


def command_line(config: RunConfig) -> str:
    """The call of the command line that starts the same run."""
    words = ["avlab", "run", *options(different(config))]
    if config.duration is None and config.tokens is None and config.requests is None:
        words += ["--duration", "forever"]
    return shlex.join(words)


@st.dialog("Settings of the next run", width="large")
def dialog() -> None:
    """The form: presets, fields by group, what is wrong beside its field, and the command line."""
    st.caption("A preset fills in the form. Nothing runs until you press Start.")
    for column, preset in zip(st.columns(len(PRESETS)), PRESETS, strict=True):
        column.button(preset.name, help=preset.shows, on_click=_fill, args=(preset.values,), width="stretch")
    if "form-policy" not in st.session_state:
        _fill(values())
    prompt_upload.field()
    wrong: dict[str, str] = st.session_state.get("form-wrong", {})
    with st.form("settings-form", border=False):
        for tab, names in zip(st.tabs(list(GROUPS)), GROUPS.values(), strict=True):
            with tab:
                columns = st.columns(2)
                for place, name in enumerate(names):
                    with columns[place % 2]:
                        _field(name)
                        if name in wrong:
                            st.markdown(f":red[:material/error: {in_markdown(wrong[name])}]")
        if wrong:
            hidden = "; ".join(_title(name) for name in wrong if name)
            st.error(in_markdown(wrong.get("") or f"Nothing was changed. Correct: {hidden}."))
        st.form_submit_button("Use these settings", type="primary", on_click=_submit)
    config, _ = check(values())
    if config and st.session_state.pop("form-saved", False):
        st.success("Press Start to run with these settings.")
    if config:
        st.caption("The same run from a terminal:")
        st.code(command_line(config), language="bash", wrap_lines=True)


def _title(name: str) -> str:
    return NAMES.get(name, name.replace("_", " ").capitalize())


def workloads() -> list[str]:
    """Workloads to choose from; others can be typed."""
    return ["mixed", *kinds(), "drift:code,essays@60s", "mixture:chat=2,code=1"]


def _field(name: str) -> None:
    field, key = RunConfig.model_fields[name], f"form-{name}"
    if field.annotation is bool:
        st.toggle(_title(name), key=key, help=field.description)
    elif get_origin(field.annotation) is Literal:
        st.selectbox(_title(name), get_args(field.annotation), key=key, help=field.description)
    elif name == "workload" or name in SUGGESTED:
        chosen = st.session_state.get(key)
        options = list(dict.fromkeys([*(SUGGESTED.get(name) or workloads()), *([chosen] if chosen else [])]))
        st.selectbox(_title(name), options, key=key, help=field.description, accept_new_options=True)
    else:
        st.text_input(_title(name), key=key, help=field.description, placeholder=_when_empty(name))


def _when_empty(name: str) -> str:
    """What an empty field means."""
    sampling = recommended(str(values().get("target", DEFAULT_TARGET)))._asdict()
    if name in sampling:
        return f"{sampling[name]:g}, as recommended"
    return "no limit" if name in GROUPS["When it ends"] else "automatic"


def _fill(chosen: dict[str, Any]) -> None:
    """Put settings into the form's fields."""
    for name in (name for names in GROUPS.values() for name in names):
        value = chosen.get(name, RunConfig.model_fields[name].get_default(call_default_factory=True))
        if name == "arrival" and value is None:
            value = DEFAULT_ARRIVAL
        plain = isinstance(value, bool) or get_origin(RunConfig.model_fields[name].annotation) is Literal
        text = "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
        st.session_state[f"form-{name}"] = value if plain else text
    st.session_state["form-wrong"] = {}


def _submit() -> None:
    given: dict[str, Any] = {}
    for name in (name for names in GROUPS.values() for name in names):
        value = st.session_state.get(f"form-{name}")
        field = RunConfig.model_fields[name]
        if value not in ("", None) or field.default is not None:
            given[name] = value.strip() if isinstance(value, str) else value
    config, wrong = check({name: value for name, value in given.items() if value is not None})
    st.session_state["form-wrong"] = wrong
    if config is not None:
        st.session_state["settings"] = different(config)
        st.session_state["form-saved"] = True
