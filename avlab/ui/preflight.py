"""Preflight on a page: a published system, a command of one's own or a running server, and what vLLM says to it."""

from collections.abc import Sequence

import streamlit as st

from avlab.escaping import in_markdown
from avlab.formats import counted
from avlab.ui.refusals import refusals
from avlab.ui.typed import Fields
from avlab.vllm import SERVED
from avlab.vllm.doctor import Finding, Traffic
from avlab.vllm.doctor.cautions import TARGET_ONLY
from avlab.vllm.doctor.command import examine_line
from avlab.vllm.doctor.look import installed_version
from avlab.vllm.doctor.machines import KNOWN, machine_for
from avlab.vllm.doctor.matrix import matrix
from avlab.vllm.doctor.running import examine_running
from avlab.vllm.launch_files import pasted
from avlab.vllm.presets import names, preset
from avlab.vllm.serve_line import ServeLine
from avlab.vllm.server import Server, base_url

OWN, RUNNING, HERE = "a command of my own", "a server that runs", "this machine"
MARKS = {
    "refuses": ":red[:material/block:]",
    "warns": ":orange[:material/warning:]",
    "unknown": ":gray[:material/help:]",
    "passes": ":green[:material/check:]",
}


def form() -> ServeLine | None:
    """Choose a system and a GPU; the findings follow. Returns the command, None where there is none."""
    left, right = st.columns((2, 1))
    chosen = left.selectbox("System", [*names(), OWN, RUNNING], key="preflight-system", bind="query-params")
    running = chosen == RUNNING
    gpu = right.selectbox(
        "GPU", [HERE, *KNOWN], key="preflight-gpu", bind="query-params", disabled=running,
        help="A running server has passed its checks.",
    )  # fmt: skip
    if running:
        _running()
        return None
    line = _line(chosen)
    if line is None:
        return None
    with st.expander("More about the machine and the traffic"):
        fields = Fields()
        gpus, memory_gib, weights_gib, version = _machine(fields)
        traffic = _traffic(fields)
    with refusals():
        fields.check()
        machine = machine_for(None if gpu == HERE else gpu, gpus, memory_gib)
        known = "" if chosen == OWN else preset(chosen).model_type
        _tell(examine_line(line, machine, version, traffic, known, weights_gib), f"on {machine.described}")
    return line


def _machine(fields: Fields) -> tuple[int | None, float | None, float | None, str]:
    """GPUs, memory of one and weights in GiB, and vLLM's version, as far as the reader says."""
    first, second, third, last = st.columns(4)
    gpus = fields.whole(
        first,
        "GPUs",
        1,
        1024,
        None,
        key="preflight-gpus",
        help="Empty: as many as this machine has.",
    )
    memory = fields.number(
        second, "Memory of one (GiB)", 1.0, 10_000.0, None, key="preflight-memory",
        help="With the size of the weights, says whether they fit.",
    )  # fmt: skip
    weights = fields.number(
        third, "Weights (GiB)", 0.0, 100_000.0, None, key="preflight-weights",
        help="Target and drafter together. Empty: read from their folders, if they are on this machine.",
    )  # fmt: skip
    version = last.text_input(
        "vLLM", key="preflight-version", placeholder=installed_version() or SERVED, help="vLLM's version."
    )
    return gpus, memory, weights, version.strip()


def _traffic(fields: Fields) -> Traffic:
    """What is going to be asked of the server, as far as the reader says."""
    first, second, third, last = st.columns((1, 1, 1, 2))
    requests = fields.whole(
        first, "Requests at a time", 1, 100_000, None, key="preflight-requests", help="Of all users together."
    )
    temperature = fields.number(
        second,
        "Temperature",
        0.0,
        10.0,
        None,
        key="preflight-temperature",
        help="The requests' sampling temperature.",
    )
    dataset = third.text_input(
        "Data set", key="preflight-dataset", placeholder="sharegpt, random",
        help="The data set you will measure with.",
    )  # fmt: skip
    sampling = last.multiselect(
        "Sampling parameters", sorted(TARGET_ONLY), key="preflight-sampling",
        help="Those your requests use beside temperature, top-k and top-p.",
    )  # fmt: skip
    return Traffic(dataset.strip(), temperature, tuple(sampling), requests)


def _running() -> None:
    """Ask a server, when the reader says so; its answer stays until another is asked."""
    left, middle, right = st.columns((2, 1, 1))
    url = left.text_input("Address", key="preflight-url", placeholder="http://HOST:8000")
    key = middle.text_input(
        "Key's variable", key="preflight-key",
        help="Name of an environment variable of this dashboard that holds the API key; never the key itself.",
    )  # fmt: skip
    ca_file = right.text_input(
        "Certificates",
        key="preflight-ca",
        help="A file of certificates to trust for https, beside the system's.",
    )
    with st.expander("More about the traffic"):
        fields = Fields()
        traffic = _traffic(fields)
    state = st.session_state
    if st.button("Examine", key="preflight-ask", icon=":material/stethoscope:"):
        state.pop("preflight-told", None)
        with refusals(), st.spinner("Asking the server"):
            fields.check()
            try:
                server = Server(base_url(url), key.strip(), ca_file.strip() or None)
            except ValueError as error:
                st.error(in_markdown(error))
                return
            state["preflight-told"] = (server.url, examine_running(server, traffic))
    if told := state.get("preflight-told"):
        _tell(told[1], f"at {told[0]}")


def _tell(findings: Sequence[Finding], where: str) -> None:
    refused = sum(finding.verdict == "refuses" for finding in findings)
    st.markdown(
        f"**{counted(refused, 'check')} of {len(findings)} would stop vLLM** {where}."
        if refused
        else f"**No check would stop vLLM** {where}."
    )
    for finding in findings:
        st.markdown(_told(finding))


def _line(chosen: str) -> ServeLine | None:
    """The command to examine; shown, or asked for."""
    if chosen != OWN:
        found = preset(chosen)
        st.caption(f"{found.title}. {found.about} Published on {found.published}.")
        if found.refuses:
            st.warning(found.refuses)
        st.code(found.line.shell(), language="bash", wrap_lines=True)
        with st.expander("Sources"):
            for source in found.sources:
                st.markdown(f"- {source.url}: {source.says}")
        return found.line
    text = st.text_area(
        "Command",
        key="preflight-command",
        placeholder="vllm serve MODEL --speculative-config '{...}'",
        help="A vllm serve or docker run command, a script, a compose file or a Kubernetes manifest.",
    )
    if not text.strip():
        return None
    with refusals():
        started = pasted(text)
        if len(started) > 1:
            first = started[0].name or started[0].line.model
            st.caption(f"{len(started)} servers are in there; the first is examined: {in_markdown(first)}.")
        return started[0].line
    return None


def support() -> None:
    """Every model that ships with the doctor, on each generation of GPUs."""
    with st.expander("Which models start adaptively on which GPUs"):
        st.caption(
            f"vLLM {SERVED} with its defaults, checked against its own code. An arrow names the `--attention-backend` "
            "with which it serves there; every other setting can still refuse: check the command above."
        )
        cells = matrix()
        rows: dict[str, dict[str, str]] = {}
        for cell in cells:
            rows.setdefault(cell.model, {})[cell.gpu] = cell.short
        st.dataframe(
            [{"model": model, **verdicts} for model, verdicts in rows.items()],
            hide_index=True,
            width="stretch",
        )
        model = st.selectbox("Reasons for", list(rows), key="preflight-support")
        for cell in cells:
            if cell.model == model:
                remedy = f" → {cell.remedy}" if cell.remedy else ""
                st.markdown(
                    f"{MARKS[cell.verdict]} **{cell.gpu}.** {cell.reason}{remedy}".replace("$", "\\$")
                )


def _told(finding: Finding) -> str:
    remedy = f" → {finding.remedy}" if finding.remedy else ""
    return f"{MARKS[finding.verdict]} **{finding.gate}.** {finding.reason}{remedy}".replace("$", "\\$")
