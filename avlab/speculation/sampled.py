"""What comes out of speculative decoding, drawn rather than enumerated: many texts at once, on arrays.

Where `exact` has too many states to enumerate, and wherever a reader should see draws converge.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from avlab.speculation.exact import Pair, Rule, Step, Tokens
from avlab.speculation.sampling import draw, speculative_sample

State = tuple[tuple[Tokens, ...], Any]  # every request's history, and what the rule remembered


def sample_outputs(
    pair: Pair,
    rule: Rule,
    trials: int,
    random: np.random.Generator,
    starts: Tokens = (0,),
    length: int = 1,
    steps: int = 2,
    memory: int | None = None,
    **faults: bool,
) -> np.ndarray:
    """`exact.output_distribution` by sampling: how often each output came; same shape, sums to trials.

    Arguments as in `sample_texts`.
    """
    texts = sample_texts(pair, rule, trials, random, starts, length, steps, memory, **faults)
    cells = (texts * pair.V ** np.arange(length)[::-1]).sum(axis=2)  # [trials, B]
    counts = np.zeros((pair.V**length,) * len(starts), dtype=np.int64)
    np.add.at(counts, tuple(cells.T), 1)
    return counts


def sample_texts(
    pair: Pair,
    rule: Rule,
    trials: int,
    random: np.random.Generator,
    starts: Tokens = (0,),
    length: int = 1,
    steps: int = 2,
    memory: int | None = None,
    draft_noise_again: bool = False,
    target_shares_noise: bool = False,
) -> np.ndarray:
    """The first `length` tokens of every request, [trials, B, length]; arguments as in `exact.output_distribution`.

    Drafts are drawn and verified by `sampling.draw` and `sampling.speculative_sample`. memory: how many of the last
    tokens the pair looks at, if not all (1 for Markov tables): pair and rule are then shown no more of a history.
    """
    B, K, V = len(starts), pair.K, pair.V
    written = np.zeros((trials, B, length + (steps + 1) * (K + 1)), dtype=np.int64)
    count = np.zeros((trials, B), dtype=np.int64)  # tokens written
    by_place = random.random(written.shape) if draft_noise_again else None
    known: dict[State, int] = {((tuple((s,) for s in starts), None)): 0}
    states = list(known)
    state = np.zeros(trials, dtype=np.int64)  # index into `states`

    for _ in range(steps):
        live = np.flatnonzero((count < length).any(axis=1))
        if not len(live):
            break
        uniforms = random.random((len(live), B, K))
        if by_place is not None:
            places = count[live][:, :, None] + np.arange(K)
            uniforms = np.take_along_axis(by_place[live], places, axis=2)
        drafts = _draw_drafts(pair, states, state[live], uniforms)

        tosses = list(rule.toss(B))
        toss = draw(np.array([chance for chance, _ in tosses]), random.random(len(live)))  # which fell, [n]
        digits = V ** np.arange(B * K)
        codes = state[live] * V ** (B * K) + (drafts.reshape(len(live), -1) * digits).sum(axis=1)
        _, first, case = np.unique(codes * len(tosses) + toss, return_index=True, return_inverse=True)
        cases = [_step(pair, states[state[live][i]], drafts[i], tosses[toss[i]][1]) for i in first]
        admitted = _admit(rule, cases, case, random.random(len(live)))  # [n, B]
        following = np.empty((len(live), B, 2), dtype=np.int64)  # accepted, own token
        for r in range(B):
            p = np.array(
                [[pair.target(s.histories[r] + s.tokens[r][:k]) for k in range(K + 1)] for s in cases]
            )
            q = np.array([s.rows[r] for s in cases])
            coins, last = random.random((len(live), K)), random.random(len(live))
            if (
                target_shares_noise
            ):  # the correction, or the token of a trimmed slot, from the draft's own noise
                shared = np.concatenate([uniforms[:, r], last[:, None]], axis=1)
                reached = _accepted(p[case], q[case], drafts[:, r], admitted[:, r], coins)
                last = shared[np.arange(len(live)), reached]
            outcome = speculative_sample(p[case], q[case], drafts[:, r], admitted[:, r], coins, last)
            following[:, r, 0], following[:, r, 1] = outcome.accepted, outcome.token
            _write(written, count, live, r, drafts[:, r], outcome.accepted, outcome.token)

        scale = (V * (K + 1)) ** np.arange(B)
        codes = case * (V * (K + 1)) ** B + ((following[:, :, 0] * V + following[:, :, 1]) * scale).sum(
            axis=1
        )
        _, first, after = np.unique(codes, return_index=True, return_inverse=True)
        remembered = [rule.remember(s) for s in cases]
        new = [_next(cases[case[i]], remembered[case[i]], following[i], memory) for i in first]
        numbers = np.array([known.setdefault(s, len(known)) for s in new])
        states = list(known)
        state[live] = numbers[after]
    _complete(pair, written, count, states, state, length, random, memory)
    return written[:, :, :length]


def _draw_drafts(pair: Pair, states: list[State], state: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Draft tokens [n, B, K] of texts in these states, one uniform each."""
    n, B, K = uniforms.shape
    drafts = np.zeros((n, B, K), dtype=np.int64)
    for r in range(B):
        prefix = np.zeros(n, dtype=np.int64)
        for k in range(K):
            codes = state * pair.V**K + prefix
            _, first, case = np.unique(codes, return_index=True, return_inverse=True)
            rows = [pair.draft(states[state[i]][0][r], tuple(drafts[i, r, :k].tolist())) for i in first]
            drafts[:, r, k] = draw(np.array(rows)[case], uniforms[:, r, k])
            prefix = prefix * pair.V + drafts[:, r, k]
    return drafts


def _step(pair: Pair, state: State, drafts: np.ndarray, coins: tuple[bool, ...]) -> Step:
    """What a rule sees of one draft, [B, K]."""
    histories, earlier = state
    tokens = tuple(tuple(row) for row in drafts.tolist())
    rows = tuple(
        tuple(pair.draft(h, t[:k]) for k in range(pair.K)) for h, t in zip(histories, tokens, strict=True)
    )
    return Step(histories, tokens, rows, earlier, coins)


def _admit(rule: Rule, cases: list[Step], case: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Prefix lengths [n, B]: what the rule says, or one of the ways that it leaves to chance."""
    ways = [list(rule.admit(step)) for step in cases]
    most = max(map(len, ways))
    edges = np.ones((len(cases), most))
    lengths = np.zeros((len(cases), most, len(cases[0].tokens)), dtype=np.int64)
    for i, found in enumerate(ways):
        edges[i, : len(found)] = np.cumsum([weight for weight, _ in found])
        edges[i, len(found) - 1 :] = 1.0
        lengths[i, : len(found)] = [admitted for _, admitted in found]
    return lengths[case, (uniforms[:, None] >= edges[case]).sum(axis=1)]


def _accepted(p, q, drafts, admitted, coins) -> np.ndarray:
    """How many drafts a verification keeps, [n]; the token's noise does not enter."""
    return speculative_sample(p, q, drafts, admitted, coins, np.zeros(len(drafts))).accepted


def _write(written, count, live, request: int, drafts, accepted, own) -> None:
    for k in range(drafts.shape[1] + 1):
        who = np.flatnonzero(accepted >= k)
        token = own if k == drafts.shape[1] else np.where(accepted > k, drafts[:, k], own)
        written[live[who], request, count[live[who], request] + k] = token[who]
    count[live, request] += accepted + 1


def _next(step: Step, remembered: Any, following: np.ndarray, memory: int | None) -> State:
    histories = tuple(
        _recent(h + t[:accepted] + (own,), memory)
        for h, t, (accepted, own) in zip(step.histories, step.tokens, following.tolist(), strict=True)
    )
    return histories, remembered


def _recent(history: Tokens, memory: int | None) -> Tokens:
    return history if memory is None else history[-memory:]


def _complete(pair: Pair, written, count, states, state, length: int, random, memory: int | None) -> None:
    """What the steps left short is written by the target itself."""
    for r in range(count.shape[1]):
        short = np.flatnonzero(count[:, r] < length)
        histories = [states[i][0][r] for i in state[short]]
        while len(short):
            known = {h: i for i, h in enumerate(dict.fromkeys(histories))}
            rows = np.array([pair.target(h) for h in known])
            own = draw(rows[[known[h] for h in histories]], random.random(len(short)))
            written[short, r, count[short, r]] = own
            count[short, r] += 1
            left = count[short, r] < length
            histories = [
                _recent(h + (x,), memory)
                for h, x, more in zip(histories, own.tolist(), left, strict=True)
                if more
            ]
            short = short[left]
