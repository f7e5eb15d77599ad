"""Every draw has noise of its own: uniform, independent of every other draw, and never the same twice."""

import numpy as np
import pytest
from scipy import stats
from tiny_models import make_engine, write_block_drafter, write_llama

from avlab.engine import noise
from avlab.engine.noise import uniforms
from avlab.engine.request import Request
from avlab.policies.arm import Arm

STREAMS = (noise.DRAFT, noise.ACCEPT, noise.TOKEN, noise.COIN)
SEEDS = np.arange(400, dtype=np.uint64)


def grid():
    """Noise of 400 consecutive seeds, four streams, 25 counters, 8 indices: [400, 4, 25, 8]."""
    draws = [[uniforms(SEEDS, stream, np.full(400, c), 8) for c in range(25)] for stream in STREAMS]
    return np.moveaxis(np.array(draws), 2, 0)


def test_noise_is_uniform_along_every_axis():
    u = grid()
    assert u.dtype == np.float64 and u.min() >= 0 and u.max() < 1
    assert stats.kstest(u.ravel(), "uniform").pvalue > 1e-3
    for axis in range(u.ndim):
        groups = np.moveaxis(u, axis, 0).reshape(u.shape[axis], -1)
        pvalues = [stats.kstest(group, "uniform").pvalue for group in groups]
        assert min(pvalues) > 1e-3 / len(pvalues)
    bits = (u.ravel()[:, None] * 2.0 ** np.arange(1, 30) % 2 // 1).mean(
        0
    )  # every binary digit is a fair coin
    assert np.abs(bits - 0.5).max() < 4.5 * 0.5 / np.sqrt(u.size)


@pytest.mark.parametrize("axis", range(4), ids=["seed", "stream", "counter", "index"])
def test_neighbours_along_an_axis_are_independent(axis):
    u = np.moveaxis(grid(), axis, 0)
    a, b = u[:-1].ravel(), u[1:].ravel()
    assert abs(stats.pearsonr(a, b).statistic) < 4.5 / np.sqrt(a.size)
    table = np.histogram2d(a, b, bins=16, range=[[0, 1], [0, 1]])[0]
    assert stats.chisquare(table.ravel()).pvalue > 1e-3


def test_no_draw_is_made_twice():
    u = grid()
    assert len(np.unique(u)) == u.size
    wide = uniforms(np.array([7, 8], dtype=np.uint64), noise.DRAFT, np.array([0, 0]), 50_000)
    assert len(np.unique(wide)) == wide.size
    long = uniforms(np.full(50_000, 7, dtype=np.uint64), noise.DRAFT, np.arange(50_000), 2)
    assert len(np.unique(long)) == long.size


def test_a_draw_depends_on_nothing_but_its_name():
    one = uniforms(np.array([5], dtype=np.uint64), noise.ACCEPT, np.array([4]), 2)
    many = uniforms(np.arange(10, dtype=np.uint64), noise.ACCEPT, np.arange(10)[::-1], 6)
    assert (
        uniforms(np.array([5, 5], dtype=np.uint64), noise.ACCEPT, np.array([4, 5]), 2)[0].tolist()
        == one[0].tolist()
    )
    assert many[5, :2].tolist() == one[0].tolist()  # among other requests, and wider


def test_large_seeds_and_counters_are_as_good_as_small_ones():
    seeds = np.uint64(2**64 - 1) - SEEDS
    u = uniforms(seeds, noise.TOKEN, np.full(400, 2**40), 20)
    assert stats.kstest(u.ravel(), "uniform").pvalue > 1e-3
    assert len(np.unique(u)) == u.size


def test_the_engine_names_no_draw_twice(tmp_path):
    """Over trimmed drafts, prompts in chunks and policy switches: a request's counter never stands still."""
    names = []

    def recorded(seeds, stream, counters, width):
        names.extend((int(s), stream, int(c)) for s, c in zip(seeds, counters, strict=True))
        return uniforms(seeds, stream, counters, width)

    target = write_llama(tmp_path / "target")
    drafter = write_block_drafter(tmp_path / "drafter", target)
    engine = make_engine(target, "block", drafter, "adaptive", max_num_seqs=4, bump=1.0, prefill=8)
    engine.uniforms = recorded
    for i in range(9):
        engine.add(Request(i, [i + 1] * (3 + 5 * i), 12, seed=i))
    arms, emitted = ["adaptive", "none", "fixed:2", "adaptive+depth+explore=0.3"], 0
    while engine.running or engine.waiting:
        engine.set_policy(Arm.parse(arms[engine.step_number // 2 % 4]))
        emitted += engine.step().emitting
    assert len(set(names)) == len(names)
    assert sum(stream == noise.TOKEN for _, stream, _ in names) == emitted
    assert {stream for _, stream, _ in names} == {noise.DRAFT, noise.ACCEPT, noise.TOKEN, noise.COIN}
