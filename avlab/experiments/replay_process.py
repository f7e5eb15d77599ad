"""A process that replays cells: one order as a line of JSON, a line for each cell as it stands, and a last word.

`python -m avlab.experiments.replay_process`, started by `replay_pool`. It ends when nobody listens any more.
"""

import os
import sys
import threading
from dataclasses import astuple

from avlab.experiments.replay_cells import Serving, in_passes
from avlab.lines import Said, say, serve_lines
from avlab.machines import machine
from avlab.replay.traces import trace_named


def _serve(order: Said) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    trace = trace_named(order["trace"])
    emulated = machine(order["machine"], trace.about.K)
    servings = [Serving(trace, emulated, arm, load, order["seed"]) for arm, load in order["cells"]]
    for cell in in_passes(servings, order["passes"]):
        blocks = [astuple(block) for block in cell.blocks]
        say({"arm": cell.arm, "load": cell.load, "texts": cell.texts, "of": cell.of, "blocks": blocks})


def _end_with_parent() -> None:
    """The order's pipe closes when whoever gave it is gone."""
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    serve_lines(_serve, "A replay")
