"""Drifting traffic under a load that steps: the schedule, how recovery is read off, and the policies in simulated time.

The simulated engine runs the real serving loop, policies and workload; its drafts are coins, and its clock moves by its
cost table alone. So nothing here depends on the machine.
"""

import functools
from types import SimpleNamespace

import numpy as np
import pytest
import stand_in_serving
from stand_in_engine import Words

from avlab.bench.measures import drift
from avlab.bench.product import DEPTH
from avlab.bench.recovery import phase_rates, recovery, windowed
from avlab.config import RunConfig
from avlab.policies.base import PolicyContext, make_policy
from avlab.speculation.costs import CostTable
from avlab.wire import frames as fr
from avlab.workers.intake import open_traffic
from avlab.workers.reporting import StepReporter
from avlab.workers.serving import Server

SECONDS = 40.0  # of a phase: some five refits
K, SLOTS, INTERVAL = 7, 64, 100
VERIFY = [
    (2, 19.0),
    (8, 22.0),
    (16, 24.0),
    (32, 30.0),
    (64, 43.0),
    (128, 69.0),
    (256, 136.0),
]  # ms by tokens, 2 cores
DRAFT = [(n, d, 3.0 + 0.12 * n + 0.2 * d) for n in (1, 64) for d in (1, 4, 7)]
EASE = {"verse": -2.0, "tool_calls": 2.0}
ARMS = (DEPTH, "none", *(f"fixed:{k}" for k in range(1, K + 1)))


class Simulated(stand_in_serving.Engine):
    """Serves in no time; its clock moves by what steps cost."""

    def __init__(self, config):
        super().__init__(config)
        self.slots = SLOTS
        self.costs, self.policies = CostTable.linear(DRAFT, VERIFY, SLOTS, SLOTS * (K + 1), K=K), {}
        self.set_policy(config.arm)

    def set_policy(self, arm):
        self.policies.setdefault(str(arm), make_policy(arm, PolicyContext(self.K, self.costs, INTERVAL)))
        self.policy = self.policies[str(arm)]

    def spend(self, milliseconds):
        self.simulated.advance(milliseconds / 1e3)


@functools.cache
def simulated(arm):
    """What a run of the whole schedule did under an arm, and the kinds of its requests by arrival."""
    plan = drift.schedule(RunConfig.make(policy=arm, K=K, max_num_seqs=SLOTS, max_new_tokens=120), SECONDS)
    engine, frames = Simulated(plan), []
    wire = SimpleNamespace(put=frames.append, commands=list, lost="", wait=lambda seconds: None)
    order = SimpleNamespace(
        config=plan, outbox=wire, clock=engine.simulated, asked_to_stop=SimpleNamespace(is_set=lambda: False),
        event=lambda *given: None, state="", step=0,
    )  # fmt: skip
    report = StepReporter(order.outbox.put, order.clock, K, plan.drafts, plan.recorded_features)
    assert Server(order, engine, Words(50), open_traffic(plan), report).run() == "done"
    steps = [step for frame in frames if isinstance(frame, fr.Steps) for step in frame.steps]
    step, time, tokens = (np.array([getattr(s, name) for s in steps]) for name in ("step", "time", "tokens"))
    refits = [frame.step for frame in frames if isinstance(frame, fr.Refit) and frame.refit]
    served = drift.Served(step, time, tokens, np.array(refits), 0.0)
    return served, [s.running for s in steps], [f for f in frames if isinstance(f, fr.RequestDone)]


def test_the_schedule_changes_traffic_and_load():
    served, running, requests = simulated("fixed:2")
    running = np.array(running)
    late = (served.time % SECONDS) > 0.75 * SECONDS  # what a step down leaves has finished by then
    place = np.minimum(served.time // SECONDS, 3).astype(int)
    for phase, load in enumerate(drift.LOADS):
        assert set(running[late & (place == phase)]) == {load}
    for request in requests:
        assert request.kind == drift.KINDS[min(int(request.arrival // SECONDS), 3)]


@pytest.fixture(scope="module")
def judged():
    return drift.judged({arm: simulated(arm)[0] for arm in ARMS}, ARMS, SECONDS)


def test_a_load_falls_within_seconds_of_its_step():
    """What runs is served to its end, so answers are short; shorter ones stay as they are."""
    assert drift.schedule(RunConfig.make(policy="none"), SECONDS).max_new_tokens == drift.LONGEST
    assert drift.schedule(RunConfig.make(policy="none", max_new_tokens=20), SECONDS).max_new_tokens == 20


def test_one_adaptive_policy_beats_every_fixed_length_on_changing_traffic(judged):
    values, (table, _), notes = judged
    assert values["drift-gain"] >= 1.05
    assert table.rows[0][0] == DEPTH
    fixed = [row for row in table.rows if row[0] != DEPTH]
    best = {max(fixed, key=lambda row: float(row[phase].replace(",", "")))[0] for phase in (1, 2, 3, 4)}
    assert len(best) > 1  # no fixed length is the best everywhere
    assert "The best single fixed length is" in notes[0]


def test_throughput_is_back_within_three_refits_of_a_step(judged):
    values, (_, back), _ = judged
    assert values["drift-recovery"] <= 3
    assert [row[0] for row in back.rows] == ["tool_calls, 64", "verse, 64", "tool_calls, 4"]


def steps_of(rates):
    """A step every 0.1 s, with so many tokens a second."""
    time = 0.1 * np.arange(1, len(rates) + 1)
    return time, 0.1 * np.array(rates, dtype=float), np.arange(len(rates))


def test_recovery_is_read_off_the_steps_after_a_change():
    rates = [50.0] * 200 + [40.0] * 150 + [100.0] * 650
    time, tokens, step = steps_of(rates)
    np.testing.assert_allclose(windowed(time, tokens)[:100], 50.0)
    found = recovery(time, tokens, step, [99, 199, 299, 399, 499], 20.05, 100.05)
    # the window of 50 steps holds 95 % of 100 once 46 of them are at 100 and four at 40
    assert found.settled == pytest.approx(100.0)
    assert found.steps == 150 + 46 - 1 and found.refits == 1
    assert found.least == pytest.approx(0.4)
    never = recovery(*steps_of([100.0] * 300 + [1.0] * 5), [99], 0.0, 10.0)
    assert never.steps == 50 and never.refits == 0
    slow = recovery(*steps_of([1.0] * 100), [], 0.0, 3.0)
    assert np.isnan(slow.settled) and slow.refits == np.inf


def test_a_window_counts_as_back_only_where_throughput_stays():
    """A step down: the requests of before drain at 200 tokens/s, then it dips, and comes back to 100."""
    time, tokens, step = steps_of([200.0] * 60 + [60.0] * 200 + [100.0] * 340)
    found = recovery(time, tokens, step, range(0, 600, 40), 0.0, 60.05)
    assert found.settled == pytest.approx(100.0)
    assert 260 < found.steps <= 260 + drift.WINDOW and found.refits == 8
    assert found.least == pytest.approx(0.6)
    slow = recovery(*steps_of([200.0] * 200 + [60.0] * 200 + [100.0] * 400), range(0, 800, 40), 0.0, 80.05)
    assert 400 < slow.steps <= 400 + drift.WINDOW  # a drain that takes longer than a window hides no dip
    clean = recovery(*steps_of([200.0] * 200 + [100.0] * 400), [], 0.0, 60.05)
    assert clean.steps == drift.WINDOW
    last = recovery(*steps_of([100.0] * 350 + [60.0] * 400 + [100.0] * 75), [], 35.05, 82.55)
    assert last.steps < np.inf  # what is left of a phase is enough


def run_of(rates, seconds=12.0):
    """A run of four phases with a step every 0.1 s; rates: tokens/s of equal parts of the schedule."""
    count = round(len(drift.KINDS) * seconds / 0.1)
    time = 0.1 * np.arange(1, count + 1) - 0.05
    tokens = 0.1 * np.repeat(rates, count // len(rates))
    return drift.Served(np.arange(count), time, tokens, np.arange(0, count, 100), 0.0)


def test_the_gain_has_an_interval_from_bins_at_the_same_place_of_the_schedule():
    draw = np.random.default_rng(3)
    parts = len(drift.KINDS) * drift.BINS
    traffic = np.repeat([100.0, 400.0, 300.0, 50.0], drift.BINS) * draw.uniform(0.7, 1.3, parts)
    found = {arm: run_of(traffic) for arm in ARMS} | {DEPTH: run_of(1.1 * traffic)}
    values, tables, notes = drift.judged(found, ARMS, 12.0)
    assert values["drift-gain"] == pytest.approx(1.1)
    assert (
        "1.100 [1.100, 1.100]" in notes[0] and "from one run to the next" in notes[1]
    )  # what both share cancels
    assert tables[0].rows[-1][-1] == "1.100 [1.100, 1.100]" and tables[0].rows[0][-1] == ""
    held, widths = 0, []
    for _ in range(400):
        own = [traffic.reshape(4, -1) * draw.lognormal(0, 0.05, (4, drift.BINS)) for _ in range(2)]
        ratio = drift.ratio_of(1.1 * own[0], own[1])
        held += ratio.low <= 1.1 <= ratio.high
        widths.append(ratio.high / ratio.low - 1)
    assert 0.92 <= held / 400 <= 0.98 and 0.02 < np.mean(widths) < 0.2


@pytest.mark.parametrize(("absent", "recovered"), [("fixed:3", True), (DEPTH, False)])
def test_without_the_run_of_an_arm_there_is_no_gain(absent, recovered):
    found = {arm: run_of(np.full(24, 100.0)) for arm in ARMS if arm != absent}
    values, tables, notes = drift.judged(found, ARMS, 12.0)
    assert values["drift-gain"] is None and (values["drift-recovery"] is not None) == recovered
    assert f"No run of {absent} came to its end" in notes[0] and len(tables[0].rows) == len(ARMS) - 1
    assert drift.judged({}, ARMS, 12.0)[0] == {"drift-gain": None, "drift-recovery": None}


def test_the_rate_of_a_phase_counts_all_that_it_emitted():
    time, tokens, _ = steps_of([50.0] * 100 + [20.0] * 100)
    np.testing.assert_allclose(phase_rates(time, tokens, [0.05, 10.05, 20.05]), [50.0, 20.0])
