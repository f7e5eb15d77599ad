"""The form that starts a run served by vLLM, on the command that the page examines."""

from collections.abc import Sequence

import streamlit as st

from avlab.config import DEFAULT_ARRIVAL
from avlab.engine.recommended import recommended
from avlab.experiments.plan import MOST_ROUNDS, make_plan
from avlab.kinds.vllm import ENGINES, WITHIN, other_python
from avlab.ui import host, shown
from avlab.ui.ab_setup import MOST_REQUESTS
from avlab.ui.refusals import refusals
from avlab.ui.typed import Fields
from avlab.vllm.doctor.look import installed_version
from avlab.vllm.serve_line import ServeLine
from avlab.vllm.serving_config import VllmConfig


def form(line: ServeLine | None) -> None:
    """Traffic and length of a run on this command."""
    if line is None:
        st.caption("Choose a system above, or write a command: the lab serves that.")
        return
    missing = installed_version() is None and not other_python()
    busy = host.lab().supervisor.status().alive
    left, middle, right, last = st.columns(4)
    workload = left.text_input("Workload", "mixed", key="vllm-workload")
    arrival = middle.text_input("Arrivals", DEFAULT_ARRIVAL, key="vllm-arrival")
    fields = Fields()
    sampling = recommended(line.model)
    temperature = fields.number(
        right, "Temperature", 0.0, 10.0, sampling.temperature, key="vllm-temperature",
        help=f"As the checkpoint recommends, where it lies on this machine; so is top-p, {sampling.top_p:g}.",
    )  # fmt: skip
    policy = last.text_input(
        "Policy", "", key="vllm-policy", placeholder="as the command says", help="adaptive or verify:k"
    )
    left, middle, right, last = st.columns((2, 1, 1, 1), vertical_alignment="bottom")
    arms = left.text_input("Compare", "", key="vllm-arms", placeholder="for an A/B: adaptive,verify:3")
    fields.arms(left, [arm for arm in arms.split(",") if arm.strip()], None)
    rounds = fields.whole(middle, "Rounds", 1, MOST_ROUNDS, 30, key="vllm-rounds")
    requests = fields.whole(
        right, "Requests", 1, MOST_REQUESTS, 16, key="vllm-requests", help="Concurrent requests, in an A/B."
    )
    engines = last.checkbox("One engine per arm", key="vllm-engines", help=ENGINES)
    ready = not busy and not missing
    if st.button("Serve", type="primary", key="vllm-start", icon=":material/play_arrow:", disabled=not ready):
        values = {"serve": line.shell(), "workload": workload, "temperature": temperature, "engines": engines}
        with refusals():
            fields.check()
            if arms.strip():
                _start(values, arms.split(","), rounds, requests)
            else:
                _start(values | {"arrival": arrival, "policy": policy.strip()})
    if missing:
        st.caption(
            "vLLM is not installed beside this dashboard. On a machine with a GPU, `make run GPU=1` brings it."
        )
    elif busy:
        st.caption("A worker is serving or watching: stop it in the sidebar first.")
    st.caption(WITHIN)


def _start(values: dict[str, object], arms: Sequence[str] = (), rounds: int = 0, requests: int = 0) -> None:
    """Start the run, or the A/B of these arms, and show its page."""
    config = VllmConfig.make(values)
    if arms:
        shown.start(*make_plan(config, arms, concurrency=requests, rounds=rounds))
        st.switch_page("pages/ab.py")
    else:
        shown.start(config)
        st.switch_page("pages/live.py")
