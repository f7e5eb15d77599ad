"""A text drawn first and its drafts afterwards have the law of speculative decoding: exactly, under every rule."""

from collections import defaultdict
from itertools import product
from math import prod

import numpy as np
import pytest

from avlab.bias import trimming as rules
from avlab.bias.exact import Pair, Rule, Step, one_step
from avlab.speculation.costs import CostTable
from avlab.speculation.coupling import departure, draft_of_text, follow_probability
from avlab.speculation.sampling import one_hot, residual

COSTS = CostTable(
    np.array([[0, 0.2, 0.35, 0.5]] * 3), np.array([1.0, 1.05, 1.5, 1.6, 2.4, 2.5, 2.6, 3.5, 4.0])
)


def served(pair, rule, starts, steps, length):
    """Law of (tokens emitted by step and request, first `length` tokens of every request), by enumerating serving."""
    states = {(tuple((s,) for s in starts), None, ((),) * len(starts)): {(): 1.0}}
    for _ in range(steps):
        following = defaultdict(lambda: defaultdict(float))
        for state, histories in states.items():
            for after, way in one_step(pair, rule, state, False, False).items():
                emitted = tuple(len(new) - len(old) for new, old in zip(after[0], state[0], strict=True))
                for counts, chance in histories.items():
                    following[after][counts + (emitted,)] += chance * way
        states = following
    law = defaultdict(float)
    for (histories, _, _), ways in states.items():
        for texts in product(*(continued(pair, h, length) for h in histories)):
            for counts, chance in ways.items():
                law[counts, tuple(t for t, _ in texts)] += chance * prod(c for _, c in texts)
    return law


def continued(pair, history, length):
    """Every text of `length` tokens behind the start that begins so, and its chance when the target goes on."""
    law = {history: 1.0}
    while len(next(iter(law))) <= length:
        law = {h + (x,): c * p for h, c in law.items() for x, p in enumerate(pair.target(h)) if p > 0}
    found = defaultdict(float)
    for h, c in law.items():
        found[h[: length + 1]] += c
    return list(found.items())


def drafts_of(pair, history, text):
    """Every draft behind a history that goes on as `text`: (tokens, rows, chance, how many slots follow the text)."""
    begun = [((), (), 1.0, 0)]
    for k in range(pair.K):
        longer = []
        for tokens, rows, chance, followed in begun:
            q = pair.draft(history, tokens)
            if followed == k:
                p = pair.target(history + text[:k])
                stay = float(follow_probability(p, q, text[k]))
                ways = [(text[k], stay, 1)] + [(y, (1 - stay) * d, 0) for y, d in enumerate(departure(p, q))]
            else:
                ways = [(y, chance_of, 0) for y, chance_of in enumerate(q)]
            for y, way, on in ways:
                if way > 0:
                    longer.append((tokens + (y,), rows + (q,), chance * way, followed + on))
        begun = longer
    return begun


def tails_of(pair, history, tokens, rows):
    """Every way to draft on behind verified slots, by the drafter alone: (tokens, rows, chance)."""
    begun = [(tokens, rows, 1.0)]
    for _ in range(pair.K - len(tokens)):
        begun = [
            (t + (y,), r + (q,), c * q[y])
            for t, r, c in begun
            for q in [pair.draft(history, t)]
            for y in np.flatnonzero(q).tolist()
        ]
    return begun


def replayed(pair, rule, starts, steps, length, fresh=True):
    """The same law from texts that are drawn first. fresh: slots that were not verified are remembered as the drafter
    alone would have drafted them; else as the text's own draft has them."""
    law, whole = defaultdict(float), max(steps * (pair.K + 1), length)
    for chosen in product(*(continued(pair, (s,), whole) for s in starts)):
        texts = [text for text, _ in chosen]
        states = {((0,) * len(starts), None, ()): prod(chance for _, chance in chosen)}
        for _ in range(steps):
            following = defaultdict(float)
            for (at, earlier, counts), chance in states.items():
                histories = tuple(text[: t + 1] for text, t in zip(texts, at, strict=True))
                drafts = [
                    drafts_of(pair, h, text[len(h) : len(h) + pair.K])
                    for h, text in zip(histories, texts, strict=True)
                ]
                for drawn in product(*drafts):
                    tokens, rows, chances, followed = zip(*drawn, strict=True)
                    for fell, coins in rule.toss(len(starts)):
                        step = Step(histories, tokens, rows, earlier, coins)
                        for weight, lengths in rule.admit(step):
                            emitted = tuple(min(n, a) + 1 for n, a in zip(followed, lengths, strict=True))
                            tails = [
                                tails_of(pair, h, t[:a], r[:a]) if fresh and n >= a else [(t, r, 1.0)]
                                for h, t, r, a, n in zip(
                                    histories, tokens, rows, lengths, followed, strict=True
                                )
                            ]
                            for tail in product(*tails):
                                remembered = rule.remember(
                                    Step(histories, *list(zip(*tail, strict=True))[:2], earlier, coins)
                                )
                                way = weight * fell * prod(chances) * prod(c for _, _, c in tail)
                                after = tuple(t + n for t, n in zip(at, emitted, strict=True))
                                following[after, remembered, counts + (emitted,)] += chance * way
            states = following
        for (_, _, counts), chance in states.items():
            law[counts, tuple(text[: length + 1] for text in texts)] += chance
    return law


def variation(one, other):
    return sum(abs(one.get(each, 0.0) - other.get(each, 0.0)) for each in {*one, *other}) / 2


def rows_of(rng, *shape, greedy=False):
    rows = rng.dirichlet(np.full(shape[-1], 0.8), shape[:-1])
    return one_hot(rows.argmax(-1), shape[-1]) if greedy else rows


def first_nothing_then_by_memory(cut):
    """Verifies nothing, then everything where the second slot's row was sure enough a step before."""

    def admit(step):
        K = len(step.tokens[0])
        if step.earlier is None:
            return [(1.0, (0,) * len(step.tokens))]
        return [(1.0, tuple(K if sure > cut else 0 for sure in step.earlier))]

    return Rule(admit, lambda step: tuple(float(rows[1].max()) for rows in step.rows))


RULES = {
    "fixed:1": rules.fixed(1),
    "fixed:2": rules.fixed(2),
    "adaptive": rules.adaptive(rules.maximum_probability, COSTS, unknown=0.5),
    "adaptive, new requests certain": rules.adaptive(rules.maximum_probability, COSTS),
    "adaptive+depth": rules.adaptive(rules.maximum_probability, COSTS, choose_depth=True, unknown=None),
    "adaptive+explore": rules.adaptive(rules.maximum_probability, COSTS, explore=0.3, unknown=0.5),
    "by memory": first_nothing_then_by_memory(0.6),
}


CASES = [(name, K, 1) for name in RULES for K in (2, 3)] + [("adaptive", 1, 2), ("adaptive+explore", 1, 2)]


@pytest.mark.parametrize(("name", "K", "requests"), CASES)
@pytest.mark.parametrize("greedy", [False, True], ids=["sampled", "greedy"])
def test_replay_has_the_law_of_serving(name, K, requests, greedy):
    rng = np.random.default_rng(K)
    target, drafter = rows_of(rng, 2, 2, greedy=greedy), rows_of(rng, 2, 2, greedy=greedy)
    for pair in (Pair.markov(target, drafter, K), Pair.parallel(target, rows_of(rng, 2, K, 2))):
        starts = (0, 1)[:requests]
        there, here = (law(pair, RULES[name], starts, 2, 3) for law in (served, replayed))
        assert sum(here.values()) == pytest.approx(1.0) and variation(there, here) < 1e-12


def test_a_draft_that_knows_the_text_must_not_be_remembered():
    """Estimates of slots that were not verified, taken from the text's own draft, tell the policy of the future."""
    rng = np.random.default_rng(3)
    pair = Pair.markov(rows_of(rng, 2, 2), rows_of(rng, 2, 2), 2)
    rule = first_nothing_then_by_memory(float(np.mean([pair.draft((x,), ()).max() for x in (0, 1)])))
    there = served(pair, rule, (0,), 2, 3)
    assert variation(there, replayed(pair, rule, (0,), 2, 3)) < 1e-12
    assert variation(there, replayed(pair, rule, (0,), 2, 3, fresh=False)) > 0.005


def test_both_directions_have_one_joint_law():
    rng = np.random.default_rng(0)
    for _ in range(20):
        p, q = rng.dirichlet(np.full(5, 0.5)), rng.dirichlet(np.full(5, 0.5))
        forward = np.diag(np.minimum(p, q)) + np.outer(np.maximum(q - p, 0), residual(p, q))
        follow = follow_probability(np.tile(p, (5, 1)), np.tile(q, (5, 1)), np.arange(5))
        backward = np.diag(p * follow) + np.outer(departure(p, q), p * (1 - follow))
        np.testing.assert_allclose(forward, backward, atol=1e-15)


def test_drawn_drafts_are_distributed_as_q():
    rng = np.random.default_rng(1)
    p, q, n = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6)), 200_000
    text = rng.choice(6, n, p=p)
    tokens, follows = draft_of_text(
        np.tile(p, (n, 1)), np.tile(q, (n, 1)), text, rng.random(n), rng.random(n)
    )
    assert (tokens[follows] == text[follows]).all() and (tokens[~follows] != text[~follows]).all()
    np.testing.assert_allclose(np.bincount(tokens, minlength=6) / n, q, atol=5 * 0.5 / np.sqrt(n))
    assert follows.mean() == pytest.approx(np.minimum(p, q).sum(), abs=5 * 0.5 / np.sqrt(n))


def test_a_text_that_is_not_the_targets_is_refused():
    with pytest.raises(ValueError, match="does not"):
        follow_probability([[1.0, 0.0]], [[0.5, 0.5]], [1])
