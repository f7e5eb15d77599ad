"""Prompt tokens as a control variate of an A/B: less chance in the ratio, and the test stays valid."""

from dataclasses import fields, replace

import numpy as np
import pytest
import store_frames as frames

from avlab.experiments import control_variate, statistics
from avlab.experiments.analysis import analyse
from avlab.experiments.answers import PromptAdjustment
from avlab.experiments.words import ADJUSTED, EXPECTED, ratios_explained
from avlab.store import queries
from avlab.store.database import Database
from avlab.store.experiment_rows import BlockRate, ServedLedger
from avlab.store.ids import new_run_id
from avlab.store.recorder import Recorder
from avlab.wire import commands as cm
from avlab.wire import frames as fr

PRICE, TOKENS = 0.0008, 16  # seconds a prompt token; tokens a step
PARTS = ("prompt_ms", "draft_ms", "verify_ms", "sample_ms", "decide_ms", "other_ms")


def block_of(rng, number, arm, step_seconds, noise=0.02, steps=30):
    """A block of about a second: steps of one length but for noise of the block, a few with prompts among them."""
    speed = np.exp(noise * rng.standard_t(3))
    prompt_steps = min(int(rng.poisson(0.1 * steps)), steps - 1)
    prompt_tokens = int(rng.integers(20, 200, prompt_steps).sum())
    taken = prompt_steps * step_seconds * speed + PRICE * prompt_tokens * speed
    seconds, tokens = (steps - prompt_steps) * step_seconds * speed + taken, TOKENS * steps
    return BlockRate(
        run="",
        block=0,
        round=number,
        arm=arm,
        tokens=tokens,
        seconds=seconds,
        steps=steps,
        emitting=tokens,
        tokens_per_s=tokens / seconds,
        interactivity=40.0,
        prompt_steps=prompt_steps,
        prompt_tokens=prompt_tokens,
        prompt_seconds=taken,
    )


def blocks_of(seed, rounds=60, seconds=(0.02, 0.02), **more):
    rng = np.random.default_rng(seed)
    pairs = [zip("ab", seconds, strict=True) for _ in range(rounds)]
    return [block_of(rng, number, arm, s, **more) for number, pair in enumerate(pairs) for arm, s in pair]


def log_ratios(blocks, adjust=True):
    """Log ratio of a to b by round."""
    by = control_variate.fitted_by_round(blocks)
    rate = {
        (b.arm, b.round): b.tokens / (by[b.round].adjusted_seconds(b) if adjust else b.seconds)
        for b in blocks
    }
    count = 1 + max(b.round for b in blocks)
    return np.array([np.log(rate["a", number] / rate["b", number]) for number in range(count)])


def test_price_and_share_are_those_of_the_traffic():
    blocks = blocks_of(0, rounds=300)
    found = control_variate.fitted(blocks)
    assert found.price == pytest.approx(PRICE, rel=0.05)
    whole = sum(b.prompt_tokens for b in blocks) / sum(b.tokens for b in blocks)
    assert found.share == pytest.approx(whole)


def test_the_adjustment_leaves_the_ratio_and_takes_most_of_the_chance():
    """The ratio is that of throughputs with the same prompts: of 1 / (seconds a token + seconds of prompts for it)."""
    blocks = blocks_of(1, rounds=400, seconds=(0.018, 0.02))
    traffic = control_variate.fitted(blocks)
    a, b = (seconds / TOKENS + traffic.seconds_a_token for seconds in (0.018, 0.02))
    even, raw = log_ratios(blocks), log_ratios(blocks, adjust=False)
    assert even.mean() == pytest.approx(np.log(b / a), abs=0.01)
    assert even.std() < 0.4 * raw.std()


def test_all_seconds_together_stay_what_they_were():
    blocks = blocks_of(2, rounds=50)
    traffic = control_variate.fitted(blocks)
    assert sum(map(traffic.adjusted_seconds, blocks)) == pytest.approx(sum(b.seconds for b in blocks))


def test_without_prompts_nothing_is_changed():
    blocks = [replace(b, prompt_tokens=0, prompt_steps=0, prompt_seconds=0.0) for b in blocks_of(3, rounds=5)]
    assert control_variate.fitted(blocks).price == 0.0
    assert (log_ratios(blocks) == log_ratios(blocks, adjust=False)).all()
    only = [replace(b, prompt_steps=b.steps, prompt_seconds=b.seconds) for b in blocks_of(3, rounds=5)]
    # no step without a prompt says what one would have taken
    assert control_variate.fitted(only) == control_variate.UNKNOWN


def test_no_round_looks_ahead():
    blocks = blocks_of(4, rounds=20)
    x = log_ratios(blocks)
    for last in (1, 7, 19):
        assert (log_ratios([b for b in blocks if b.round <= last]) == x[: last + 1]).all()


def test_arms_exchanged_within_a_round_change_the_sign_of_its_log_ratio_and_nothing_before():
    """What the test rests on: given what a round's blocks were and all rounds before, the order's coin is the sign."""
    blocks = blocks_of(5, rounds=12)
    x, other = log_ratios(blocks), {"a": "b", "b": "a"}
    exchanged = log_ratios([replace(b, arm=other[b.arm]) if b.round == 11 else b for b in blocks])
    assert (exchanged[:11] == x[:11]).all() and exchanged[11] == pytest.approx(-x[11])


def test_equal_arms_with_prompts_are_declared_different_in_one_of_twenty_at_most():
    declared = [statistics.declared_at(log_ratios(blocks_of(100 + seed))) > 0 for seed in range(600)]
    assert np.mean(declared) <= 0.05


def test_a_difference_is_found_sooner():
    effect = {"seconds": (0.019, 0.02)}
    found = [[], []]
    for seed in range(40):
        blocks = blocks_of(1000 + seed, **effect)
        for place, adjust in enumerate((False, True)):
            found[place].append(int(statistics.declared_at(log_ratios(blocks, adjust))) > 0)
    assert np.mean(found[1]) > np.mean(found[0]) + 0.3


def recorded(tmp_path, design, rounds=8, dear=None, surplus=0.0):
    """The verdict of two arms whose steps take 10 ms, or 60 ms with a prompt, which "none" happens to get more of; a
    prompt takes 500 ms from round `dear` on. surplus: drafts accepted beyond what was expected, of each step.
    """
    run, config = new_run_id(), {"policy": "none", "workload": "chat", "temperature": 1.0}
    plan = cm.Experiment(["fixed:5", "none"], "none", rounds, 4, design)
    sent, clock = [frames.hello(config=config), fr.ExperimentBegun(plan, 0.0, 0)], 0.0
    for number in range(2 * rounds):
        arm, first = ("fixed:5", "none")[number % 2], 10 * number
        sent.append(fr.Block(number, arm, "serve", first, clock, "chat", number // 2))
        for each in range(first, first + 10):
            prompt = each % 10 < (1 if arm == "fixed:5" else 3)
            late = dear is not None and number // 2 >= dear
            clock += (0.51 if late else 0.06) if prompt else 0.01
            told = {
                "time": clock,
                "prompt_tokens": 50 * prompt,
                "tokens": 4,
                "verify_ms": 55.0 if prompt else 5.0,
                "surplus": surplus,
            }
            sent.append(fr.Steps([frames.step(each, number, **told)]))
        sent += [fr.RoundDone(number // 2, True, "", clock, first + 10)] if number % 2 else []
    tmp_path.mkdir(exist_ok=True)
    with Database(tmp_path / "lab.duckdb") as database, Recorder(database) as recorder:
        for envelope in frames.envelopes(sent, run, 0):
            recorder.record(envelope)
        recorder.flush()
        con = database.cursor()
        return analyse(con, run), queries.block_rates(con, run)


def test_blocks_say_what_prompts_took(tmp_path):
    _, blocks = recorded(tmp_path, "switchback")
    for block in blocks:
        count = 1 if block.arm == "fixed:5" else 3
        assert (block.prompt_steps, block.prompt_tokens) == (count, 50 * count)
        assert block.prompt_seconds == pytest.approx(0.06 * count)
    assert control_variate.fitted(blocks).price == pytest.approx(0.001)


def test_a_switchback_verdict_charges_every_arm_the_same_prompts(tmp_path):
    told, _ = recorded(tmp_path, "switchback")
    assert told.prompts == PromptAdjustment(pytest.approx(0.001), pytest.approx(2.5), evened=True)
    for arm, served in (("fixed:5", 40 / 0.15), ("none", 40 / 0.25)):
        seen = told.arms[arm]
        assert seen.tokens_per_s == pytest.approx(40 / 0.2)
        ledger = seen.ledger
        assert ledger.served_tokens_per_s == pytest.approx(served)
        assert ledger.prompt_ms == pytest.approx(2500.0)  # 0.1 s for 40 tokens
        assert (
            sum(ledger.line(part) for part in PARTS)
            == pytest.approx(ledger.total_ms)
            == pytest.approx(5000.0)
        )
    assert told.results[0].ratio_by_round == pytest.approx([1.0] * 8)
    assert ADJUSTED in ratios_explained(told)


def test_a_ratio_looks_at_no_later_round_while_tokens_a_second_are_of_all(tmp_path):
    """Later prompts cost ten times as much; the ratios of rounds that are over stay what they were."""
    early, _ = recorded(tmp_path / "early", "switchback", rounds=8)
    told, blocks = recorded(tmp_path / "late", "switchback", rounds=16, dear=8)
    assert told.prompts.price > 3 * early.prompts.price
    assert told.results[0].ratio_by_round[:8] == pytest.approx(early.results[0].ratio_by_round)
    best = told.best_fixed
    assert best.tokens_per_s == pytest.approx(told.arms[best.arm].tokens_per_s)
    traffic = control_variate.fitted(blocks)
    for arm, seen in told.arms.items():
        mine = [block for block in blocks if block.arm == arm]
        rate = sum(block.tokens for block in mine) / sum(map(traffic.adjusted_seconds, mine))
        assert seen.tokens_per_s == pytest.approx(rate)


def test_isolated_blocks_are_left_as_they_were_served(tmp_path):
    told, _ = recorded(tmp_path, "isolated")
    assert not told.prompts.evened
    for arm, seen in told.arms.items():
        ledger = seen.ledger
        assert seen.tokens_per_s == pytest.approx(ledger.served_tokens_per_s)
        assert ledger.prompt_ms == pytest.approx(1250.0 if arm == "fixed:5" else 3750.0)
        assert sum(ledger.line(part) for part in PARTS) == pytest.approx(ledger.total_ms)
    assert told.results[0].ratio == pytest.approx(0.25 / 0.15, rel=0.01)
    assert ADJUSTED not in ratios_explained(told)


def test_a_ratio_counts_expected_drafts_where_every_step_tells_them(tmp_path):
    told, blocks = recorded(tmp_path / "told", "isolated", surplus=0.25)
    assert [block.expected for block in blocks] == [37.5] * 16 and told.expected
    assert EXPECTED in ratios_explained(told)
    assert {seen.ledger.tokens for seen in told.arms.values()} == {
        40.0 * 8
    }  # what was served stays what it was
    silent, blocks = recorded(tmp_path / "silent", "isolated", surplus=float("nan"))
    assert [block.expected for block in blocks] == [40] * 16 and not silent.expected
    assert EXPECTED not in ratios_explained(silent)


def drafted_blocks(seed, chances=(0.6, 0.6), rounds=60, steps=24, requests=8, K=3, tells=True):
    """Blocks of a second whose drafts are accepted by coins; each text has a chance of its own around the arm's."""
    rng, blocks = np.random.default_rng(seed), []
    for number in range(rounds):
        for arm, chance in zip("ab", chances, strict=True):
            odds = np.log(chance / (1 - chance)) + rng.normal(0, 1, (steps, requests, K))
            p = 1 / (1 + np.exp(-odds))
            accepted = (rng.random(p.shape) < p).cumprod(-1).sum()
            tokens = steps * requests + int(accepted)
            seconds = steps * 0.04 * float(np.exp(rng.normal(0, 0.005)))
            blocks.append(
                BlockRate(
                    run="", block=len(blocks), arm=arm, round=number, tokens=tokens, seconds=seconds, steps=steps,
                    emitting=steps * requests, tokens_per_s=tokens / seconds, interactivity=40.0, prompt_tokens=0,
                    prompt_steps=0, prompt_seconds=0.0,
                    surplus=float(accepted - p.cumprod(-1).sum()) if tells else None,
                )
            )  # fmt: skip
    return blocks


def ratios_of(blocks, of):
    rate = {(b.arm, b.round): of(b) / b.seconds for b in blocks}
    return np.array([np.log(rate["a", n] / rate["b", n]) for n in range(1 + max(b.round for b in blocks))])


def test_expected_drafts_have_the_mean_of_accepted_ones_and_less_chance():
    blocks = drafted_blocks(0, (0.7, 0.6), rounds=500)
    raw, expected = (ratios_of(blocks, of) for of in (lambda b: b.tokens, lambda b: b.expected))
    assert expected.mean() == pytest.approx(raw.mean(), abs=3 * raw.std() / np.sqrt(len(raw)))
    assert expected.std() < 0.75 * raw.std()
    silent = drafted_blocks(0, rounds=3, tells=False)
    assert [b.expected for b in silent] == [b.tokens for b in silent]


def test_equal_arms_by_expected_drafts_are_declared_different_in_one_of_twenty_at_most():
    declared = [
        statistics.declared_at(ratios_of(drafted_blocks(100 + seed, rounds=40), lambda b: b.expected)) > 0
        for seed in range(300)
    ]
    assert np.mean(declared) <= 0.05


def test_only_throughput_is_adjusted_between_repeats():
    blocks = blocks_of(6, rounds=50)
    even = control_variate.adjusted(blocks)
    spread = [np.std([b.tokens_per_s for b in each]) for each in (even, blocks)]
    assert spread[0] < 0.5 * spread[1] and {b.interactivity for b in even} == {40.0}
    (empty,) = control_variate.adjusted([replace(blocks[0], tokens_per_s=None, seconds=0.0)])
    assert empty.tokens_per_s is None


def test_prompts_take_what_verification_has_and_then_of_the_rest():
    nothing = {field.name: 0.0 for field in fields(ServedLedger)}
    entry = ServedLedger(
        **nothing | {"verify_ms": 30.0, "other_ms": 20.0, "total_ms": 100.0, "tokens": 10, "seconds": 1.0}
    )
    changed = control_variate.with_prompts(entry, 40.0, 25.0)
    assert (changed.prompt_ms, changed.verify_ms, changed.other_ms) == (25.0, 0.0, 10.0)
    assert changed.total_ms == 85.0
    untold = control_variate.with_prompts(replace(entry, verify_ms=None), 5.0, 5.0)
    assert (untold.verify_ms, untold.other_ms, untold.total_ms) == (None, 15.0, 100.0)


def test_a_block_keeps_a_tenth_of_its_time_however_dear_prompts_are():
    dear = control_variate.PromptCosts(price=1.0, share=0.0)
    block = replace(blocks_of(0, rounds=1)[0], seconds=2.0, tokens=10, prompt_tokens=500)
    assert dear.own_seconds(block) == pytest.approx(1.8) and dear.adjusted_seconds(block) == pytest.approx(
        0.2
    )
    cheaper_with = replace(block_of(np.random.default_rng(0), 0, "a", 0.02), prompt_seconds=0.0)
    assert control_variate.fitted([cheaper_with]) == control_variate.UNKNOWN  # no price is below 0
