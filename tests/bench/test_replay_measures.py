"""Replay held against the engine: the statistics by text, and steps priced by a machine's table."""

from dataclasses import replace

import numpy as np
import pytest
from traces import made_up

from avlab.bench.priced_steps import TimedStep, priced, this_machine
from avlab.bench.served_texts import ClosedLoop, Texts, difference, pooled
from avlab.engine.profile import make_costs
from avlab.machines import machine

B300 = "b300-deepseek-v4-flash-tp4"


def drawn(random, mean, texts=200):
    steps = random.integers(10, 60, texts)
    return Texts((steps * mean * random.uniform(0.8, 1.2, texts)).round(), steps)


def test_equal_texts_do_not_differ_and_others_do():
    random = np.random.default_rng(0)
    one, other, faster = drawn(random, 2.0), drawn(random, 2.0), drawn(random, 2.2)
    same, apart = difference(one, other, 2.6), difference(faster, one, 2.6)
    assert same.low < 1 < same.high and apart.low > 1
    assert apart.ratio == pytest.approx(1.1, rel=0.03)
    assert difference(one, one, 2.6) == type(same)(1.0, 1.0, 1.0)
    mean = pooled([(one, other), (faster, one)], 2.6)
    assert mean.ratio == pytest.approx(np.sqrt(same.ratio * apart.ratio))


def test_intervals_hold_what_they_promise():
    random = np.random.default_rng(1)
    found = [difference(drawn(random, 2.0), drawn(random, 2.0), 1.96) for _ in range(400)]
    assert 0.91 < np.mean([each.low <= 1 <= each.high for each in found]) < 0.98


def test_replay_serves_each_of_the_first_texts_once():
    trace = made_up(texts=12)
    emulated = machine(B300, trace.about.K)
    loop = ClosedLoop(emulated, emulated.table(), "fixed:2", 4, 8, 1000, 256)
    found = loop.served(trace)
    assert found.tokens.tolist() == trace.output_tokens[:8].tolist()
    assert (found.steps <= found.tokens).all() and found.tokens_per_step > 1
    cut = replace(loop, limit=2).served(trace)
    assert cut.tokens.max() <= 2
    assert loop.of_all([trace, trace]).tokens.tolist() == (2 * found.tokens).tolist()


def test_what_learning_spreads_is_seen_by_other_orders_of_the_texts():
    trace = made_up(texts=30)
    emulated = machine(B300, trace.about.K)
    loop = ClosedLoop(emulated, emulated.table(), "adaptive", 4, 20, 1000, 256)
    assert 0 < loop.spread_of_learning(trace, orders=4) < 0.2
    assert replace(loop, arm="fixed:2").spread_of_learning(trace) == 0.0
    wide = difference(loop.served(trace), loop.served(trace), 2.6, 0.05)
    assert wide.ratio == 1.0 and wide.low < 0.9 < 1.1 < wide.high


def test_a_machine_prices_the_steps_it_was_made_of():
    draft = [(r, d, 0.5 * d + 0.1 * r) for r in (1, 4, 16) for d in (1, 3)]
    verify = [(n, 10.0 + 0.2 * n) for n in (1, 8, 64) for _ in range(3)]
    costs = make_costs(draft, verify, 3, 16, 400, "profiled")
    steps = [
        TimedStep(
            r, 3, 4 * r, 0, r, 1.5 + 0.1 * r, 10.0 + 0.8 * r, 1.5 + 0.1 * r + 10.0 + 0.8 * r + 2.0 + 0.2 * r
        )
        for r in (1, 4, 16)
    ]
    emulated = this_machine([costs], steps, 16, 256, 3)
    assert (emulated.about.step_ms, emulated.about.row_ms) == (pytest.approx(2.0), pytest.approx(0.05))
    assert priced(emulated, steps) == pytest.approx((1.0, 1.0, 1.0, 1.0))
    assert priced(emulated, [steps[0]])[0] == pytest.approx(1.0)
