"""What a frontier says, in sentences: which arm is on it where, how sure that is, and the best arm within a limit."""

from collections.abc import Sequence

from avlab.experiments.answers import Objective, Point
from avlab.experiments.plan import LEAST_REPEATS
from avlab.experiments.slo import AS_MEASURED, UNMEASURED
from avlab.experiments.words import requests
from avlab.formats import counted


def sentences(found: Sequence[Point], slo: Objective | None = None, beyond: int = 0) -> list[str]:
    """Which arm is on the frontier where, and what is known of the error of that; the best arm within an objective,
    load by load; and that `beyond` cells count which no whole repeat holds.
    """
    loads = sorted({point.load for point in found})
    said = []
    for arm in dict.fromkeys(point.arm for point in found):
        mine = [point for point in found if point.arm == arm]
        on = [str(point.load) for point in mine if not point.dominated]
        where = f" (with {_listed(on)})" if 0 < len(on) < len(mine) else ""
        said.append(f"{arm} is on the frontier at {len(on)} of {counted(len(mine), 'load')}{where}.")
    if found:
        said.append(_error([point.repeats for point in found]))
    if slo:
        said.append(best_by_load(found, loads, slo))
    if beyond:
        said.append(f"{counted(beyond, 'cell')} of repeats that were started again also count.")
    return said


def _listed(loads: Sequence[int | str]) -> str:
    """As "1 request" or "1, 4 requests"."""
    return f"{', '.join(map(str, loads))} request{'' if list(map(str, loads)) == ['1'] else 's'}"


def _error(repeats: Sequence[int]) -> str:
    """What is known of the error of points with so many repeats each."""
    said = f"The frontier goes{AS_MEASURED.removeprefix(',')}"
    if max(repeats) < LEAST_REPEATS:
        most = "a single repeat" if max(repeats) == 1 else counted(max(repeats), "repeat")
        return f"{said}; with {most} a point has no error bar: at least {LEAST_REPEATS} are needed."
    if min(repeats) < LEAST_REPEATS:
        return f"{said}; points with fewer than {LEAST_REPEATS} repeats have no error bar."
    return (
        f"{said}; the error bars show how far to trust it. They are Student's, over repeats: what differs from session "
        "to session is in them only as far as the repeats are from several."
    )


def best_by_load(found: Sequence[Point], loads: Sequence[int], slo: Objective) -> str:
    measure, limit = slo
    best: list[tuple[str, int, int]] = []  # which arm, from this load, to that
    unmeasured: dict[str, list[int]] = {}
    for load in loads:
        here = [point for point in found if point.load == load]
        known = [point for point in here if point.measure(measure) is not None]
        within = [point for point in known if (point.measure(measure) or 0.0) <= limit]
        arm = max(within, key=lambda point: point.tokens_per_s).arm if within else "no arm"
        arm = arm if known else "not measured"
        if best and best[-1][0] == arm:
            best[-1] = (arm, best[-1][1], load)
        else:
            best.append((arm, load, load))
        for point in here:
            if known and point not in known:
                unmeasured.setdefault(point.arm, []).append(load)
    parts = [
        f"{arm} {f'at {requests(first)}' if first == last else f'from {first} to {requests(last)}'}"
        for arm, first, last in best
    ]
    said = f"Fastest within {measure} ≤ {limit:g} ms{AS_MEASURED}: {', '.join(parts)}."
    if unmeasured:
        arms = "; ".join(f"{arm} with {_listed(at)}" for arm, at in unmeasured.items())
        said += f" Not measured for {arms}{UNMEASURED.get(measure, '')}."
    return said
