"""An A/B of the real engine at a few loads, with the ledger that explains it."""

from collections.abc import Callable

from avlab.bench.base import Bar, Context, Measure, Result, Table
from avlab.bench.product import DEPTH, learning_steps
from avlab.commands.terminal_ab import USERS, users_of
from avlab.experiments.answers import ABAnswer
from avlab.experiments.plan import make_plan
from avlab.experiments.words import LEDGER, block_length, requests, rounds
from avlab.formats import number

LOADS = (4, 16, 64)
LIMIT = 180.0  # seconds, of one A/B
FIXED = 5


def bars_at(requests: int) -> tuple[Bar, ...]:
    """What an A/B says of both adaptive arms against the baseline."""
    at = f"fixed:{FIXED}, A/B at {requests} requests"
    return (
        Bar(f"ab-{requests}", f"adaptive over {at}", "×"),
        Bar(f"ab-{requests}-depth", f"{DEPTH} over {at}", "×"),
    )


def measure_at(load: int) -> Callable[[Context], Result]:
    """The measure at one load."""

    def measure(context: Context) -> Result:
        from avlab.bench.product import product
        from avlab.experiments.analysis import analyse

        block, learn, most = context.pick(("0.5s", 10, 3), ("1s", learning_steps(load), 200))
        with product(context, f"ab-{load}") as served:
            baseline = f"fixed:{min(FIXED, served.config.K)}"
            arms = ["adaptive", DEPTH, baseline, "fixed:1", "none"]
            if not served.experiments():
                plain = served.config.changed(policy="none")
                under_way = min(load, served.config.max_num_seqs)
                config, plan = make_plan(plain, arms, baseline, under_way, most, block=block, learn=learn)
                served.serve(config, plan, LIMIT, f"A/B at {requests(under_way)}")
            answer = served.query(analyse, served.experiments()[0])
        found = {result.arm: result.ratio for result in answer.results}
        values = {f"ab-{load}": found["adaptive"], f"ab-{load}-depth": found[DEPTH]}
        return Result(values, tables_of(answer), notes_of(answer))

    return measure


def tables_of(answer: ABAnswer) -> list[Table]:
    """What users saw and the ratios by arm, and the ledger."""
    results = {result.arm: result for result in answer.results}
    plan = answer.plan
    title = f"{requests(plan.concurrency)}, {rounds(answer.rounds)} of blocks of {block_length(plan)}"
    rows = []
    for arm, seen in answer.arms.items():
        result = results.get(arm)
        ends = [number(end) for end in (result.ratio, result.low, result.high)] if result else ["1", "", ""]
        rows.append(
            [
                arm,
                *ends,
                *(number(value, 1) for value in users_of(seen)),
            ]
        )
    columns = ["arm", "ratio", "low", "high", *(name.replace("\n", " ") for name in USERS.values())]
    ledger = [
        [text, *(number(seen.ledger.line(name) if seen.ledger else None, 0) for seen in answer.arms.values())]
        for name, text in LEDGER.items()
    ]
    return [
        Table(title, columns, rows),
        Table("For 1,000 output tokens", ["what", *answer.arms], ledger),
    ]


def notes_of(answer: ABAnswer) -> list[str]:
    """The verdict in words, and why an adaptive arm lost where it did."""
    return [*answer.verdicts, *(reason.text for reason in answer.why)]


MEASURES = tuple(
    Measure(f"ab-{n}", f"an A/B at {n} requests", bars_at(n), measure_at(n), 91 + place, alone=True)
    for place, n in enumerate(LOADS)
)
