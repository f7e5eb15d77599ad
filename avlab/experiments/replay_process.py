"""A process that replays cells: one order as a line of JSON, a line for each cell as it stands, and a last word.

`python -m avlab.experiments.replay_process`, started by `replay_pool`. It ends when nobody listens any more.
"""

import json
import os
import sys
import threading
import traceback
from dataclasses import astuple
from typing import Any

from avlab import plugins
from avlab.errors import is_ours
from avlab.experiments.replay_cells import Serving, in_passes
from avlab.machines import machine
from avlab.replay.traces import trace_named


def main() -> None:
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        plugins.load_named()
        _serve(order)
        _say({"error": ""})
    except BrokenPipeError:
        os._exit(0)
    except Exception as error:
        if not is_ours(error):
            traceback.print_exc()
        _say(
            {"error": str(error) if is_ours(error) else f"A replay failed ({type(error).__name__}: {error})."}
        )


def _serve(order: dict[str, Any]) -> None:
    trace = trace_named(order["trace"])
    emulated = machine(order["machine"], trace.about.K)
    servings = [Serving(trace, emulated, arm, load, order["seed"]) for arm, load in order["cells"]]
    for cell in in_passes(servings, order["passes"]):
        blocks = [astuple(block) for block in cell.blocks]
        _say({"arm": cell.arm, "load": cell.load, "texts": cell.texts, "of": cell.of, "blocks": blocks})


def _say(said: dict[str, Any]) -> None:
    print(json.dumps(said), flush=True)


def _end_with_parent() -> None:
    """The order's pipe closes when whoever gave it is gone."""
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
