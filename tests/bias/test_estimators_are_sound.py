"""Serving by any estimator leaves the target's distribution as it is: every draw of two steps is enumerated.

The estimator learns between the steps from the labels of the first, and refits; so its second estimates know what was
accepted, and must still not bend the output.
"""

import numpy as np
import pytest

from avlab.bias.exact import Pair, Rule, output_distribution, target_law, total_variation
from avlab.speculation.costs import CostTable
from avlab.speculation.decision import Offer, admit, decide, running_mean
from avlab.speculation.estimates import Estimates
from avlab.speculation.estimators import base
from avlab.speculation.features import Features, log_odds, max_log_odds
from avlab.speculation.labels import labels

K = 2
COSTS = CostTable(
    np.array([[0, 0.2, 0.3]] * 3), np.array([1.0, 1.05, 1.6, 1.62, 2.4, 2.5, 2.52])
)  # not convex


def told(estimator, step_rows, histories, drafts):
    """Features of a step. The head is any function of the prefix, as a head's hidden state is."""
    B = len(step_rows)
    columns = {
        "max_log_odds": np.array([[max_log_odds(np.log(row)) for row in rows] for rows in step_rows]),
        "head_log_odds": np.array(
            [
                [np.sin(3.0 * sum(h) + 2.0 * sum(d[:k]) + k) for k in range(K)]
                for h, d in zip(histories, drafts, strict=True)
            ]
        ),
        "match_length": np.array([[1.0 + (sum(h) + k) % 3 for k in range(K)] for h in histories]),
        "match_source": np.array([[float(len(h) % 2)] * K for h in histories]),
        "drawn_log_odds": np.array(
            [[log_odds(rows[k][d[k]]) for k in range(K)] for rows, d in zip(step_rows, drafts, strict=True)]
        ),
    }
    whole = Features.of(columns).only(estimator.reads)
    return Features(whole.names, whole.values, tuple("ab"[i % 2] for i in range(B)))


def hashable(values):
    """Nested tuples, None for nan, which equals nothing."""
    if np.ndim(values):
        return tuple(map(hashable, values))
    return None if np.isnan(values) else float(values)


def served_by(name, depth):
    """The engine's rule around a learning estimator, whose state is rebuilt from what the step before remembered."""

    def state(step):
        estimator, B = base.named(name)(K, interval=1), len(step.tokens)
        if step.earlier is None:
            return estimator, np.full((B, K), np.nan), np.ones(K)
        values, chance, admitted, lengths_before, mean = step.earlier
        accepted = [len(h) - n - 1 for h, n in zip(step.histories, lengths_before, strict=True)]
        features = Features(
            estimator.reads, np.array(values, dtype=float), tuple("ab"[i % 2] for i in range(B))
        )
        estimator.observe(features, np.array(chance, dtype=float), labels(accepted, admitted, K))
        estimator.end_step()
        return estimator, np.array(chance, dtype=float), np.array(mean)

    def settle(step):
        estimator, earlier, mean = state(step)
        B = len(step.tokens)
        offer = Offer(np.full(B, K), earlier, np.zeros(B), B, B, B)
        mean = running_mean(mean, earlier)
        decision = decide(offer, mean if depth else np.ones(K), COSTS, depth, np.zeros(B, dtype=bool))
        features = told(estimator, step.rows, step.histories, step.tokens)
        features.values[:, decision.drafted :] = np.nan
        estimates = Estimates.of(estimator.predict(features))
        _, lengths = admit(decision, estimates.survival, np.minimum(offer.scheduled, decision.depth))
        return features, estimates, lengths, decision, mean

    def way(step):
        return [(1.0, tuple(settle(step)[2].tolist()))]

    def remember(step):
        features, estimates, lengths, _, mean = settle(step)
        return (
            hashable(features.values),
            hashable(estimates.probability),
            tuple(lengths.tolist()),
            tuple(map(len, step.histories)),
            tuple(mean.tolist()),
        )

    return Rule(way, remember)


def bend(name, depth, requests, seed):
    rng = np.random.default_rng(seed)
    target, drafter = (rng.dirichlet(np.full(2, 0.7), 2) for _ in range(2))
    starts, length = (0, 1)[:requests], 3 if requests == 1 else 2
    worst = 0.0
    for pair in (Pair.markov(target, drafter, K), Pair.parallel(target, rng.dirichlet(np.ones(2), (2, K)))):
        law = output_distribution(pair, served_by(name, depth), starts, length)
        worst = max(worst, total_variation(law, target_law(pair, starts, length)))
    return worst


@pytest.mark.parametrize("depth", [False, True], ids=["adaptive", "+depth"])
@pytest.mark.parametrize("name", base.names())
def test_every_servable_estimator_keeps_the_targets_distribution(name, depth):
    assert max(bend(name, depth, 1, seed) for seed in range(3)) <= 1e-12
    assert bend(name, depth, 2, 7) <= 1e-12


def test_one_that_looks_at_the_drawn_token_bends_it():
    """So the enumeration can fail."""
    assert any(bend("drawn", False, 2, seed) > 1e-3 for seed in range(4))
    assert "drawn" in base.judged() and "drawn" not in base.names()
