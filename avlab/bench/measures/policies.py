"""Adaptive verification against fixed lengths: one engine, one closed loop, policies switched between blocks."""

from collections.abc import Callable

from avlab.bench.base import Bar, Context, Measure, Result, Table
from avlab.bench.rounds import arm_rows, best_arm, round_ratios, switchback
from avlab.policies.arm import arm_of

FIXED = (1, 2, 3, 5, 7)
FEW = {1: 0.97, 2: 0.97, 4: 0.97}  # by requests: the bar against the best fixed length
MANY = {8: 1.3, 16: 1.5, 64: 2.0}  # the bar against the longest
SUBJECT = "adaptive"


def arms_of(K: int) -> list[str]:
    """The arms that are compared with a drafter of K positions."""
    return [SUBJECT, "none", *(f"fixed:{k}" for k in FIXED if k <= K)]


def bars_at(requests: int) -> tuple[Bar, ...]:
    """Against the best fixed length, the longest, and none; a bar on the one that matters at this load."""
    plural = "request" if requests == 1 else "requests"
    return (
        Bar(
            f"best-fixed-{requests}",
            f"AV over the best fixed length, {requests} {plural}",
            "×",
            FEW.get(requests),
        ),
        Bar(f"fixed7-{requests}", f"AV over fixed:7, {requests} {plural}", "×", MANY.get(requests)),
        Bar(f"none-{requests}", f"AV over no speculation, {requests} {plural}", "×"),
    )


def measure_at(requests: int) -> Callable[[Context], Result]:
    """The measure at one concurrency."""

    def measure(context: Context) -> Result:
        import numpy as np

        from avlab.bench.lab import Lab

        lab = Lab(context)
        lab.need_drafter()
        arms = arms_of(lab.engine.K)
        lab.begin(requests, SUBJECT)
        lab.learn(
            context.pick(40, max(300, 1600 // requests)),
            lambda done, total: context.progress("learning", done, total),
        )
        rounds = context.pick(2, 12 if requests in FEW else 6)
        seconds, washout = context.pick(1.0, 2.0 if requests in FEW else 2.5), context.pick(2, 4)
        blocks = switchback(
            arms,
            rounds,
            lambda arm, number: lab.serve(arm, seconds, number, washout),
            lambda done, total: context.progress(f"blocks at {requests}", done, total),
            seed=requests,
        )
        fixed = [arm for arm in arms if arm_of(arm).fixed and arm_of(arm).drafts]
        against = (best_arm(blocks, fixed), fixed[-1], "none")
        values = {
            bar.name: float(np.median(round_ratios(blocks, SUBJECT, arm)))
            for bar, arm in zip(bars_at(requests), against, strict=True)
        }
        table = Table(
            f"{requests} requests under way: {rounds} rounds of blocks of {seconds:g} s; best fixed: {against[0]}",
            ["arm", "tokens/s", "tokens a step", "ms a step", "AV over it, by round [90 %]"],
            arm_rows(blocks, arms, SUBJECT),
        )
        learnt = lab.learnt()
        note = f"Estimator at the end, {requests} requests: slope {learnt.slope:.3f}, intercepts "
        return Result(values, [table], [note + ", ".join(f"{b:.2f}" for b in learnt.intercepts) + "."])

    return measure


MEASURES = tuple(
    Measure(f"policies-{n}", f"policies at {n} requests", bars_at(n), measure_at(n), 40 + place)
    for place, n in enumerate((*FEW, *MANY))
)
