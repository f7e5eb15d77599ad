"""Workloads: where prompts come from and when they arrive. Nothing here imports torch or needs a network."""

from .base import Kind, Prompt, WorkloadError, split
from .registry import kinds, prompts

__all__ = ["Kind", "Prompt", "WorkloadError", "kinds", "prompts", "split"]
