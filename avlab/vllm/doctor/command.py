"""A command, examined: what its model is, what vLLM makes of its settings, and the findings."""

from dataclasses import replace

from avlab.vllm import SERVED
from avlab.vllm.doctor import examine
from avlab.vllm.doctor.arguments import arguments
from avlab.vllm.doctor.findings import Finding, Machine, Traffic, ordered
from avlab.vllm.doctor.look import checkpoint_of, installed_version, resolved
from avlab.vllm.serve_line import ServeLine
from avlab.vllm.settings import from_line


def examine_line(
    line: ServeLine,
    machine: Machine | None = None,
    version: str = "",
    traffic: Traffic | None = None,
    model_type: str = "",
    weights_gib: float | None = None,
) -> list[Finding]:
    """The findings of a command on a machine.

    version: of vLLM, else the one installed, else the one that this lab serves with. model_type: what is known of the
    model without its file. Raises LookError where a checkpoint cannot be read.
    """
    taken, told = resolved(line)
    checkpoint = checkpoint_of(taken.model, taken.speculative.get("model"), model_type)
    if weights_gib is not None:
        checkpoint = replace(checkpoint, weights_gib=weights_gib)
    settings = from_line(taken, version or installed_version() or SERVED)
    found = examine(settings, machine, checkpoint, traffic) + arguments(line, settings.version)
    if told:
        source = "vllm/transformers_utils/config.py, maybe_override_with_speculators"
        found.append(Finding("model", "passes", told, source=source))
    return ordered(found)
