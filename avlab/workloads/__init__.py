"""Workloads: where prompts come from and when they arrive. Nothing here imports torch or needs a network."""

from .arrivals import Arrivals, Moment, open_arrivals
from .base import Kind, Prompt, WorkloadError, split
from .files import read_prompts
from .registry import kinds, prompts
from .stream import Stream
from .traffic import DEFAULT_ARRIVAL, Request, Workload, known_workloads, open_stream, open_workload

__all__ = [
    "DEFAULT_ARRIVAL",
    "Arrivals",
    "Kind",
    "Moment",
    "Prompt",
    "Request",
    "Stream",
    "Workload",
    "WorkloadError",
    "kinds",
    "known_workloads",
    "open_arrivals",
    "open_stream",
    "open_workload",
    "prompts",
    "read_prompts",
    "split",
]
