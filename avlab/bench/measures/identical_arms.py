"""Identical arms in an A/B of the real engine: the noise of this machine, and whether it is taken for a difference."""

from collections.abc import Sequence

from avlab.bench.base import Bar, Context, Measure, Result, Table
from avlab.bench.rounds import half_width
from avlab.experiments.answers import ABAnswer, Comparison
from avlab.experiments.plan import make_plan
from avlab.formats import number

ARM, REQUESTS = "fixed:5", 16
RUNS, ROUNDS = 3, 30  # fewer of either say nothing of the bar
LIMIT = 360.0  # seconds, of all runs together
BARS = (
    Bar("identical-declared", "A/Bs of identical arms in which a difference is declared", "runs", 0, "<="),
    Bar("identical-half-width", "± of identical arms, watched, widest of the runs", "%"),
)


def measure(context: Context) -> Result:
    """A few A/Bs of an arm with itself, each in a run of its own."""
    from avlab.bench.product import product
    from avlab.experiments.analysis import analyse

    block, runs, rounds = context.pick(("0.5s", 1, 4), ("1s", RUNS, ROUNDS))
    with product(context, "identical-arms") as served:
        load = min(REQUESTS, served.config.max_num_seqs)
        arm = f"fixed:{min(int(ARM.partition(':')[2]), served.config.K)}"
        while len(served.experiments()) < runs and served.served < LIMIT:
            place = len(served.experiments()) + 1
            plain = served.config.changed(
                policy="none", seed=place
            )  # traffic of its own, and an order of its own
            config, plan = make_plan(plain, [arm, arm], None, load, rounds, block=block, learn=0)
            served.serve(config, plan, LIMIT - served.served, f"identical arms, run {place} of {runs}")
        answers = [served.query(analyse, run) for run in served.experiments()[:runs]]
    rows = []
    for place, answer in enumerate(answers, 1):
        (result,) = answer.results
        ends = map(number, (result.ratio, result.low, result.high, result.fixed_low, result.fixed_high))
        rows.append([place, answer.rounds, *ends, "yes" if _ever_declared(result) else "no"])
    columns = ["run", "rounds", "ratio", "low", "high", "planned, low", "planned, high", "declared"]
    title = f"{arm} against itself, {load} requests, blocks of {block}"
    values = values_of(answers)
    notes = ["low and high are of the confidence sequence, which may be watched at every round."]
    if len(answers) < runs or any(answer.rounds < rounds for answer in answers):
        notes.append(f"Not all of {runs} runs of {rounds} rounds fitted into {LIMIT:.0f} s.")
    return Result(values, [Table(title, columns, rows)], notes)


def values_of(answers: Sequence[ABAnswer]) -> dict[str, float | None]:
    """The bars' values from A/Bs of identical arms; None for declared ones where there are too few runs or rounds."""
    results = [answer.results[0] for answer in answers]
    enough = len(answers) >= RUNS and all(answer.rounds >= ROUNDS for answer in answers)
    widths = [half_width(result.low, result.high) for result in results]
    return {
        "identical-declared": float(sum(map(_ever_declared, results))) if enough else None,
        "identical-half-width": max(widths, default=None),
    }


def _ever_declared(result: Comparison) -> bool:
    """Whether one who watched has ever seen a difference declared, withdrawn or not."""
    return result.declared_at is not None


MEASURES = (Measure("identical-arms", "identical arms in an A/B", BARS, measure, 90, alone=True),)
