"""The playground's form and its buttons: what is asked of the worker, and how it is followed."""

import time

import streamlit as st

from avlab.errors import is_ours
from avlab.escaping import in_markdown
from avlab.lab.generation import Generation
from avlab.speculation.sampling import USUAL
from avlab.ui import host, settings
from avlab.ui.typed import number, text_of, whole
from avlab.wire import commands

EXAMPLES = {
    "Arithmetic": "A shop sells pens at 3 for 2 euros. How much do 12 pens cost? Show each step.",
    "Code": "Write a Python function that returns the n-th Fibonacci number, with a short docstring.",
    "A list": "List the seven days of the week, one a line.",
    "Verse": "Write four lines about the smell of rain.",
    "Essay": "Why do people keep diaries? Answer in one paragraph.",
}
FOLLOW_SECONDS = 0.5  # between two looks at what arrived
ANSWER_SECONDS = (
    2.0  # that a button waits for what it asked for, so that the page need not be looked at again
)


def form(arm: str) -> None:
    """What to serve. arm: the policy in force, which is the choice to begin with."""
    names = list(EXAMPLES)
    example = st.pills("Examples", names, default=names[0], key="example", label_visibility="collapsed")
    with st.form("playground", border=True):
        st.text_area(
            "Prompt",
            EXAMPLES.get(example or "", ""),
            key=f"prompt-{example}",
            height=90,
            placeholder="Type a prompt.",
        )
        policy, temperature, top_p, seed, length = st.columns([2, 1, 1, 1, 1])
        arms = list(dict.fromkeys([arm, *settings.SUGGESTED["policy"]]))
        policy.selectbox("Policy", arms, key="playground-arm", accept_new_options=True)
        temperature.text_input(
            "Temperature", f"{USUAL.temperature:g}", key="playground-temperature", help="0 is greedy."
        )
        top_p.text_input("Top-p", f"{USUAL.top_p:g}", key="playground-top-p", help="1 keeps every token.")
        seed.text_input("Seed", "0", key="playground-seed", help="The same seed gives the same tokens.")
        length.text_input("Max tokens", "80", key="playground-length")
        left, right, _ = st.columns([1, 1, 3])
        left.form_submit_button(
            "Step by step", type="primary", width="stretch", on_click=_ask, args=(True, example)
        )
        right.form_submit_button("Straight through", width="stretch", on_click=_ask, args=(False, example))
    if problem := st.session_state.get("playground-refused"):
        st.error(in_markdown(problem))


def controls() -> None:
    """The buttons of a generation in service, and a line that says how it is. Tells the worker that somebody looks."""
    generation = host.lab().generation.now
    if generation.active:
        _send(commands.Attend())
    waits = generation.state == "running" and bool(generation.command and generation.command.step_by_step)
    one, two, three, _ = st.columns([1, 1, 1, 2])
    one.button(
        "Step", key="playground-step", icon=":material/skip_next:", width="stretch", disabled=not waits,
        on_click=_send, args=(commands.Advance(),),
    )  # fmt: skip
    two.button(
        "Run on", key="playground-on", icon=":material/fast_forward:", width="stretch", disabled=not waits,
        on_click=_send, args=(commands.Advance(to_the_end=True),),
    )  # fmt: skip
    three.button(
        "End", key="playground-end", icon=":material/close:", width="stretch", disabled=not generation.active,
        on_click=_send, args=(commands.Leave(),),
    )  # fmt: skip
    st.markdown(_line(generation))
    if generation.state == "refused":
        st.error(in_markdown(generation.said))


ENDS = {"end": "End of text", "length": "It reached its limit", "cancelled": "You ended it"}


def _line(generation: Generation) -> str:
    said = sum(len(step.tokens) for step in generation.steps)
    counted = f"{said} tokens in {len(generation.steps)} steps under **{generation.arm}**"
    match generation.state:
        case "asked":
            return ":violet-badge[asked] The worker answers after its current step."
        case "running":
            return f":violet-badge[the workload waits] {counted}"
        case "ended":
            note = f" {generation.said}" if generation.said else ""
            ended = ENDS.get(generation.finish, generation.finish)
            return f":gray-badge[the workload goes on] {ended}: {counted}.{note}"
    return ""


def _ask(step_by_step: bool, example: str | None) -> None:
    state = st.session_state
    state["playground-refused"] = ""
    try:
        command = commands.Generate(
            messages=[{"role": "user", "content": state[f"prompt-{example}"]}],
            max_tokens=whole(text_of("playground-length"), "Max tokens", 1, 1000),
            arm=state["playground-arm"] or "",
            temperature=number(text_of("playground-temperature"), "Temperature", 0.0, 10.0),
            top_p=number(text_of("playground-top-p"), "Top-p", 0.01, 1.0),
            seed=whole(text_of("playground-seed"), "Seed", 0, 2**53 - 1),
            step_by_step=step_by_step,
        )
        host.lab().generate(command)
    except Exception as error:
        if not is_ours(error):
            raise
        state["playground-refused"] = str(error)
        return
    _await(1)


def _send(command: commands.Command) -> None:
    seen = len(host.lab().generation.now.steps)
    try:
        host.lab().supervisor.send(command)
    except Exception as error:
        if not is_ours(error):
            raise
        return  # the run has ended, and the page says so
    if not isinstance(command, commands.Attend):
        _await(seen + 1)


def _await(steps: int) -> None:
    """Until so many steps have arrived or the generation is over, or for a moment."""
    end = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < end:
        generation = host.lab().generation.now
        if not generation.active or len(generation.steps) >= steps:
            return
        time.sleep(0.02)
