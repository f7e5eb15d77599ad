"""Identical arms in an A/B of the real engine: the noise of this machine, and whether it is taken for a difference."""

from avlab.bench.base import Bar, Context, Measure, Result, Table
from avlab.bench.rounds import half_width
from avlab.experiments.plan import make_plan
from avlab.ui.formats import number

ARM, REQUESTS = "fixed:5", 16
LIMIT = 360.0  # seconds, of all runs together
BARS = (
    Bar("identical-declared", "A/Bs of identical arms in which a difference is declared", "runs", 0, "<="),
    Bar("identical-half-width", "± of identical arms, watched, widest of the runs", "%"),
)


def measure(context: Context) -> Result:
    """A few A/Bs of an arm with itself, each in a run of its own."""
    from avlab.bench.product import product
    from avlab.experiments.analysis import analyse

    block, runs, rounds = context.pick(("0.5s", 1, 4), ("1s", 3, 30))
    with product(context, "identical-arms") as served:
        load = min(REQUESTS, served.config.slots)
        arm = f"fixed:{min(int(ARM.partition(':')[2]), served.config.K)}"
        plain = served.config.changed(policy="none")
        config, plan = make_plan(plain, [arm, arm], None, load, rounds, block=block, learn=0)
        while len(served.experiments()) < runs and served.served < LIMIT:
            place = len(served.experiments()) + 1
            served.serve(config, plan, LIMIT - served.served, f"identical arms, run {place} of {runs}")
        answers = [served.query(analyse, run) for run in served.experiments()[:runs]]
    rows, widths = [], []
    for place, answer in enumerate(answers, 1):
        (result,) = answer["results"]
        widths.append(half_width(result["low"], result["high"]))
        ends = (number(result.get(name)) for name in ("ratio", "low", "high", "fixed_low", "fixed_high"))
        rows.append([place, answer["rounds"], *ends, "yes" if result["declared"] else "no"])
    columns = ["run", "rounds", "ratio", "low", "high", "planned, low", "planned, high", "declared"]
    title = f"{arm} against itself, {load} requests, blocks of {block}"
    values = {
        "identical-declared": float(sum(row[-1] == "yes" for row in rows)),
        "identical-half-width": max(widths),
    }
    notes = ["low and high are of the confidence sequence, which may be watched at every round."]
    if len(answers) < runs or any(answer["rounds"] < rounds for answer in answers):
        notes.append(f"Not all of {runs} runs of {rounds} rounds fitted into {LIMIT:.0f} s.")
    return Result(values, [Table(title, columns, rows)], notes)


MEASURES = (Measure("identical-arms", "identical arms in an A/B", BARS, measure, 90, alone=True),)
