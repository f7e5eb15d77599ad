"""A parametric trace has the rates and the AUC that were asked for, says what it is, and refuses what cannot be."""

import numpy as np
import pytest

from avlab.replay.about import TraceError
from avlab.replay.parametric import Acceptance, conditional, parametric
from avlab.replay.trace import read_trace, write_trace

RATES = (0.8, 0.65, 0.6, 0.5)


def area(score, accepted):
    """The chance that an accepted slot scores higher than a refused one; scores are all different."""
    rank = np.empty(len(score))
    rank[np.argsort(score)] = np.arange(1, len(score) + 1)
    ones = accepted.sum()
    return (rank[accepted].sum() - ones * (ones + 1) / 2) / (ones * (len(score) - ones))


@pytest.mark.parametrize("correlation", [0.0, 0.5])
@pytest.mark.parametrize("auc", [0.6, 0.85])
def test_rates_and_auc_come_out(auc, correlation):
    trace = parametric(Acceptance(RATES, auc, correlation), texts=4000, tokens=50)
    left = np.tile(np.arange(49, 0, -1), 4000)
    for k, rate in enumerate(RATES):
        reached = (trace.accepted >= k) & (left > k)
        follows = trace.accepted[reached] > k
        # slots of a request are alike: its mean counts, not each slot
        error = (0.5 / np.sqrt(reached.sum())) if correlation == 0 else 0.5 / np.sqrt(4000)
        assert follows.mean() == pytest.approx(rate, abs=4 * error), k
        found = area(trace.features[reached, k, 0].astype(np.float64), follows)
        assert found == pytest.approx(auc, abs=0.004 if correlation == 0 else 0.015), k
        # the feature is the log-odds itself
        assert trace.acceptance[reached, k].mean() == pytest.approx(follows.mean(), abs=4 * error)


def test_slots_of_a_request_are_alike_as_asked():
    spread = []
    for correlation in (0.0, 0.3, 0.8):
        trace = parametric(Acceptance((0.6, 0.6), 0.8, correlation), texts=1000, tokens=41)
        spread.append(trace.features[:, 0, 0].reshape(1000, 40).mean(1).std())
    assert spread[0] < 0.4 * spread[1] and spread[1] < 0.8 * spread[2]


def test_rates_of_nothing_and_of_everything():
    trace = parametric(Acceptance((1.0, 0.0, 0.5), 0.8), texts=50, tokens=20)
    inside = np.tile(np.arange(19, 0, -1), 50) > 1
    assert (trace.accepted[inside] == 1).all() and np.isfinite(trace.features).all()


def test_it_is_written_read_and_says_what_it_is(tmp_path):
    trace = parametric(Acceptance((0.7, 0.5), source="a server's /metrics"), texts=5, tokens=20)
    write_trace(trace, tmp_path / "made.parquet")
    about = read_trace(tmp_path / "made.parquet").about
    assert (
        about.origin == "parametric"
        and "parametric" in about.text()
        and "a server's /metrics" in about.text()
    )
    again = parametric(Acceptance((0.7, 0.5)), texts=5, tokens=20)
    np.testing.assert_array_equal(trace.features, again.features)


def test_shares_become_rates():
    assert conditional((0.8, 0.4, 0.1)) == pytest.approx((0.8, 0.5, 0.25))
    assert conditional((0.5, 0.0, 0.0)) == (0.5, 0.0, 0.0)
    for shares in ((0.5, 0.6), (1.2,), (-0.1,), (float("nan"),)):
        with pytest.raises(TraceError):
            conditional(shares)


@pytest.mark.parametrize(
    "acceptance",
    [
        Acceptance(()),
        Acceptance((1.5,)),
        Acceptance((float("nan"),)),
        Acceptance((0.5,), auc=1.0),
        Acceptance((0.5,), auc=0.4),
        Acceptance((0.5,), correlation=1.0),
        Acceptance((0.5,) * 65),
    ],
)
def test_what_cannot_be_is_one_sentence(acceptance):
    with pytest.raises(TraceError) as refused:
        parametric(acceptance)
    assert str(refused.value).endswith(".")
    with pytest.raises(TraceError, match="1 to 100,000 texts"):
        parametric(Acceptance((0.5,)), texts=0)
