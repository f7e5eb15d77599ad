"""Where a step's time goes."""

import time

import torch


class Stopwatch:
    """Adds the time since the last lap to a phase."""

    def __init__(self, ms: dict[str, float], device: torch.device):
        self.ms, self.device, self.last = ms, device, time.perf_counter()

    def lap(self, phase: str) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        now = time.perf_counter()
        self.ms[phase] += (now - self.last) * 1e3
        self.last = now
