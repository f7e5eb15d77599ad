"""The bars of the frontier: arms are compared repeat by repeat, and nothing is said of loads that are missing."""

import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from avlab.bench.base import Context
from avlab.bench.measures import frontier
from avlab.bench.product import DEPTH, Product
from avlab.bench.repeats import over_best_fixed, whole_repeats
from avlab.config import RunConfig
from avlab.experiments.frontier import make_frontier
from avlab.lab import Lab
from store import queries

WORKER = (sys.executable, str(Path(__file__).parent / "stand_in_serving.py"))
FIXED = ("none", *(f"fixed:{k}" for k in range(1, 8)))
ARMS = (DEPTH, "adaptive", *FIXED)


def blocks_of(load, tokens_per_s, interactivity=None, run="a"):
    """Counted blocks from tokens/s by arm [T]; interactivity by arm, else what is left for one user."""
    return [
        {
            "run": run,
            "round": number,
            "arm": f"{arm}@{load}",
            "tokens_per_s": float(rate),
            "interactivity": (interactivity or {}).get(arm, rate / load),
        }
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
    return frontier.judged(whole_repeats(blocks, ARMS))


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
    lacking = [row for row in blocks if (row["run"], row["round"], row["arm"]) != ("b", 2, "fixed:7@4")]
    assert whole_repeats(lacking, ARMS)[4].count == 7
    assert whole_repeats([row for row in blocks if row["arm"] != "none@4"], ARMS) == {}


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
    found = whole_repeats([row for row in blocks if not row["arm"].endswith("@8") or not row["round"]], ARMS)
    values, _, notes = frontier.judged(found)
    assert (
        found[8].count == 1 and set(values.values()) == {None} and "Not measured at 8 requests" in notes[-1]
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
            found |= whole_repeats(blocks_of(load, rates, users), ARMS)
        return frontier.beaten(found)

    assert off() == ([], [])
    assert off(depth=(1, 120.0, 12.0), adaptive=(4, 200.0, 20.0)) == (
        [],
        [],
    )  # own other loads, other adaptive arms
    assert off(none=(4, 101.0, 11.0), depth=(1, 120.0, 9.0)) == ([4], [4])
    assert off(none=(4, 101.0, 11.0)) == ([4], [1, 4])  # at 1 request, that of another load


class Served:
    """A lab in which a repeat takes so many seconds; a run that is given none serves its least repeats."""

    def __init__(self, repeat, served=0.0):
        self.repeat, self.served, self.runs = repeat, served, []

    def query(self, ask, *given):
        if ask.__name__ == "earlier_runs":
            return [str(place) for place in range(len(self.runs))]
        if ask.__name__ == "missing":
            rest = given[1].rounds - sum(self.runs)
            return msgspec.structs.replace(given[1], rounds=rest) if rest > 0 else None
        return [{"round": number} for number in range(self.runs[int(given[0])])]

    def serve(self, config, plan, seconds, doing, least):
        count = min(max(int(seconds / self.repeat), least), plan.rounds)
        self.runs.append(count)
        self.served += count * self.repeat


@pytest.mark.parametrize(
    ("repeat", "served", "runs"),
    [
        (10.0, 0.0, [20]),  # as many as fit
        (1.0, 0.0, [40]),  # and no more than are wanted
        (90.0, 0.0, [3]),  # the least, though only two fit
        (10.0, 250.0, [3]),  # also where loads before have taken the time
        (10.0, frontier.LIMIT, []),
    ],
)
def test_a_load_is_served_until_its_time_is_over_but_for_the_least_repeats(repeat, served, runs):
    lab = Served(repeat, served)
    config = RunConfig.make(policy="none")
    blocks = frontier.served_blocks(lab, config, [DEPTH, "none"], 4, "1.5s", 40, 200, 200.0)
    assert lab.runs == runs
    assert blocks == [{"round": number, "run": "0"} for number in range(sum(runs))]


def test_a_run_is_not_stopped_before_its_least_rounds(tmp_path):
    costs = tmp_path / "costs.json"
    costs.write_text("{}")
    config = RunConfig.make(policy="none", slots=4, workload="code")
    context = Context(config, True, tmp_path, costs)
    ran, plan = make_frontier(config, ["fixed:2", "none"], [4], 2000, "60steps", learn=0)
    with Lab(tmp_path / "lab.duckdb", command=WORKER) as lab:
        served = Product(context, lab)
        run = served.serve(ran, plan, 0.0, least=2)
        assert 2 <= served.kept(run) < plan.rounds
        assert {block["round"] for block in served.query(queries.block_rates, run)} == set(
            range(served.kept(run))
        )
