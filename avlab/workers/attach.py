"""The worker that watches a vLLM server: `python -m avlab.workers.attach`, its order as JSON on standard input."""

import sys

from avlab.vllm.attach import Watch
from avlab.vllm.attach_config import AttachConfig
from avlab.workers.entry import Order, work


def serve(order: Order[AttachConfig]) -> str:
    """Watch to the end; an error of ours is its sentence."""
    return Watch(order).run()


if __name__ == "__main__":
    sys.exit(work(serve, AttachConfig.kind))
