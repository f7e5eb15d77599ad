"""Memory in use on NVIDIA GPUs, as their driver says: whether what vLLM held is free again."""

import shutil
import subprocess
import time
from collections.abc import Callable, Sequence

MUCH_MB = 512  # above what was in use before, that is worth a word
FREE_SECONDS = 30.0  # a driver takes some to reclaim what ended processes held


def in_use() -> list[int]:
    """Megabytes in use on each NVIDIA GPU; [] where there is none."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    asked = [command, "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, timeout=20).stdout
        return [int(line) for line in said.split()]
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return []


def wait_free(before: Sequence[int], seconds: float, waiting: Callable[[], None]) -> int:
    """Wait until each GPU holds about what it held before, for so many seconds at most; the megabytes by which the
    fullest is above it then, 0 where that is little. waiting: called twice a second meanwhile.
    """
    end = time.monotonic() + seconds
    while before:
        left = max((now - then for then, now in zip(before, in_use(), strict=False)), default=0)
        if left <= MUCH_MB:
            return 0
        if time.monotonic() >= end:
            return left
        waiting()
        time.sleep(0.5)
    return 0
