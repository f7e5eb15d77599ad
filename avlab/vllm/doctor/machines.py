"""GPUs by name: compute capability, which decides the attention, and memory as the driver tells it, in GiB.

Memory decides vLLM's default of requests (`EngineArgs.get_batch_defaults`). Capabilities are NVIDIA's list
(https://developer.nvidia.com/cuda-gpus); memory is what nvidia-smi or rocm-smi tell of the card.
"""

import re
import subprocess
from dataclasses import replace

from avlab.vllm import VllmError
from avlab.vllm.doctor.findings import Machine

KNOWN: dict[str, Machine] = {
    "a10": Machine("nvidia", "A10", (8, 6), 22.5),
    "a100": Machine("nvidia", "A100", (8, 0), 79.3),
    "a6000": Machine("nvidia", "RTX A6000", (8, 6), 47.5),
    "l4": Machine("nvidia", "L4", (8, 9), 22.5),
    "l40s": Machine("nvidia", "L40S", (8, 9), 44.7),
    "rtx-4090": Machine("nvidia", "RTX 4090", (8, 9), 24.0),
    "h100": Machine("nvidia", "H100", (9, 0), 79.6),
    "h20": Machine("nvidia", "H20", (9, 0), 95.6),
    "h200": Machine("nvidia", "H200", (9, 0), 140.4),
    "gh200": Machine("nvidia", "GH200", (9, 0), 95.6),
    "b200": Machine("nvidia", "B200", (10, 0), 179.1),
    "gb200": Machine("nvidia", "GB200", (10, 0), 184.4),
    "b300": Machine("nvidia", "B300", (10, 3), 268.6),
    "gb300": Machine("nvidia", "GB300", (10, 3), 277.0),
    "rtx-5090": Machine("nvidia", "RTX 5090", (12, 0), 31.8),
    "rtx-pro-6000": Machine("nvidia", "RTX PRO 6000", (12, 0), 95.6),
    "gb10": Machine("nvidia", "GB10", (12, 1), 119.7),
    "mi300x": Machine("amd", "MI300X", None, 191.7),
    "mi325x": Machine("amd", "MI325X", None, 255.7),
    "mi355x": Machine("amd", "MI355X", None, 287.6),
    "cpu": Machine("cpu", "CPU"),
}
QUERY = ("nvidia-smi", "--query-gpu=name,compute_cap,memory.total", "--format=csv,noheader,nounits")
GIB = 2**30
API_SERVER = {"large": (1024, 16384), "middle": (1024, 8192), "small": (256, 2048)}  # requests, tokens


class MachineError(VllmError):
    """A GPU that is not in the list, or a capability that is none. The message is one sentence."""


def machine_here() -> Machine:
    """This machine, by nvidia-smi; an unknown one where there is none."""
    try:
        said = subprocess.run(QUERY, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return Machine()
    return machine_of(said)


def machine_of(said: str) -> Machine:
    """A machine from nvidia-smi's answer, a line a GPU: name, compute capability, MiB."""
    rows = [[part.strip() for part in line.split(",")] for line in said.splitlines() if line.strip()]
    try:
        name, capability, memory = rows[0]
        major, minor = map(int, capability.split("."))
        return Machine("nvidia", name, (major, minor), float(memory) / 1024, len(rows))
    except (IndexError, ValueError):
        return Machine()


def machine_named(name: str) -> Machine:
    """A machine by a GPU's name, as people write it: "H100", "rtx pro 6000", "NVIDIA-H100-80GB-HBM3".

    Raises MachineError with the names there are.
    """
    words = re.findall(r"[a-z0-9]+", name.lower())
    runs = {
        "".join(words[start:end]) for start in range(len(words)) for end in range(start + 1, len(words) + 1)
    }
    found = [key for key in KNOWN if key.replace("-", "") in runs]
    if not found:
        raise MachineError(
            f"There is no GPU {name!r} in this list: {', '.join(KNOWN)}; --capability 9.0 names one by its generation."
        )
    return KNOWN[max(found, key=len)]


def machine_of_capability(text: str) -> Machine:
    """An NVIDIA GPU of a compute capability, "9.0" or "90". Raises MachineError."""
    match = re.fullmatch(r"(?:sm_?)?(\d{1,2})\.?(\d)[a-z]?", text.strip().lower())
    if match is None or not 5 <= int(match[1]) <= 20:
        raise MachineError(f"--capability {text!r} is no compute capability: 8.0, 9.0, 10.3, 12.0.")
    major, minor = int(match[1]), int(match[2])
    return Machine("nvidia", "NVIDIA GPU", (major, minor))


def machine_for(
    gpu: str | None, gpus: int | None, memory_gib: float | None, capability: str | None = None
) -> Machine:
    """A machine by its GPU's name ("h100", "8xH100") or capability, or this one; number and memory as far as they are
    said.

    Raises MachineError.
    """
    counted = re.fullmatch(r"(\d+)\s*[x×*]\s*(\S.*)", gpu.strip()) if gpu else None
    if counted is not None:
        gpu, gpus = counted[2], gpus or int(counted[1])
    machine = (
        machine_named(gpu) if gpu else machine_of_capability(capability) if capability else machine_here()
    )
    if gpu and capability and machine_of_capability(capability).capability != machine.capability:
        told = ".".join(map(str, machine.capability)) if machine.capability else "no compute capability"
        raise MachineError(f"--gpu {gpu} has {told}, and --capability says {capability}: give one of them.")
    return replace(machine, gpus=gpus or machine.gpus, memory_gib=memory_gib or machine.memory_gib)


def default_batch(machine: Machine) -> tuple[int, int] | None:
    """Requests and tokens of a step that `vllm serve` takes where neither is said; None without the GPU's memory."""
    if machine.vendor == "cpu" or machine.memory_gib is None:
        return None
    small = machine.memory_gib < 70 or "a100" in machine.name.lower() or machine.capability == (12, 1)
    return API_SERVER["large" if machine.memory_gib >= 160 else "small" if small else "middle"]
