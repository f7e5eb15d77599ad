"""What comes out of speculative decoding, drawn rather than enumerated: many texts at once, on arrays.

Where `exact` has too many states to enumerate, and wherever a reader should see draws converge.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from avlab.bias.exact import Pair, Rule, Step, Tokens
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
        cases, case = _cases(pair, rule, states, state[live], drafts, random)
        admitted = _admit(rule, cases, case, random.random(len(live)))  # [n, B]
        shared = uniforms if target_shares_noise else None
        following = _verify(pair, cases, case, drafts, admitted, random, shared)
        for r in range(B):
            _write(written, count, live, r, drafts[:, r], following[:, r, 0], following[:, r, 1])
        new, after = _following_states(rule, cases, case, following, V, memory)
        numbers = np.array([known.setdefault(each, len(known)) for each in new])
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


def _cases(
    pair: Pair,
    rule: Rule,
    states: list[State],
    state: np.ndarray,
    drafts: np.ndarray,
    random: np.random.Generator,
) -> tuple[list[Step], np.ndarray]:
    """What a rule sees in a step of n texts: the different sights, and which of them each text is, [n]."""
    n, B, K = drafts.shape
    tosses = list(rule.toss(B))
    toss = draw(np.array([chance for chance, _ in tosses]), random.random(n))  # which fell, [n]
    codes = state * pair.V ** (B * K) + (drafts.reshape(n, -1) * pair.V ** np.arange(B * K)).sum(axis=1)
    _, first, case = np.unique(codes * len(tosses) + toss, return_index=True, return_inverse=True)
    return [_step(pair, states[state[i]], drafts[i], tosses[toss[i]][1]) for i in first], case


def _verify(
    pair: Pair,
    cases: list[Step],
    case: np.ndarray,
    drafts: np.ndarray,
    admitted: np.ndarray,
    random: np.random.Generator,
    shared: np.ndarray | None,
) -> np.ndarray:
    """Drafts accepted and the target's own token, [n, B, 2].

    shared: the uniforms that drew the drafts, [n, B, K], where the correction, or the token of a trimmed slot, comes
    from that same noise.
    """
    n, B, K = drafts.shape
    following = np.empty((n, B, 2), dtype=np.int64)
    for r in range(B):
        p = np.array(
            [[pair.target(each.histories[r] + each.tokens[r][:k]) for k in range(K + 1)] for each in cases]
        )[case]
        q = np.array([each.rows[r] for each in cases])[case]
        coins, last = random.random((n, K)), random.random((n,))
        if shared is not None:
            reached = _accepted(p, q, drafts[:, r], admitted[:, r], coins)
            last = np.concatenate([shared[:, r], last[:, None]], axis=1)[np.arange(n), reached]
        outcome = speculative_sample(p, q, drafts[:, r], admitted[:, r], coins, last)
        following[:, r, 0], following[:, r, 1] = outcome.accepted, outcome.token
    return following


def _following_states(
    rule: Rule, cases: list[Step], case: np.ndarray, following: np.ndarray, V: int, memory: int | None
) -> tuple[list[State], np.ndarray]:
    """The different states after a step, and which of them each text is in, [n]."""
    B, K = following.shape[1], len(cases[0].rows[0])
    scale = (V * (K + 1)) ** np.arange(B)
    outcomes = ((following[:, :, 0] * V + following[:, :, 1]) * scale).sum(axis=1)
    codes = case * (V * (K + 1)) ** B + outcomes
    _, first, after = np.unique(codes, return_index=True, return_inverse=True)
    remembered = [rule.remember(each) for each in cases]
    return [_next(cases[case[i]], remembered[case[i]], following[i], memory) for i in first], after


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
