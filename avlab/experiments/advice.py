"""Settings for a server from replayed cells: how many requests at once, which draft length, which captured size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from avlab.experiments.replay_sweep import Number
from avlab.vllm.sweep_plan import capture_size

NEAR = 0.97  # of the greatest throughput: as good as it, chosen here


@dataclass(frozen=True)
class AtLoad:
    """The best length at a load: by tokens/s. over_next: how much better than the second best."""

    load: int
    K: int
    tokens_per_s: float
    user_tokens_per_s: float
    over_next: float | None


@dataclass(frozen=True)
class Advice:
    """max_num_seqs, its K and the captured size, and what each load would take. enough: the wish for a user was met."""

    max_num_seqs: int
    K: int
    capture: int
    enough: bool
    loads: tuple[AtLoad, ...]


def advise(rows: Sequence[Mapping[str, Number]], least_user: float | None = None) -> Advice:
    """From `replay_sweep.rows` of the arms none and fixed:k. least_user: tokens/s that every user shall have.

    With it: the largest load whose best length still gives that; without: the smallest load with nearly the greatest
    throughput, beyond which users wait for nothing. The length is the fastest at that load.
    """
    by_load: dict[int, list[tuple[float, float, int]]] = {}
    for row in rows:
        arm = str(row["arm"])
        K = 0 if arm == "none" else int(arm.removeprefix("fixed:"))
        cell = (_number(row["tokens_per_s"]), _number(row["tokens_per_s_per_user"]), K)
        by_load.setdefault(int(_number(row["requests"])), []).append(cell)
    loads = []
    for load, cells in sorted(by_load.items()):
        best, *others = sorted(cells, reverse=True)
        loads.append(AtLoad(load, best[2], best[0], best[1], best[0] / others[0][0] if others else None))
    if least_user is not None:
        within = [each for each in loads if each.user_tokens_per_s >= least_user]
        chosen, enough = (within[-1], True) if within else (loads[0], False)
    else:
        greatest = max(each.tokens_per_s for each in loads)
        chosen, enough = next(each for each in loads if each.tokens_per_s >= NEAR * greatest), True
    largest = max(each.K for each in loads if each.load <= chosen.load)
    return Advice(chosen.load, chosen.K, capture_size(largest, chosen.load), enough, tuple(loads))


def _number(value: Number) -> float:
    return float(value) if value is not None else 0.0
