import json

import numpy as np
import pytest
from oracle_vectors import oracle

from avlab.speculation.costs import CostTable, convex_curve, curve_of, depth_table, linear_table, padded_table


@pytest.mark.parametrize("case", [0, 1, 2])
def test_padded_tables_agree_with_vllm(case):
    reference = oracle("cost_tables")
    captured, requests, tokens = reference[f"limits_{case}"]
    draft, verify = reference[f"draft_curve_{case}"], reference[f"verify_curve_{case}"]
    table = CostTable.padded(draft, verify, requests, tokens, captured)
    np.testing.assert_allclose(table.draft, reference[f"draft_table_{case}"], atol=1e-9)
    np.testing.assert_allclose(table.verify, reference[f"verify_table_{case}"], atol=1e-9)


def test_a_curve_is_medians_that_do_not_fall():
    sizes, costs = curve_of([(8, 5.0), (1, 2.0), (1, 3.0), (1, 90.0), (4, 7.0), (8, 6.0)])
    assert sizes.tolist() == [1, 4, 8]
    assert costs.tolist() == [3.0, 7.0, 7.0]


def test_padding_costs_what_the_next_captured_size_costs():
    table = padded_table([(2, 1.0), (4, 2.0), (8, 3.0), (12, 5.0), (16, 9.0)], 18, captured=8)
    assert table[:9].tolist() == [1, 1, 1, 2, 2, 3, 3, 3, 3]
    assert table[9:].tolist() == [5, 5, 5, 5, 6, 7, 8, 9, 10, 11]


def test_without_a_captured_size_all_is_steps():
    assert padded_table([(2, 1.0), (4, 2.0)], 6).tolist() == [1, 1, 1, 2, 2, 2.5, 3]


def test_an_engine_that_does_not_pad_has_straight_lines():
    table = linear_table([(2, 1.0), (4, 2.0), (8, 3.0)], 12)
    np.testing.assert_allclose(table, [1, 1, 1, 1.5, 2, 2.25, 2.5, 2.75, 3, 3.25, 3.5, 3.75, 4])


def test_a_convex_curve_lies_beneath_the_quickest_runs():
    samples = [(1, 2.0), (1, 2.2), (1, 90.0), (2, 50.0), (4, 3.0), (8, 11.0), (8, 11.0), (16, 11.0)]
    sizes, costs = convex_curve(samples)
    assert sizes.tolist() == [1, 2, 4, 8, 16]
    np.testing.assert_allclose(costs, [2.1, 2.4, 3.0, 3.0 + 8 / 12 * 4, 11.0])  # 2 and 8 lie above the line


@pytest.mark.parametrize("seed", range(5))
def test_a_convex_table_does_not_fall_nor_bend_down_whatever_was_timed(seed):
    draw = np.random.default_rng(seed)
    samples = np.stack([draw.integers(1, 40, 60), draw.exponential(10.0, 60)], axis=1)
    table = CostTable.convex([(1, 0.0)], samples, 4, 60).verify
    first = int(samples[:, 0].min())
    assert (np.diff(table) >= -1e-12).all() and (np.diff(table[first:], 2) >= -1e-9).all()
    quickest = {n: np.sort(samples[samples[:, 0] == n, 1])[:2].mean() for n in np.unique(samples[:, 0])}
    assert all(table[int(n)] <= ms + 1e-12 for n, ms in quickest.items())


def test_convex_samples_are_kept_as_they_are():
    samples = [(n, 5.0 + 0.01 * n * n) for n in (1, 2, 5, 9, 20)]
    np.testing.assert_allclose(convex_curve(samples)[1], [ms for _, ms in samples])


def test_one_sample_is_a_constant():
    assert linear_table([(3, 2.0)], 5).tolist() == [2.0] * 6
    assert padded_table([(3, 2.0)], 5, captured=4).tolist() == [2.0] * 6


@pytest.mark.parametrize("samples", [[], [(1, np.nan)], [(np.inf, 1.0)]])
def test_unusable_samples_are_refused(samples):
    with pytest.raises(ValueError, match="finite"):
        curve_of(samples)


def test_draft_cost_by_depth():
    samples = [(1, 1, 2.0), (2, 1, 3.0), (1, 3, 4.0), (2, 3, 7.0)]
    table = depth_table(samples, 2, 4)
    np.testing.assert_allclose(table[1], [0, 2, 3, 4, 4])
    np.testing.assert_allclose(table[2], [0, 3, 5, 7, 7])
    with pytest.raises(ValueError, match="depth 1"):
        depth_table([(1, 0, 0.0)], 2, 4)
    by_depth = CostTable.linear(samples, [(1, 5.0), (3, 6.0)], 2, 4, K=4)
    np.testing.assert_allclose(by_depth.draft_at(3), [4, 4, 7])
    np.testing.assert_allclose(by_depth.verify, [5, 5, 5.5, 6, 6.5])


def test_without_depths_any_depth_costs_the_same_and_depth_zero_nothing():
    table = CostTable.linear([(1, 2.0), (2, 3.0)], [(1, 5.0)], 2, 4)
    assert table.draft_at(4).tolist() == [2.0, 2.0, 3.0]
    assert table.draft_at(0).tolist() == [0.0] * 3


def test_tables_survive_json():
    table = CostTable.linear([(1, 0.1), (2, 0.3)], [(1, 1 / 3), (9, 0.7)], 4, 16)
    again = CostTable.from_dict(json.loads(json.dumps(table.to_dict())))
    np.testing.assert_array_equal(again.draft, table.draft)
    np.testing.assert_array_equal(again.verify, table.verify)


@pytest.mark.parametrize(
    "plain", [{}, {"draft": [1.0]}, {"draft": [1.0], "verify": ["x"]}, {"draft": [], "verify": [1.0]}, []]
)
def test_what_is_not_a_cost_table_is_refused(plain):
    with pytest.raises(ValueError, match="cost table"):
        CostTable.from_dict(plain)
