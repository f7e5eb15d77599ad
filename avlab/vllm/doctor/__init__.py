"""Whether adaptive verification will start and pay, said before 100 GB of weights are loaded."""

from avlab.vllm.doctor.cautions import CAUTIONS, ON_MACHINES
from avlab.vllm.doctor.findings import Checkpoint, Finding, Machine, Traffic, ordered
from avlab.vllm.doctor.gates import FOR_ADAPTIVE, GATES
from avlab.vllm.settings import Settings


def examine(
    settings: Settings,
    machine: Machine | None = None,
    checkpoint: Checkpoint | None = None,
    traffic: Traffic | None = None,
) -> list[Finding]:
    """Every gate and every caution that has something to say, the worst first. What is not given is unknown.

    The gates of adaptive verification are asked where it is asked for.
    """
    machine, checkpoint, traffic = machine or Machine(), checkpoint or Checkpoint(), traffic or Traffic()
    asked = [gate for gate in GATES if settings.adaptive or gate not in FOR_ADAPTIVE]
    found = [gate(settings, checkpoint, machine) for gate in asked]
    cautions = [caution(settings, checkpoint, traffic) for caution in CAUTIONS]
    cautions += [caution(settings, checkpoint, traffic, machine) for caution in ON_MACHINES]
    return ordered([*found, *(each for each in cautions if each is not None)])


__all__ = ["Checkpoint", "Finding", "Machine", "Traffic", "examine", "ordered"]
