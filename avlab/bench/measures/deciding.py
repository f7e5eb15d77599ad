"""What deciding takes: every call that a step makes of its policy, on the drafts of a trace."""

from time import perf_counter

import numpy as np

from avlab.bench.base import Bar, Context, Measure, Result, Table

FIXED, BEST, VLLM, COMBINED = (
    "fixed:3",
    "adaptive:converged+depth+stop",
    "adaptive",
    "adaptive:combined+depth+stop",
)
ARMS = (FIXED, VLLM, "adaptive+depth", "adaptive:converged+depth", BEST, COMBINED)
LOADS = (16, 128)
TRACE = "reasoning"
CYCLE = 8  # steps: a plan of `+stop` holds for as many
WARM = 50  # cycles; a few refits are over by then
PARTS = ("decide", "estimate", "admit", "observe", "refit")
BARS = (
    Bar("deciding", f"deciding, {BEST} over {FIXED}, 16 requests", "ms", 0.1, "<="),
    Bar("deciding-combined", "predicting and learning, combined over vLLM's estimator, 16 requests", "×", 1.2, "<="),
)  # fmt: skip


def timed(arms: tuple[str, ...], requests: int, cycles: int) -> dict[str, np.ndarray]:
    """Milliseconds of a step by part, [5], of each arm; all arms take turns at every step.

    The median of each place in a cycle is taken, so that a step that was held up does not count, and the mean over the
    places: a plan of `+stop` falls into one of them.
    """
    from avlab.machines import DEFAULT_MACHINE, machine
    from avlab.policies.arm import Arm
    from avlab.policies.base import PolicyContext, make_policy
    from avlab.replay.traces import trace_named
    from avlab.speculation.decision import Offer
    from avlab.speculation.features import Features
    from avlab.speculation.labels import labels

    trace = trace_named(TRACE)
    K, coins, random = trace.about.K, np.ones(requests), np.random.default_rng(0)
    emulated = machine(DEFAULT_MACHINE, K)
    context = PolicyContext(K, emulated.table(), measured=emulated.executed())
    policies = [make_policy(Arm.parse(arm, K), context) for arm in arms]
    earlier = [np.full((requests, K), np.nan) for _ in arms]
    spent = np.zeros((len(arms), cycles * CYCLE, len(PARTS)))
    for step in range(cycles * CYCLE):
        anchors = random.integers(0, trace.anchors, requests)
        rows, accepted = trace.features[anchors].astype(np.float64), trace.accepted[anchors]
        for place, policy in enumerate(policies):
            given = Offer(np.full(requests, K), earlier[place], coins, requests, requests, requests)
            moments = [perf_counter()]
            decision = policy.decide(given)
            moments.append(perf_counter())
            if decision.drafted:
                values = rows.copy()
                values[:, decision.drafted :] = np.nan
                features = Features(trace.about.features, values)
                given.scheduled = np.minimum(given.scheduled, decision.drafted)
                moments.append(perf_counter())
                estimates = policy.estimate(features)
                moments.append(perf_counter())
                admitted = policy.admit(decision, estimates, given).admitted
                moments.append(perf_counter())
                learnt = labels(np.minimum(accepted, admitted), admitted, K)
                moments.append(perf_counter())
                policy.observe(features, estimates, learnt)
                moments.append(perf_counter())
                if estimates is not None:
                    earlier[place] = estimates.probability
            last = perf_counter()
            policy.end_step()
            end = perf_counter() - last
            between = np.diff(moments)
            spent[place, step] = (between[0], *(between[[2, 3, 5]] if len(between) > 1 else (0, 0, 0)), end)
    counted = spent[:, WARM * CYCLE :] if cycles > WARM else spent
    usual = np.median(counted.reshape(len(arms), -1, CYCLE, len(PARTS)), axis=1).mean(axis=1)
    return {arm: 1e3 * each for arm, each in zip(arms, usual, strict=True)}


def measure(context: Context) -> Result:
    """Every arm, at 16 and 128 requests."""
    rows, found = [], {}
    for number, requests in enumerate(LOADS):
        context.progress(f"deciding for {requests}", number, len(LOADS))
        found[requests] = by_arm = timed(ARMS, requests, context.pick(20, 300))
        for arm, parts in by_arm.items():
            over = parts.sum() - by_arm[FIXED].sum()
            rows.append([arm, requests, *(round(1e3 * part) for part in (*parts, parts.sum(), over))])
    at_16 = found[16]
    estimating = {arm: at_16[arm][[1, 3]].sum() for arm in (VLLM, COMBINED)}
    return Result(
        {
            "deciding": float(at_16[BEST].sum() - at_16[FIXED].sum()),
            "deciding-combined": float(estimating[COMBINED] / estimating[VLLM]),
        },
        [
            Table(
                "Microseconds a step, drafts of a trace, B300's costs",
                ["arm", "requests", *PARTS, "in all", f"over {FIXED}"],
                rows,
            )
        ],
        ["Refits, every 100 steps, are not in the figures: a step in the middle of a round is timed."],
    )


MEASURES = (Measure("deciding", "what deciding takes", BARS, measure, 47),)
