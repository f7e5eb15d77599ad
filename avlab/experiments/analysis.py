"""A run's A/B as numbers: ratios with their sequences, what users saw, the ledger, and the verdict in words."""

from collections.abc import Callable
from dataclasses import asdict, replace

import duckdb
import numpy as np

from avlab.config import sampled
from avlab.experiments import control_variate, reasons, statistics, words
from avlab.experiments.answers import (
    ABAnswer,
    AgainstFixed,
    ArmSeen,
    BestFixed,
    Comparison,
    Dropped,
    Ledger,
    Objective,
    PromptAdjustment,
    Standing,
)
from avlab.experiments.slo import best_within
from avlab.formats import emulated
from avlab.policies.arm import arm_of, unlabelled
from avlab.store import queries
from avlab.store.errors import StoreError
from avlab.store.experiment_rows import BlockRate, Round, UserTimes

HALF_WIDTH = 0.02  # "how long until ± 2 %"


class NoExperiment(StoreError):
    """A run without an A/B was asked for one."""


def analyse(con: duckdb.DuckDBPyConnection, run: str, slo: Objective | None = None) -> ABAnswer:
    """Everything that is said of an A/B; may be asked after every round. Raises NoExperiment."""
    plan = queries.experiment(con, run)
    if plan is None:
        raise NoExperiment(f"Run {run} has no A/B in it: start one with `avlab ab`.")
    description = queries.describe(con, run)
    rounds, blocks = queries.rounds(con, run), queries.block_rates(con, run)
    kept = [row.round for row in rounds if row.kept]
    costs = control_variate.fitted(blocks) if plan.design == "switchback" else control_variate.UNKNOWN
    by = control_variate.fitted_by_round(blocks) if costs.price else {}
    rates = _rates(
        plan.arms,
        *_by_round(
            blocks,
            plan.arms,
            kept,
            lambda block: (block.expected, by.get(block.round, costs).adjusted_seconds(block)),
        ),
    )
    users, ledger = queries.user_times(con, run), _ledgers(con, run, blocks, costs)
    pace = _seconds_a_round(rounds)
    arms = {arm: _seen(ledger.get(arm), users.get(arm)) for arm in plan.arms}
    answer = ABAnswer(
        run_id=run,
        state=description["state"],
        plan=plan,
        workload=str(description["config"].get("workload") or "–"),
        sampling=sampled(description["config"]).words(),
        rounds=len(kept),
        seconds_a_round=pace,
        prompts=PromptAdjustment(costs.price, costs.share, evened=costs.price > 0),
        dropped=_dropped(rounds, queries.unfinished_round(con, run), description["state"]),
        results=[
            result_of(arm, rates[arm], rates[plan.baseline], pace)
            for arm in plan.arms
            if arm != plan.baseline
        ],
        arms=arms,
        adaptive=against_fixed(rates, plan.arms, plan.baseline, pace),
        best_fixed=best_fixed(
            plan.arms,
            *_by_round(blocks, plan.arms, kept, lambda block: (block.tokens, costs.adjusted_seconds(block))),
        ),
        slo=best_within(arms, slo) if slo else None,
        verdicts=[],
        why=[],
        emulated=description["emulated"],
        expected=any(block.surplus for block in blocks),
    )
    why = [
        replace(reason, text=emulated(reason.text, answer.emulated))
        for reason in reasons.why(answer, _miscalibrations(con, run, plan.arms))
    ]
    return replace(answer, verdicts=words.verdicts(answer), why=why)


def _seen(ledger: Ledger | None, users: UserTimes | None) -> ArmSeen:
    rate = 1e6 / ledger.total_ms if ledger else None
    return ArmSeen(tokens_per_s=rate, ledger=ledger, **(asdict(users) if users else {}))


def result_of(
    arm: str, rates: np.ndarray, baseline: np.ndarray, seconds_a_round: float | None = None
) -> Comparison:
    """One arm against the baseline, from throughputs by kept round, [T] each."""
    x = statistics.log_ratios(rates, baseline)
    if not len(x):
        return Comparison(arm=arm, rounds=0)
    sequence, fixed = statistics.sequence(x), statistics.fixed_sample(x)
    standing = standing_of(arm, "", x, sequence, seconds_a_round)
    return Comparison(
        **asdict(standing),
        declared_at=int(statistics.declared_at(x)) or None,
        fixed_low=end_of(fixed.low),
        fixed_high=end_of(fixed.high),
        ratio_by_round=tuple(np.exp(x).tolist()),
        estimate_by_round=tuple(np.exp(statistics.centres(x)).tolist()),
        low_by_round=tuple(map(end_of, sequence.low)),
        high_by_round=tuple(map(end_of, sequence.high)),
    )


def standing_of(
    arm: str, baseline: str, x: np.ndarray, sequence: statistics.Sequence, seconds_a_round: float | None
) -> Standing:
    """How one arm stands to another by now, from log ratios x [T], T > 0, and their confidence sequence."""
    until = statistics.rounds_until(x, np.log(1 + HALF_WIDTH))
    low, high = sequence.low[-1], sequence.high[-1]
    return Standing(
        arm=arm,
        baseline=baseline,
        ratio=float(np.exp(np.clip(statistics.centre(x), low, high))),
        low=end_of(low),
        high=end_of(high),
        rounds=len(x),
        declared=bool(low > 0 or high < 0) and not sequence.moved,
        moved=sequence.moved,
        rounds_to_2_percent=until,
        minutes_to_2_percent=until * seconds_a_round / 60 if until and seconds_a_round else None,
    )


def end_of(log_ratio: float) -> float | None:
    """The ratio at an end of an interval; None where it has no bound."""
    return float(np.exp(log_ratio)) if np.isfinite(log_ratio) else None


def _by_round(
    blocks: list[BlockRate],
    arms: list[str],
    kept: list[int],
    counted: Callable[[BlockRate], tuple[float, float]],
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and seconds that `counted` says of the counted blocks, by arm and kept round, [A, T] each."""
    found = {(block.arm, block.round): counted(block) for block in blocks}
    whole = [number for number in kept if all((arm, number) in found for arm in arms)]
    values = np.array([[found[arm, number] for number in whole] for arm in arms], dtype=np.float64)
    values = values.reshape(len(arms), len(whole), 2)
    return values[..., 0], values[..., 1]


def _rates(arms: list[str], tokens: np.ndarray, seconds: np.ndarray) -> dict[str, np.ndarray]:
    """Throughput by arm, [T], from `_by_round`; a round in which an arm emitted nothing is left out for all."""
    whole = ((tokens > 0) & (seconds > 0)).all(axis=0)
    return dict(zip(arms, tokens[:, whole] / seconds[:, whole], strict=True))


def _seconds_a_round(rounds: list[Round]) -> float | None:
    """The median time from a round's end to the next one's; None before two are over."""
    times = [row.time for row in rounds]
    return float(np.median(np.diff(times))) if len(times) > 1 else None


def _ledgers(
    con: duckdb.DuckDBPyConnection, run: str, blocks: list[BlockRate], costs: control_variate.PromptCosts
) -> dict[str, Ledger]:
    """The ledger by arm, with the traffic's mean of prompts where throughput is adjusted, else with the arm's own."""
    own = costs if costs.price else control_variate.fitted(blocks)
    answer = {}
    for arm, entry in queries.arm_ledger(con, run).items():
        own_ms = control_variate.own_ms(own, (block for block in blocks if block.arm == arm))
        mean_ms = 1e6 * costs.seconds_a_token if costs.price else own_ms
        answer[arm] = control_variate.with_prompts(entry, own_ms, mean_ms)
    return answer


def _dropped(rounds: list[Round], unfinished: int | None, state: str) -> list[Dropped]:
    dropped = [Dropped(row.round, row.reason) for row in rounds if not row.kept]
    if unfinished is not None and state != "running":
        reason = {"cut short": "the worker went away in the middle of it"}.get(
            state, "the run ended before it did"
        )
        dropped.append(Dropped(unfinished, reason))
    return dropped


def _fixed(arms: list[str]) -> list[str]:
    """The fixed lengths among the arms, each once, 0 (none) included; verify:k drafts more than it verifies."""
    return [arm for arm in arms if arm == unlabelled(arm) and arm_of(arm).fixed]


def against_fixed(
    rates: dict[str, np.ndarray], arms: list[str], baseline: str, seconds_a_round: float | None = None
) -> list[AgainstFixed]:
    """Each adaptive arm against the fixed lengths, from throughputs by arm, [T] each."""
    fixed = _fixed(arms)
    if not len(rates[baseline]):
        return []
    answer = []
    for arm in (arm for arm in arms if arm_of(arm).adaptive):
        rivals = [
            other
            for other in arms
            if other != arm and (baseline in (arm, other) or not arm_of(other).adaptive)
        ]
        x = {rival: statistics.log_ratios(rates[arm], rates[rival]) for rival in rivals}
        ends = {rival: statistics.sequence(ratios) for rival, ratios in x.items()}
        least = min((ends[rival].low[-1] for rival in fixed), default=-np.inf)
        declared = len(fixed) > 1 and least > 0 and not any(ends[rival].moved for rival in fixed)
        answer.append(
            AgainstFixed(
                arm=arm,
                fixed=fixed,
                declared=bool(declared),
                declared_at=statistics.beats_all([x[rival] for rival in fixed]) if declared else None,
                least_low=end_of(least) if declared else None,
                beaten_by=[rival for rival in rivals if ends[rival].high[-1] < 0 and not ends[rival].moved],
                against=[standing_of(arm, rival, x[rival], ends[rival], seconds_a_round) for rival in fixed],
            )
        )
    return answer


def best_fixed(arms: list[str], tokens: np.ndarray, seconds: np.ndarray) -> BestFixed | None:
    """The best of two or more fixed lengths; None while there are too few rounds to declare anything.

    tokens, seconds: by arm and kept round, [A, T].
    """
    fixed = _fixed(arms)
    if len(fixed) < 2 or tokens.shape[1] < statistics.least_rounds():
        return None
    mine = [arms.index(arm) for arm in fixed]
    tokens, seconds = tokens[mine], seconds[mine]
    best = statistics.best_by_halves(tokens, seconds)
    if len(best) > 1:
        return BestFixed(None, None, [fixed[place] for place in best])
    rate = float(tokens[best[0]].sum() / seconds[best[0]].sum())
    return BestFixed(fixed[best[0]], rate, [])


def _miscalibrations(
    con: duckdb.DuckDBPyConnection, run: str, arms: list[str]
) -> dict[str, list[reasons.Position]]:
    """By arm that decides by estimates, what these were worth at each position."""
    answer = {}
    for arm in arms:
        if source := arm_of(arm).source:
            sums = queries.calibration_sums(con, run, source, arm=arm)
            answer[arm] = reasons.by_position(sums)
    return answer
