"""A sweep compares arms on the same texts, in as many processes as there are, and its intervals mean what they say."""

import numpy as np
import pytest
from traces import made_up

from avlab.experiments.replay_ab import compared
from avlab.experiments.replay_cells import Block, Cell, Serving, serve
from avlab.experiments.replay_intervals import over_best_fixed, precision, rate, ratio
from avlab.experiments.replay_pool import Pool, ReplayFailed, shared
from avlab.experiments.replay_sweep import Case, sweep
from avlab.policies.arm import PolicyError
from avlab.replay.trace import TraceError, write_trace

B300 = "b300-deepseek-v4-flash-tp4"


@pytest.fixture
def case(tmp_path):
    write_trace(made_up(texts=30), tmp_path / "own.parquet")
    return Case(str(tmp_path / "own.parquet"), B300, repeats=3)


def test_a_sweep_compares_arms_on_the_same_texts(case):
    cells = sweep(case, ["none", "fixed:3", "adaptive", "adaptive"], [2, 64])
    names = ["none", "fixed:3", "adaptive", "adaptive#2"]
    assert [(c.arm, c.load) for c in cells] == [(arm, load) for load in (2, 64) for arm in names]
    assert cells[2].blocks == cells[3].blocks  # the same arm: the same numbers
    assert cells[1].admitted == pytest.approx(3, abs=0.3) and cells[0].tokens_per_step == 1.0
    assert cells[0].depth == 0 and cells[1].depth == pytest.approx(3, abs=0.01)
    compared = over_best_fixed(cells)
    assert [(each.arm, each.load) for each in compared] == [
        (arm, load) for load in (2, 64) for arm in names[2:]
    ]
    assert all(each.low < each.ratio < each.high for each in compared)
    assert rate(cells[0])[0] < cells[0].tokens_per_s < rate(cells[0])[1]


def test_results_do_not_depend_on_processes_or_passes(case):
    arms, loads = ["none", "adaptive", "adaptive+depth"], [1, 8]
    alone = sweep(case, arms, loads)
    together = sweep(case, arms, loads, processes=2)
    assert [(c.arm, c.load, c.blocks) for c in alone] == [(c.arm, c.load, c.blocks) for c in together]
    trace, emulated = case.opened()
    in_turns = Serving(trace, emulated, "adaptive", 8)
    assert len(in_turns.more(1).blocks) == 1
    assert in_turns.more(2).blocks == serve(trace, emulated, "adaptive", 8, repeats=3).blocks


def test_every_arm_serves_the_same_work(case):
    trace, emulated = case.opened()
    due = 42 * trace.output_tokens.mean()  # three texts a request
    for arm in ("none", "adaptive"):
        tokens = serve(trace, emulated, arm, 14, repeats=2).by_block("tokens")
        assert (tokens >= due).all() and (tokens < due + 14 * 4).all()


def test_what_cannot_be_swept_is_refused_before_anything_is_served(case):
    with pytest.raises(TraceError, match="serves 1 to 256 requests at once, not 300"):
        case.wanted(["none"], [1, 300])
    with pytest.raises(PolicyError, match="asks for 9 draft tokens"):
        case.wanted(["fixed:9"], [1])


def test_a_pool_that_is_closed_ends_its_processes(case):
    pool = Pool(case.trace, case.machine, 0, [("adaptive", 64)], (500,), 1)
    pool.close()
    assert pool.wait(10) and pool.error == "The replay was stopped."
    failed = Pool("missing.parquet", case.machine, 0, [("none", 1)], (1,), 1)
    assert failed.wait(60)
    with pytest.raises(ReplayFailed, match=r"missing\.parquet cannot be read"):
        failed.finished()


def test_cells_are_shared_out_whole():
    wanted = [(arm, load) for load in (1, 4, 256) for arm in ("none", "fixed:2", "adaptive")]
    shares = shared(wanted, 3)
    assert sorted(cell for share in shares for cell in share) == sorted(wanted) and all(shares)
    assert len(shared([("none", 1)], 4)) == 4


def made_cell(arm, milliseconds, texts=14, of=140, load=1):
    return Cell(
        arm, load, texts, of, tuple(Block(1000, float(ms), 500, 500, 500, 0, 0, 0) for ms in milliseconds)
    )


def test_an_interval_holds_the_ratio_of_the_population_as_often_as_it_says():
    """A trace's texts are a sample, and its replays are samples of those: the interval is for the whole population."""
    rng, hits, runs, T, n, R = np.random.default_rng(1), 0, 600, 140, 14, 10
    for _ in range(runs):
        texts = rng.normal(0.0, 0.1, T)  # log ratio of each text; 0 in the population
        blocks = rng.choice(texts, (R, n)).mean(axis=1) + rng.normal(0, 0.01, R)
        seen = ratio(made_cell("a", 1000 * np.exp(-blocks)), made_cell("b", np.full(R, 1000.0)))
        hits += seen.low <= 1 <= seen.high
    assert 0.93 < hits / runs < 0.985


@pytest.mark.parametrize(
    ("ahead", "covered", "off"), [(0.0, 0.89, 0.004), (0.01, 0.9, 0.0015), (0.03, 0.93, 0.0015)]
)
def test_the_choice_of_the_best_length_costs_little(ahead, covered, off):
    """Lengths that tie, or of which one is ahead: the adaptive arm is as good as the best of them."""
    rng, hits, found, runs, T, n, R = np.random.default_rng(2), 0, [], 400, 140, 14, 10
    for _ in range(runs):
        texts = rng.normal(0.0, 0.03, (5, T))
        drawn = rng.integers(0, T, (R, n))
        noise = texts[:, drawn].mean(axis=2) + rng.normal(0, 0.004, (5, R))
        noise[0] += ahead
        noise[4] += ahead
        lengths = [made_cell(f"fixed:{k}", 1000 * np.exp(-noise[k])) for k in range(4)]
        (seen,) = over_best_fixed([*lengths, made_cell("adaptive", 1000 * np.exp(-noise[4]))])
        hits += seen.low <= 1 <= seen.high
        found.append(seen.ratio)
    assert hits / runs > covered and abs(np.mean(found) - 1) < off


def test_how_many_repeats_a_half_width_takes():
    noise = np.random.default_rng(3).normal(0, 0.02, 12)
    one, other = (
        made_cell("a", 1000 * np.exp(-noise), of=14_000),
        made_cell("b", np.full(12, 1000.0), of=14_000),
    )
    needed = precision(one, other, 0.01)
    assert 12 < needed.repeats < 60 and needed.texts == 14_000
    short = precision(
        made_cell("a", 1000 * np.exp(-noise), of=20), made_cell("b", np.full(12, 1e3), of=20), 0.01
    )
    assert short.repeats is None and short.texts > 40
    assert precision(made_cell("a", [1.0]), made_cell("b", [1.0]), 0.01) is None


def test_an_ab_names_equals_and_winners():
    rng = np.random.default_rng(4)
    noise = rng.normal(0, 0.004, (3, 10))
    cells = [made_cell(arm, 1000 * np.exp(-noise[i] - gain)) for i, (arm, gain) in enumerate(
        (("fixed:2", 0.0), ("adaptive", 0.1), ("fixed:3", 0.0))
    )]  # fmt: skip
    answer = compared(cells)
    assert answer.baseline == "fixed:2"
    said = answer.sentences("emulated: x")
    assert (
        said[0].startswith("adaptive is 10") and "faster than fixed:2" in said[0] and "emulated: x" in said[0]
    )
    assert "are equal as far as this replay can tell" in said[1]
