"""The process in which measures are taken: `python -m avlab.bench.child`, orders as JSON lines on standard input.

It answers in JSON lines: {"progress": [text, done, total]} as it goes on, then {"result": ...}, {"absent": sentence}
or {"error": sentence}.
"""

import contextlib
import json
import math
import os
import sys
import traceback
from dataclasses import asdict
from pathlib import Path

from avlab.bench.base import Context, NotMeasured, all_measures
from avlab.config import RunConfig
from avlab.errors import is_ours


def main() -> None:
    """Take measures as they are ordered, one a line, until there are no more."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints goes to the log

    def answer(**line) -> None:
        print(json.dumps(line), file=answers)

    for line in sys.stdin:
        order = json.loads(line)
        context = Context(
            config=RunConfig.make(order["config"]),
            quick=order["quick"],
            folder=Path(order["folder"]),
            costs=Path(order["costs"]),
            key=order.get("key", ""),
            progress=lambda text, done, total: answer(progress=[text, done, total]),
        )
        try:
            measure = next(each for each in all_measures() if each.name == order["measure"])
            result = measure.run(context)
        except NotMeasured as reason:
            answer(absent=str(reason))
        except Exception as error:
            traceback.print_exc()
            answer(error=str(error) if is_ours(error) else f"{type(error).__name__}: {error}")
        else:
            result.values = {name: _finite(value) for name, value in result.values.items()}
            answer(result=asdict(result), machine=machine_facts())


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def machine_facts() -> dict:
    """What this process ran on, as a run records it, with what the processor has for bfloat16."""
    from avlab.about import code_version
    from avlab.workers.reference import machine

    built = sys.modules.get("avlab.bench.lab")
    facts = machine(*(built.ran_on() if built else ("cpu", "none")))
    facts["code"] = code_version()
    with contextlib.suppress(OSError):
        flags = Path("/proc/cpuinfo").read_text().split()
        facts["bfloat16"] = [name for name in ("avx512_bf16", "amx_bf16") if name in flags]
    return facts


if __name__ == "__main__":
    main()
