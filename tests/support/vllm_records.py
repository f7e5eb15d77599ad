"""What the worker extension answers, made up: records of steps, refits and calibration."""

import time

from avlab.vllm.extension import REFIT_FIELDS, STEP_FIELDS, VECTORS

K = 3


def step_row(number, admitted):
    values = dict.fromkeys(STEP_FIELDS, 1.0) | {
        "number": number, "time": time.monotonic(), "requests": 2, "prompt_tokens": 0, "target_tokens": 4,
        "budget": sum(admitted), "verify": -1, "emitting": 2, "tokens": 3,
    }  # fmt: skip
    vectors = {"scheduled": [2, 2, 1], "admitted": admitted, "accepted": [1, 0, 0], "labelled": [2, 1, 0]}
    return [values[name] for name in STEP_FIELDS] + [vectors[name] for name in VECTORS]


def record(numbers, refits=(), counts=0, **more):
    found = {
        "step_fields": [*STEP_FIELDS, *VECTORS],
        "refit_fields": list(REFIT_FIELDS),
        "next": max(numbers, default=-1) + 1,
        "dropped": 0,
        "steps": [step_row(number, [2, 1, 0]) for number in numbers],
        "refits_made": [[n, 7, time.monotonic(), 0.5, [0.0] * K, [5] * K, [3] * K] for n in refits],
        "calibration": {"online": [[0, 64, counts, counts // 2, 0.5 * counts, 0.1, 0.2]] if counts else []},
        "clock": time.monotonic(),
    }
    return found | more


ABOUT = {"K": K, "source": "online", "missing": [], "offset": 0.0, "steps": True, "switch": True}
