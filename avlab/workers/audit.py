"""The process that audits: `python -m avlab.workers.audit`, its order as one JSON line on standard input.

It answers in JSON lines: {"progress": [text, done, total]}, {"found": row} while a row grows, {"result": rows} at
the end, or {"error": sentence}. It ends when its standard input is closed, so that it does not outlive whoever asked.
"""

import json
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from avlab.config import RunConfig
from avlab.errors import is_ours

SAY_SECONDS = 0.5  # between two reports
LEVEL = 0.01


def main() -> None:
    """Audit as ordered, and say so."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints goes to the log

    def answer(**line: Any) -> None:
        print(json.dumps(line), file=answers)

    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        answer(result=audit(order, answer))
    except Exception as error:
        traceback.print_exc()
        answer(error=str(error) if is_ours(error) else f"The audit failed ({type(error).__name__}: {error}).")
    answers.flush()
    os._exit(0)  # the thread still waits for input


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(1)


def audit(order: dict[str, Any], answer: Callable[..., None]) -> list[dict[str, Any]]:
    """A row for each rule and seed. order: config, rules, seeds, prompt, continuations, K."""
    from avlab.engine.audit.audit import Audit
    from avlab.engine.audit.build import load
    from avlab.engine.audit.rules import parse

    rules = [parse(text) for text in order["rules"]]
    config = RunConfig.make(order["config"])
    target, drafter, text = load(config, order["K"], lambda *what: answer(progress=what))
    prompt = text.encode([{"role": "user", "content": order["prompt"]}])
    tests, shared, rows = 2 * len(rules) * len(order["seeds"]), None, []
    for rule in rules:
        answer(progress=[f"rows behind the prompt, {rule.label}", 0, 0])
        first = None
        for seed in order["seeds"]:
            made = Audit(target, drafter, prompt, rule, config.temperature, seed, shared)
            shared = made.shared
            exact = made.exact_total_variation() if first is None else first
            made.prepare(order["continuations"])
            first, began, said, history = exact, time.perf_counter(), 0.0, []
            for counts in made.continuations(order["continuations"]):
                now = time.perf_counter()
                done = int(counts.one.sum())
                if now - said < SAY_SECONDS and done < order["continuations"]:
                    continue
                said = now
                one, two = made.fits(counts, tests)
                history.append([done, one.p_value, two.p_value, one.total_variation, one.noise_floor])
                row = {
                    "rule": rule.text,
                    "label": rule.label,
                    "sound": rule.sound,
                    "seed": seed,
                    "continuations": done,
                    "per_second": round(done / (now - began), 1),
                    "exact_total_variation": exact,
                    "tests": tests,
                    "one": describe(one),
                    "two": describe(two),
                    "rejected": min(one.corrected, two.corrected) < LEVEL,
                    "prefixes": shared.nodes,
                    "history": history,
                }
                answer(found=row)
                answer(progress=[rule.label, done, order["continuations"]])
            rows.append(row)
    return rows


def describe(fit) -> dict[str, Any]:
    """A fit as JSON; a statistic that is infinite is None."""
    return {
        "cells": fit.cells,
        "statistic": fit.statistic if math.isfinite(fit.statistic) else None,
        "p_value": fit.p_value,
        "corrected": fit.corrected,
        "total_variation": fit.total_variation,
        "noise_floor": fit.noise_floor,
    }


if __name__ == "__main__":
    main()
