"""How many draft tokens to verify this step, over all requests: survival, objective, and rules over it."""

from __future__ import annotations

import numpy as np


def survival(estimate) -> np.ndarray:
    """Chance that a slot and everything before it is accepted: running product over the last axis, float64.

    estimate: acceptance estimates [..., K], each in [0, 1]. The result never rises along a request.
    """
    return np.multiply.accumulate(np.asarray(estimate, dtype=np.float64), axis=-1)


def offered(survival, scheduled) -> np.ndarray:
    """Survivals of the scheduled slots only, [N]: `survival` [B, K] cut at `scheduled` [B] in every row."""
    survival, scheduled = np.asarray(survival), np.asarray(scheduled)
    K = survival.shape[-1]
    if scheduled.size and scheduled.min() >= K:
        return survival.reshape(-1)
    return survival[np.arange(K) < scheduled[:, None]]


def expected_tokens(survivals, emitting: int) -> np.ndarray:
    """Tokens expected from the step for each budget 0..N, [N + 1]: `emitting` plus the best survivals."""
    best = np.array(survivals, dtype=np.float64).reshape(-1)
    best.sort()
    tokens = np.empty(best.size + 1)
    tokens[0] = emitting
    np.add.accumulate(best[::-1], out=tokens[1:])
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
    require_fit(draft_cost, verify_cost, requests, other_tokens)
    return rates(expected_tokens(survivals, emitting), draft_cost[requests], verify_cost, other_tokens)


def rates(tokens: np.ndarray, draft_ms: float, verify_cost, other_tokens: int) -> np.ndarray:
    """`objective` of a step whose expected tokens by budget are known already, and whose draft takes draft_ms."""
    milliseconds = draft_ms + np.asarray(verify_cost)[other_tokens : other_tokens + len(tokens)]
    return tokens[: len(milliseconds)] / milliseconds


def require_fit(draft_cost, verify_cost, requests: int, other_tokens: int) -> None:
    """Raises ValueError if a table is too short for the step even without drafts."""
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
    require_fit(draft_cost, verify_cost, requests, other_tokens)
    survival, scheduled, verify_cost = np.asarray(survival), np.asarray(scheduled), np.asarray(verify_cost)
    K = survival.shape[-1]
    draft_ms = np.asarray(draft_cost)[requests, : K + 1]
    groups = _depths_alike(draft_ms.tolist())
    deepest = np.array([deep for _, deep in groups])  # [G]: has every slot of its group, at the same cost
    exists = np.arange(K) < scheduled[:, None]
    best, position = survival[exists], exists.nonzero()[1]
    order = np.argsort(-best, kind="stable")
    # column i of a group's row: the slots among the first i of all, best first, that its draft has
    drafted = position[order] < deepest[:, None]
    slots, gain = (
        np.zeros((len(groups), len(best) + 1), dtype=np.int64),
        np.zeros((len(groups), len(best) + 1)),
    )
    np.add.accumulate(drafted, axis=1, out=slots[:, 1:])
    np.add.accumulate(drafted * best[order], axis=1, out=gain[:, 1:])

    def milliseconds(other: int) -> np.ndarray:
        size = other + slots
        cost = draft_ms[deepest][:, None] + verify_cost.take(size, mode="clip")
        if other + len(best) >= len(verify_cost):  # the table ends before all slots are in
            cost[size >= len(verify_cost)] = np.inf
        return cost

    tokens, cost = emitting + gain, milliseconds(other_tokens)
    if other_tokens > requests:
        going_rate = ((requests + gain) / milliseconds(requests)).max()
        worth = tokens - going_rate * cost
    else:
        worth = tokens / cost
    group, column = divmod(int(worth.argmax()), worth.shape[1])
    budget, (least, deep) = int(slots[group, column]), groups[group]
    depth = max(least, _depth_of(survival[:, :deep], scheduled, budget)) if least < deep else deep
    return depth, budget, float(tokens[group, column])


def _depths_alike(draft_ms: list[float]) -> list[tuple[int, int]]:
    """Neighbouring depths that cost the same, as with a parallel drafter: (least, deepest) of each group."""
    ends = [depth for depth in range(len(draft_ms) - 1) if draft_ms[depth] != draft_ms[depth + 1]]
    return list(zip([0, *(end + 1 for end in ends)], [*ends, len(draft_ms) - 1], strict=True))


def _depth_of(survival: np.ndarray, scheduled: np.ndarray, budget: int) -> int:
    """The least depth whose `budget` best slots are as good as those of the whole draft."""
    if budget == 0:
        return 0
    K = survival.shape[-1]
    slots = np.where(np.arange(K) < scheduled[:, None], survival, -1.0)
    ranked = slots.flatten()
    ranked.partition(slots.size - budget)
    least = ranked[slots.size - budget]
    position = np.nonzero(slots >= least)[1]
    if len(position) == budget:
        return int(position.max()) + 1
    # more slots are as good as the last one admitted: the shallowest of them will do
    better = (slots > least).any(axis=0)
    as_good = np.bincount(position, minlength=K).cumsum()
    return max(int(better.sum()), int((as_good < budget).sum()) + 1)
