"""What comes out of speculative decoding, exactly: every draw of a small target and drafter is enumerated.

Nothing here is sampled, so a rule that decides which draft tokens are verified is shown to keep the target's
distribution, or by how much it bends it, to rounding error. Rules are in `trimming`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from avlab.speculation.sampling import acceptance_probability, residual

Tokens = tuple[int, ...]
Interval = tuple[float, float]
WHOLE: Interval = (0.0, 1.0)


class Pair:
    """A target and a drafter over V tokens, drafting K positions; both any function of what came before.

    target(history) and draft(history, prefix) return distributions [V]: history is every token so far (it
    begins with a start token), prefix the draft tokens before the slot. Rows are asked for once and
    remembered.
    """

    def __init__(
        self,
        V: int,
        K: int,
        target: Callable[[Tokens], np.ndarray],
        draft: Callable[[Tokens, Tokens], np.ndarray],
    ):
        self.V, self.K = V, K
        self.target = lru_cache(None)(lambda history: np.asarray(target(history), dtype=np.float64))
        self.draft = lru_cache(None)(lambda history, prefix: np.asarray(draft(history, prefix), np.float64))
        self.verified = lru_cache(None)(self._verified)

    @classmethod
    def markov(cls, target, drafter, K: int) -> Pair:
        """Both look at the token before only, [V, V] each: an autoregressive drafter (EAGLE, MTP)."""
        target, drafter = np.asarray(target), np.asarray(drafter)
        return cls(len(target), K, lambda h: target[h[-1]], lambda h, prefix: drafter[(h + prefix)[-1]])

    @classmethod
    def parallel(cls, target, drafter) -> Pair:
        """Target [V, V]; drafter [V, K, V] by last token and position: rows know no draft token (DFlash)."""
        target, drafter = np.asarray(target), np.asarray(drafter)
        return cls(
            len(target),
            drafter.shape[1],
            lambda h: target[h[-1]],
            lambda h, prefix: drafter[h[-1], len(prefix)],
        )

    def _verified(
        self, history: Tokens, admitted: Tokens, intervals: tuple[Interval, ...]
    ) -> list[tuple[Tokens, float]]:
        """What one verification appends to a history, and with what chance.

        intervals: for each drafted slot, the part of the unit interval that the target's own token is drawn
        from there; the whole of it unless noise is reused.
        """
        outcomes, reached, kept = [], 1.0, history
        for k, token in enumerate(admitted):
            p, q = self.target(kept), self.draft(history, admitted[:k])
            accept = float(acceptance_probability(p, q)[token])
            if accept < 1.0:
                for x, chance, _ in _draws(residual(p, q), intervals[k]):
                    outcomes.append((kept + (x,), reached * (1.0 - accept) * chance))
            reached, kept = reached * accept, kept + (token,)
        last = intervals[len(admitted)] if len(admitted) < self.K else WHOLE
        outcomes += [(kept + (x,), reached * chance) for x, chance, _ in _draws(self.target(kept), last)]
        return [(after, chance) for after, chance in outcomes if chance > 0]


def _draws(distribution: np.ndarray, interval: Interval = WHOLE) -> Iterable[tuple[int, float, Interval]]:
    """Tokens a uniform in `interval` can pick, with chance and the part of the interval that does."""
    if interval == WHOLE:
        edges = np.concatenate([[0.0], np.cumsum(distribution)])
        for x in np.flatnonzero(distribution).tolist():
            yield x, float(distribution[x]), (float(edges[x]), float(edges[x + 1]))
        return
    low, high = interval
    edges = np.concatenate([[0.0], np.cumsum(distribution)])
    edges[-1] = max(edges[-1], high)
    for x in np.flatnonzero(distribution).tolist():
        left, right = max(low, float(edges[x])), min(high, float(edges[x + 1]))
        if right > left:
            yield x, (right - left) / (high - low), (left, right)


class Step(NamedTuple):
    """What lies before a rule at one step of B requests; a sound rule does not look at all of it.

    histories: tokens so far, one tuple a request. tokens [B][K]: this step's draft. rows [B][K]: the draft
    distributions [V] they were drawn from. earlier: what the rule remembered at the step before, None at
    first. coins: one outcome of the rule's toss.
    """

    histories: tuple[Tokens, ...]
    tokens: tuple[Tokens, ...]
    rows: tuple[tuple[np.ndarray, ...], ...]
    earlier: Any
    coins: tuple[bool, ...] = ()


@dataclass(frozen=True)
class Rule:
    """Which draft slots are verified.

    admit: chances and prefix lengths, [(chance, (length, ...)), ...], the chances adding up to 1.
    remember: what the next step is told as `earlier`; must be hashable.
    toss: from the number of requests to every outcome of coins that know no draft, [(chance, coins), ...].
    """

    admit: Callable[[Step], Iterable[tuple[float, tuple[int, ...]]]]
    remember: Callable[[Step], Any] = lambda step: None
    toss: Callable[[int], Iterable[tuple[float, tuple[bool, ...]]]] = lambda requests: [(1.0, ())]


class _Draft(NamedTuple):
    tokens: Tokens
    rows: tuple[np.ndarray, ...]
    chance: float
    intervals: tuple[Interval, ...]


def _drafts(pair: Pair, history: Tokens, noise: tuple[Interval, ...]) -> list[_Draft]:
    """Every draft of a request; noise: what is already known of the uniforms of its first slots."""
    drafts = [_Draft((), (), 1.0, ())]
    for k in range(pair.K):
        known = noise[k] if k < len(noise) else WHOLE
        drafts = [
            _Draft(begun.tokens + (x,), begun.rows + (row,), begun.chance * chance, begun.intervals + (part,))
            for begun in drafts
            for row in [pair.draft(history, begun.tokens)]
            for x, chance, part in _draws(row, known)
        ]
    return drafts


def one_step(pair: Pair, rule: Rule, state, draft_noise_again: bool, target_shares_noise: bool):
    """Chance of every state that follows a state (histories, what the rule remembered, known noise).

    Faults as in `output_distribution`.
    """
    histories, earlier, noise = state
    fresh = (WHOLE,) * pair.K
    groups: defaultdict[Any, float] = defaultdict(float)
    for drafts in product(*(_drafts(pair, h, known) for h, known in zip(histories, noise, strict=True))):
        chance = prod(draft.chance for draft in drafts)
        parts = tuple(d.intervals if draft_noise_again or target_shares_noise else fresh for d in drafts)
        tokens, rows = tuple(d.tokens for d in drafts), tuple(d.rows for d in drafts)
        for fell, coins in rule.toss(len(histories)):
            step = Step(histories, tokens, rows, earlier, coins)
            memory = rule.remember(step)
            for weight, lengths in rule.admit(step):
                admitted = tuple(own[:m] for own, m in zip(tokens, lengths, strict=True))
                groups[admitted, parts, memory] += chance * fell * weight
    following: defaultdict[Any, float] = defaultdict(float)
    for (admitted, parts, memory), chance in groups.items():
        ways = [
            pair.verified(h, tokens, part if target_shares_noise else fresh)
            for h, tokens, part in zip(histories, admitted, parts, strict=True)
        ]
        for outcome in product(*ways):
            after = tuple(h for h, _ in outcome)
            known = tuple(
                part[len(new) - len(old) :] if draft_noise_again else ()
                for part, new, old in zip(parts, after, histories, strict=True)
            )
            following[after, memory, known] += chance * prod(way for _, way in outcome)
    return following


def output_distribution(
    pair: Pair,
    rule: Rule,
    starts: Tokens = (0,),
    length: int = 1,
    steps: int = 2,
    draft_noise_again: bool = False,
    target_shares_noise: bool = False,
) -> np.ndarray:
    """Exact joint distribution of every request's first `length` tokens, one axis [V ** length] each.

    starts: each request's start token, B of them. `steps` steps are enumerated; what they leave short is
    completed by the target itself, which keeps a sound rule sound and cannot repair another. Sequences are
    numbered with the first token as the highest digit. Two faults can be switched on: draft_noise_again: a
    position that was trimmed is drawn again with the same noise (vLLM 0.32); target_shares_noise: the
    correction comes from the noise that drew the draft (vLLM before #54282; noise here is one uniform a
    position). Work grows as V ** (B K): meant for V up to 8, K up to 3, B up to 2.
    """
    states: dict[Any, float] = {(tuple((s,) for s in starts), None, ((),) * len(starts)): 1.0}
    for _ in range(steps):
        following: defaultdict[Any, float] = defaultdict(float)
        for state, chance in states.items():
            if all(len(history) > length for history in state[0]):
                following[tuple(h[: length + 1] for h in state[0]), None, ((),) * len(starts)] += chance
                continue
            for after, way in one_step(pair, rule, state, draft_noise_again, target_shares_noise).items():
                following[after] += chance * way
        states = following
    result = np.zeros((pair.V**length,) * len(starts))
    completed = lru_cache(None)(lambda history: _completed(pair, history[: length + 1], length))
    for (histories, _, _), chance in states.items():
        result += chance * reduce(np.multiply.outer, [completed(history) for history in histories])
    return result


def drafts_to_enumerate(V: int, K: int, requests: int = 1, length: int = 1, steps: int = 2) -> int:
    """How many drafts `output_distribution` looks at, at least: all of every text that is still too short."""
    total, texts = 0, 1
    for step in range(1, steps + 1):
        total += texts * V ** (K * requests)
        whole = [V**n for n in range(1, (K + 1) * step + 1)]  # texts of a request by their tokens
        texts = sum(whole) ** requests - sum(whole[length - 1 :]) ** requests  # some request is too short
    return total


def _completed(pair: Pair, history: Tokens, length: int) -> np.ndarray:
    """Distribution [V ** length] of a history's first `length` tokens when the target writes the rest."""
    law = {history: 1.0}
    while len(next(iter(law))) <= length:
        law = {h + (x,): w * chance for h, w in law.items() for x, chance, _ in _draws(pair.target(h))}
    result = np.zeros(pair.V**length)
    for h, chance in law.items():
        result[reduce(lambda number, x: number * pair.V + x, h[1:], 0)] += chance
    return result


def target_law(pair: Pair, starts: Tokens = (0,), length: int = 1) -> np.ndarray:
    """What `output_distribution` must be: the target alone, every request by itself."""
    return reduce(np.multiply.outer, [_completed(pair, (start,), length) for start in starts])


def token_distribution(joint: np.ndarray, V: int, request: int = 0, position: int = 0) -> np.ndarray:
    """Distribution [V] of one request's token at one position, from an `output_distribution`."""
    alone = joint.sum(axis=tuple(axis for axis in range(joint.ndim) if axis != request))
    length = round(np.log(len(alone)) / np.log(V))
    return alone.reshape((V,) * length).sum(axis=tuple(axis for axis in range(length) if axis != position))


def total_variation(one, other) -> float:
    """Half the summed absolute difference of two distributions: the most any event's chance differs by."""
    return float(np.abs(np.asarray(one) - np.asarray(other)).sum() / 2)
