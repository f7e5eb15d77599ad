"""The benchmark: how fast and how small the reference engine and the recorder are, against stated bars.

A measure is one module in `avlab.bench.measures` that holds `MEASURES`; it is found by name and runs in a process of
its own, with the threads and spin count a worker would have. Nothing outside that process imports torch.
"""

from avlab.bench.runner import main

__all__ = ["main"]
