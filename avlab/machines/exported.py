"""A machine's step costs in the files of SGLang and TensorRT-LLM.

SGLang's additive table (`speculative/dspark_components/dspark_sps.py`, `SpsAdditiveCostTable`): a step of R requests
and M tokens takes bias + alpha(R) + theta(M) seconds. TensorRT-LLM's (`_torch/speculative/dspark_planner.py`,
`SpsCostTable`, the form without a schema number): step_time_ms by token_counts, fixed_overhead_ms, and
batch_overhead_ms by batch_sizes. Its second schema carries digests of the engine that was
measured, which nobody else can write.
"""

from collections.abc import Callable

from avlab.machines import Machine, MachineError

DENSE = 64  # sizes up to here are all written; beyond, steps of an eighth


def exported(found: Machine, K: int, engine: str) -> dict[str, object]:
    """The file's object for drafts of K. Raises MachineError for an engine that is not known, and for flat costs: both
    engines would take every draft to be free.
    """
    if engine not in ENGINES:
        raise MachineError(f"There is no table for {engine!r}: choose {' or '.join(ENGINES)}.")
    tokens = sizes(found.about.most_tokens)
    costs = [found.milliseconds(0, 0, size)[1] for size in tokens]
    if len({round(cost, 6) for cost in costs}) < 2:
        raise MachineError(f"{found.about.title} costs the same at every size: nothing was measured there.")
    requests = sizes(found.about.most_requests)
    drafts = [found.milliseconds(load, K, 1)[0] for load in requests]
    rest = found.milliseconds(1, 0, 1)[2]
    return ENGINES[engine](tokens, costs, requests, drafts, rest)


def sizes(most: int) -> list[int]:
    """Sizes from 1 at which a table is written: a straight line lies between two."""
    found = list(range(1, min(most, DENSE) + 1))
    while found[-1] < most:
        found.append(min(found[-1] + max(found[-1] // 8, 1), most))
    return found


def _sglang(
    tokens: list[int], costs: list[float], requests: list[int], drafts: list[float], rest: float
) -> dict[str, object]:
    return {
        "bias_seconds": rest / 1e3,
        "bs_probes": requests,
        "alpha_seconds": [ms / 1e3 for ms in drafts],
        "m_probes": tokens,
        "theta_seconds": [ms / 1e3 for ms in costs],
        "max_batch_tokens": tokens[-1],
    }


def _tensorrt(
    tokens: list[int], costs: list[float], requests: list[int], drafts: list[float], rest: float
) -> dict[str, object]:
    return {
        "token_counts": tokens,
        "step_time_ms": costs,
        "fixed_overhead_ms": rest,
        "batch_sizes": requests,
        "batch_overhead_ms": drafts,
    }


ENGINES: dict[str, Callable[..., dict[str, object]]] = {"sglang": _sglang, "tensorrt": _tensorrt}
