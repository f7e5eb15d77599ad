"""How many draft tokens to verify this step, over all requests: survival, objective, and rules over it."""

from __future__ import annotations

import numpy as np


def survival(estimate) -> np.ndarray:
    """Chance that a slot and everything before it is accepted: running product over the last axis, float64.

    estimate: acceptance estimates [..., K], each in [0, 1]. The result never rises along a request.
    """
    return np.cumprod(np.asarray(estimate, dtype=np.float64), axis=-1)


def offered(survival, scheduled) -> np.ndarray:
    """Survivals of the scheduled slots only, [N]: `survival` [B, K] cut at `scheduled` [B] in every row."""
    survival = np.asarray(survival)
    return survival[np.arange(survival.shape[-1]) < np.asarray(scheduled)[:, None]]


def expected_tokens(survivals, emitting: int) -> np.ndarray:
    """Tokens expected from the step for each budget 0..N, [N + 1]: `emitting` plus the best survivals."""
    best = np.sort(np.asarray(survivals, dtype=np.float64), axis=None)[::-1]
    tokens = np.empty(best.size + 1)
    tokens[0] = emitting
    np.cumsum(best, out=tokens[1:])
    tokens[1:] += emitting
    return tokens


def objective(
    survivals, draft_cost, verify_cost, requests: int, emitting: int, other_tokens: int
) -> np.ndarray:
    """Expected tokens per millisecond for each budget 0, 1, 2, ..: the curve whose peak is the budget.

    survivals: of the scheduled slots, any shape, N in all. draft_cost [requests + 1 or more], verify_cost
    [tokens + 1 or more]: milliseconds by size. requests: in this step. emitting: those of them that will
    emit a token. other_tokens: what the target's pass holds besides drafts. Budgets that the verify table
    does not reach are left out: the result has min(N, len(verify_cost) - 1 - other_tokens) + 1 entries.
    Raises ValueError if a table is too short for the step even without drafts.
    """
    _require_fit(draft_cost, verify_cost, requests, other_tokens)
    room = len(verify_cost) - other_tokens
    tokens = expected_tokens(survivals, emitting)[:room]
    milliseconds = draft_cost[requests] + np.asarray(verify_cost)[other_tokens : other_tokens + len(tokens)]
    return tokens / milliseconds


def _require_fit(draft_cost, verify_cost, requests: int, other_tokens: int) -> None:
    if other_tokens >= len(verify_cost) or requests >= len(draft_cost):
        raise ValueError(
            f"a step of {requests} requests and {other_tokens} tokens besides drafts does not "
            f"fit cost tables for {len(draft_cost) - 1} requests and {len(verify_cost) - 1} tokens; "
            "profile larger sizes"
        )


def peak(curve) -> int:
    """The budget at the highest point of an `objective` curve; ties take the smaller budget."""
    return int(np.argmax(curve))


def first_peak(curve) -> int:
    """The early-stopping rule of the DSpark paper: the last budget before the first that does not improve.

    Whether a slot is admitted then depends on larger survivals only, so it cannot betray a later draw.
    """
    stops = np.diff(curve) <= 0
    return int(np.argmax(stops)) if stops.any() else len(curve) - 1


def choose_budget(
    survivals, draft_cost, verify_cost, requests: int, emitting: int, other_tokens: int, rule=peak
) -> int:
    """Draft tokens to verify, over all requests, for the most expected tokens per millisecond.

    Arguments as in `objective`; rule: `peak` (default) or `first_peak`. With `peak` the survivals must come
    from estimates of earlier steps wherever estimates depend on earlier draws and cost is not convex.
    """
    return rule(objective(survivals, draft_cost, verify_cost, requests, emitting, other_tokens))


def choose_depth_and_budget(
    survival, scheduled, draft_cost, verify_cost, requests: int, emitting: int, other_tokens: int
) -> tuple[int, int, float]:
    """How deep to draft, the budget for that depth, and the tokens to expect, from survivals of earlier steps.

    survival [B, K] and scheduled [B] describe a draft of full depth; draft_cost [requests + 1, K + 1] is in
    milliseconds by requests and depth (depth 0: the drafter does not run); the rest as in `objective`.

    The pair with the most expected tokens per millisecond, as in `objective`. In a step that also computes prompts
    (other_tokens above requests) that is the rate of the step without them, and the pair that is taken has the most
    tokens less milliseconds at this rate: prompts cost what they cost whenever they are computed, so they must not
    make what is drafted beside them look cheap (marginal reasoning as in Dinkelbach 1967, "On nonlinear fractional
    programming"; without prompts both choices are the same).

    Returns (depth, budget, expected tokens of the step); ties take the smaller depth, then the smaller budget. Raises
    ValueError as `objective` does.
    """
    _require_fit(draft_cost, verify_cost, requests, other_tokens)
    survival, verify_cost = np.asarray(survival), np.asarray(verify_cost)
    K = survival.shape[-1]
    exists = np.arange(K) < np.asarray(scheduled)[:, None]
    best, position = survival[exists], exists.nonzero()[1]
    order = np.argsort(-best, kind="stable")
    # column i of row d: the slots among the first i of all, best first, that a draft of depth d has
    drafted = position[order] < np.arange(K + 1)[:, None]
    slots, gain = np.zeros((K + 1, len(best) + 1), dtype=np.int64), np.zeros((K + 1, len(best) + 1))
    drafted.cumsum(axis=1, out=slots[:, 1:])
    np.cumsum(drafted * best[order], axis=1, out=gain[:, 1:])

    def milliseconds(other: int) -> np.ndarray:
        size = other + slots
        cost = np.asarray(draft_cost)[requests][: K + 1, None] + verify_cost.take(size, mode="clip")
        if size[K, -1] >= len(verify_cost):  # the table ends before all slots are in
            cost[size >= len(verify_cost)] = np.inf
        return cost

    tokens, cost = emitting + gain, milliseconds(other_tokens)
    if other_tokens > requests:
        going_rate = ((requests + gain) / milliseconds(requests)).max()
        worth = tokens - going_rate * cost
    else:
        worth = tokens / cost
    depth, column = divmod(int(worth.argmax()), worth.shape[1])
    return depth, int(slots[depth, column]), float(tokens[depth, column])
