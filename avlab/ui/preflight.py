"""Preflight on a page: a published system or a command of the reader's own, and what vLLM would say to it."""

from collections.abc import Sequence

import streamlit as st

from avlab.ui.refusals import refusals
from avlab.vllm import SERVED
from avlab.vllm.doctor import Finding, Traffic, examine
from avlab.vllm.doctor.look import KNOWN, checkpoint_of, installed_version, machine_here, machine_named
from avlab.vllm.presets import names, preset
from avlab.vllm.serve_line import ServeLine
from avlab.vllm.settings import from_line

OWN, HERE = "a command of my own", "this machine"
MARKS = {
    "refuses": ":red[:material/block:]",
    "warns": ":orange[:material/warning:]",
    "unknown": ":gray[:material/help:]",
    "passes": ":green[:material/check:]",
}


def form() -> ServeLine | None:
    """Choose a system and a GPU; the findings follow. Returns the command, None where there is none."""
    left, right = st.columns((2, 1))
    chosen = left.selectbox("System", [*names(), OWN], key="preflight-system", bind="query-params")
    gpu = right.selectbox("GPU", [HERE, *KNOWN], key="preflight-gpu", bind="query-params")
    line = _line(chosen)
    if line is None:
        return None
    with refusals():
        machine = machine_here() if gpu == HERE else machine_named(gpu)
        known = "" if chosen == OWN else preset(chosen).model_type
        checkpoint = checkpoint_of(line.model, line.speculative.get("model"), known)
        settings = from_line(line, installed_version() or SERVED)
        _tell(examine(settings, machine, checkpoint, Traffic()), machine.described)
    return line


def _tell(findings: Sequence[Finding], machine: str) -> None:
    refused = sum(finding.verdict == "refuses" for finding in findings)
    st.markdown(
        f"**{refused} of {len(findings)} would refuse** on {machine}."
        if refused
        else f"**Nothing here refuses** on {machine}."
    )
    for finding in findings:
        st.markdown(_told(finding))


def _line(chosen: str) -> ServeLine | None:
    """The command to examine; shown, or asked for."""
    if chosen != OWN:
        found = preset(chosen)
        st.caption(f"{found.title}. {found.about} Published on {found.published}.")
        st.code(found.line.shell(), language="bash", wrap_lines=True)
        with st.expander("Sources"):
            for source in found.sources:
                st.markdown(f"- {source.url}: {source.says}")
        return found.line
    text = st.text_area(
        "Command", key="preflight-command", placeholder="vllm serve MODEL --speculative-config '{...}'"
    )
    if not text.strip():
        return None
    with refusals():
        return ServeLine.parse(text.replace("\\\n", " "))
    return None


def _told(finding: Finding) -> str:
    remedy = f" → {finding.remedy}" if finding.remedy else ""
    return f"{MARKS[finding.verdict]} **{finding.gate}.** {finding.reason}{remedy}".replace("$", "\\$")
