"""The bars of the frontier: arms are compared repeat by repeat, and nothing is said of loads that are missing."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from places import SUPPORT

from avlab.bench.base import Context
from avlab.bench.measures import frontier
from avlab.bench.product import DEPTH, Product
from avlab.bench.repeats import Repeats, near_best, over_best_fixed, whole_repeats
from avlab.config import RunConfig
from avlab.experiments.frontier_plan import make_frontier
from avlab.lab.lab import Lab
from avlab.store import queries
from avlab.store.experiment_rows import BlockRate

WORKER = (sys.executable, str(SUPPORT / "stand_in_serving.py"))
FIXED = ("none", *(f"fixed:{k}" for k in range(1, 8)))
ARMS = (DEPTH, "adaptive", *FIXED)


def blocks_of(load, tokens_per_s, interactivity=None, run="a"):
    """Counted blocks from tokens/s by arm [T]; interactivity by arm, else what is left for one user."""
    return [
        BlockRate(
            run=run,
            block=0,
            round=number,
            arm=f"{arm}@{load}",
            tokens_per_s=float(rate),
            interactivity=(interactivity or {}).get(arm, rate / load),
            tokens=float(rate),
            seconds=1.0,
            steps=50,
            emitting=50,
            **dict.fromkeys(("prompt_tokens", "prompt_steps", "prompt_seconds"), 0),
        )
        for arm, rates in tokens_per_s.items()
        for number, rate in enumerate(rates)
    ]


def rates_of(gain, machine=(1.0, 2.0, 0.5, 1.5), load=1):
    """tokens/s by arm: the machine's speed by repeat times 100 for fixed:2, less for other lengths, more for DEPTH."""
    speed = 100.0 * load**0.5 * np.array(machine)
    return {arm: speed * (1.0 if arm == "fixed:2" else 0.8) for arm in ARMS} | {DEPTH: gain * speed}


def judged(gains, **others):
    """The measure's answer with these ratios to the best fixed length by load."""
    blocks = [
        row for load, gain in gains.items() for row in blocks_of(load, rates_of(gain, load=load), **others)
    ]
    return frontier.judged(frontier.sorted_out(blocks, ARMS))


def test_what_repeats_have_in_common_cancels_in_the_ratio():
    found = whole_repeats(blocks_of(4, rates_of(1.02)), ARMS)
    gain = over_best_fixed(found[4], DEPTH)
    assert (gain.ratio, gain.low, gain.high) == (
        pytest.approx(1.02),
    ) * 3  # though the machine's speed varies fourfold
    assert gain.rival == "fixed:2" and gain.over_rival == pytest.approx(1.02)


def test_the_rival_of_a_repeat_is_chosen_by_the_others():
    draw, chosen, plain, held = np.random.default_rng(5), [], [], 0
    for _ in range(500):
        rates = {arm: draw.lognormal(4.0, 0.1, 5) for arm in ARMS}  # all arms are equal
        gain = over_best_fixed(whole_repeats(blocks_of(4, rates), ARMS)[4], DEPTH)
        chosen.append(np.log(gain.ratio))
        plain.append(np.log(gain.over_rival))
        held += gain.low <= 1 <= gain.high
    assert abs(np.mean(chosen)) < 0.01 and np.mean(plain) < -0.04
    assert held / 500 > 0.92


def test_only_whole_repeats_count_and_runs_are_kept_apart():
    rates = rates_of(1.0)
    blocks = blocks_of(4, rates) + blocks_of(4, rates, run="b")
    assert whole_repeats(blocks, ARMS)[4].count == 8
    lacking = [row for row in blocks if (row.run, row.round, row.arm) != ("b", 2, "fixed:7@4")]
    assert whole_repeats(lacking, ARMS)[4].count == 7
    assert whole_repeats([row for row in blocks if row.arm != "none@4"], ARMS) == {}


def test_the_bars_of_all_loads():
    gains = dict(zip(frontier.LOADS, (1.05, 1.04, 1.0, 0.99, 1.0, 1.0, 1.0), strict=True))
    values, tables, notes = judged(gains)
    assert values["frontier-least"] == pytest.approx(0.99) and values["frontier-gains"] == 2
    assert values["frontier-ratio-half-width"] == pytest.approx(0.0, abs=1e-9)
    assert any("0.990 [0.990, 0.990], at 8 requests" in note for note in notes)
    assert any(
        "1.03 × or more: at 1, 2 requests; with the whole interval: at 1, 2 requests" in note
        for note in notes
    )
    assert any("Slower than the best fixed length with the whole interval: at 8 requests" in n for n in notes)
    assert [table.title.partition(" against")[0] for table in tables[:2]] == [DEPTH, "adaptive"]
    for table in tables:
        assert table.rows and {len(row) for row in table.rows} == {len(table.columns)}


@pytest.mark.parametrize("loads", [(), (1,), frontier.LOADS[:-1]])
def test_without_every_load_nothing_is_measured(loads):
    values, _, notes = judged(dict.fromkeys(loads, 1.1))
    assert set(values) == {bar.name for bar in frontier.BARS} and set(values.values()) == {None}
    absent = ", ".join(str(load) for load in frontier.LOADS if load not in loads)
    assert f"Not measured at {absent} requests" in notes[-1]


def test_a_load_with_a_single_repeat_is_not_measured():
    blocks = [row for load in frontier.LOADS for row in blocks_of(load, rates_of(1.1, load=load))]
    blocks = [row for row in blocks if not row.arm.endswith("@8") or not row.round]
    found = frontier.sorted_out(blocks, ARMS)
    values, _, notes = frontier.judged(found)
    assert (
        found[8].close.count == 1
        and set(values.values()) == {None}
        and "Not measured at 8 requests" in notes[-1]
    )


def test_only_fixed_lengths_put_a_load_off_the_frontier():
    def off(**changed):
        found = {}
        for load in (1, 4):
            rates = {arm: np.full(2, 50.0) for arm in ARMS} | {DEPTH: np.full(2, 100.0)}
            users = dict.fromkeys(ARMS, 5.0) | {DEPTH: 10.0}
            for name, (at, rate, user) in changed.items():
                if at == load:
                    arm = {"depth": DEPTH}.get(name, name)
                    rates[arm], users[arm] = np.full(2, rate), user
            found |= frontier.sorted_out(blocks_of(load, rates, users), ARMS)
        return frontier.beaten(found)

    assert off() == ([], [])
    assert off(depth=(1, 120.0, 12.0), adaptive=(4, 200.0, 20.0)) == (
        [],
        [],
    )  # own other loads, other adaptive arms
    assert off(none=(4, 101.0, 11.0), depth=(1, 120.0, 9.0)) == ([4], [4])
    assert off(none=(4, 101.0, 11.0)) == ([4], [1, 4])  # at 1 request, that of another load


def test_later_rounds_leave_out_what_the_first_showed_to_be_slower():
    machine, near = (1.0, 2.0, 0.5, 1.5), np.array([1.1, 0.9, 1.05, 0.9])
    rates = rates_of(1.0, machine) | {"none": 100.0 * np.array(machine) * near}
    blocks = blocks_of(4, rates)
    close = frontier.sorted_out(blocks, ARMS)[4].close.arms
    assert close == [DEPTH, "none", "fixed:2"]
    later = {arm: 2 * rates[arm] for arm in close}
    found = frontier.sorted_out(blocks + blocks_of(4, later, run="b"), ARMS)[4]
    assert (found.first.count, found.close.count) == (4, 8)
    assert found.point("none").tokens_per_s == pytest.approx(2**0.5 * found.first.point("none").tokens_per_s)
    assert found.point("fixed:7") == found.first.point("fixed:7")
    _, tables, _ = frontier.judged({4: found})
    assert [tables[0].rows[0][7], tables[1].rows[0][7]] == [8, 4]  # vLLM's rule has the first rounds only


def test_a_length_that_was_left_out_is_compared_within_the_rounds_that_had_it():
    """The machine is ten times slower in later rounds, which lengths that were left out have not seen."""
    first = {arm: np.full(3, 50.0) for arm in ARMS} | {DEPTH: np.full(3, 120.0), "none": np.full(3, 110.0)}
    later = {DEPTH: np.full(3, 12.0), "none": np.full(3, 10.0)}
    found = frontier.sorted_out(blocks_of(4, first) + blocks_of(4, later, run="b"), ARMS)
    assert found[4].point(DEPTH).tokens_per_s < 40 < found[4].point("fixed:1").tokens_per_s
    assert frontier.beaten(found) == ([], [])


def test_a_single_repeat_shows_no_length_to_be_slower():
    found = whole_repeats(blocks_of(4, {arm: [rate[0]] for arm, rate in rates_of(1.0).items()}), ARMS)
    assert near_best(found[4]) == list(FIXED)


def block_in(run, number, arm):
    (block,) = blocks_of(1, {"": [1.0]}, run=run)
    return replace(block, round=number, arm=arm)


class Served:
    """A lab in which a round takes so many seconds; a run that is given none serves its least rounds."""

    def __init__(self, seconds, served=0.0):
        self.seconds, self.served, self.runs = seconds, served, []
        self.config = RunConfig.make()

    def experiments(self):
        return list(range(len(self.runs)))

    def kept(self, run):
        return self.runs[run][1]

    def query(self, ask, run):
        plan, count = self.runs[run]
        if ask is queries.experiment:
            return plan
        return [block_in(run, number, arm) for number in range(count) for arm in plan.arms]

    def serve(self, config, plan, seconds, doing, least):
        count = min(max(int(seconds / self.seconds), least), plan.rounds)
        self.runs.append((plan, count))
        self.served += count * self.seconds


def rounds_of(lab, arms=(DEPTH, "none"), most=40, until=200.0):
    return frontier.rounds_of(lab, list(arms), 4, "1s", 200, most, 3, until, "{} arms")


@pytest.mark.parametrize(
    ("seconds", "served", "counts"),
    [
        (10.0, 0.0, [20]),  # as many as fit
        (1.0, 0.0, [40]),  # and no more than are wanted
        (90.0, 0.0, [3]),  # the least, though only two fit
        (10.0, 250.0, [3]),  # also where loads before have taken the time
    ],
)
def test_a_load_is_served_until_its_time_is_over_but_for_the_least_rounds(seconds, served, counts):
    lab = Served(seconds, served)
    blocks = rounds_of(lab)
    assert [count for _, count in lab.runs] == counts
    assert blocks == [
        block_in(0, number, f"{arm}@4") for number in range(sum(counts)) for arm in (DEPTH, "none")
    ]


@pytest.mark.parametrize(("left", "starts"), [(frontier.SHORT - 1, 0), (frontier.SHORT + 10, 1)])
def test_a_share_of_seconds_that_is_nearly_over_is_over(left, starts):
    lab = Served(10.0)
    rounds_of(lab, most=5)
    rounds_of(lab, until=lab.served + left)
    assert len(lab.runs) == 1 + starts


def test_rounds_of_a_benchmark_that_was_interrupted_count():
    lab = Served(10.0)
    rounds_of(lab, most=5)
    rounds_of(lab, ("none", "fixed:1"), most=4)  # other arms
    assert len(rounds_of(lab, most=8)) == 16
    assert [count for _, count in lab.runs] == [5, 4, 3]


def test_a_run_is_not_stopped_before_its_least_rounds(tmp_path):
    costs = tmp_path / "costs.json"
    costs.write_text("{}")
    config = RunConfig.make(policy="none", max_num_seqs=4, workload="code")
    context = Context(config, True, tmp_path, costs)
    ran, plan = make_frontier(config, ["fixed:2", "none"], [4], 2000, "60steps", learn=0)
    with Lab(tmp_path / "lab.duckdb", worker_commands={"reference": WORKER}) as lab:
        served = Product(context, lab)
        run = served.serve(ran, plan, 0.0, least=2)
        assert 2 <= served.kept(run) < plan.rounds
        assert {block.round for block in served.query(queries.block_rates, run)} == set(
            range(served.kept(run))
        )


@pytest.mark.parametrize("tied", [2, 8])
def test_the_interval_of_the_gain_holds_the_truth_where_lengths_tie(tied):
    """Around the ratio to the chosen length alone it held in 74 to 84 %."""
    draw, held = np.random.default_rng(5), 0
    arms = ["adaptive", "none", *(f"fixed:{k}" for k in range(1, 8))]
    for _ in range(400):
        logs = draw.normal(0, 0.03, (9, 4))
        logs[1 + tied :] -= 0.03
        gain = over_best_fixed(Repeats(arms, np.exp(logs), np.exp(logs)), "adaptive")
        held += gain.low <= 1 <= gain.high
    assert held / 400 > 0.93
