"""A run's A/B as numbers: ratios with their sequences, what users saw, the ledger, and the verdict in words."""

from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np

from avlab.experiments import prompts, reasons, statistics, words
from avlab.policies.arm import arm_of, unlabelled
from avlab.store import queries
from avlab.store.errors import StoreError
from avlab.store.runs import plain

HALF_WIDTH = 0.02  # "how long until ± 2 %"


class NoExperiment(StoreError):
    """A run without an A/B was asked for one."""


def analyse(con: duckdb.DuckDBPyConnection, run: str, slo: tuple[str, float] | None = None) -> dict[str, Any]:
    """Everything that is said of an A/B, as JSON can hold it; may be asked after every round.

    results: a row for each arm but the baseline, of throughput over the baseline's, see `result_of`. arms: by arm
    tokens_per_s (of its counted blocks: their tokens over their seconds, with prompts evened out; 1e6 over the ledger's
    total_ms), what users saw (as served), and the ledger per 1,000 output tokens, of which tokens and seconds are as
    served. prompts: what evening took them to be (`prompts.Prompts`), and whether anything is evened. seconds_a_round:
    its median, wash-outs included. dropped: round (as stored, from 0; sentences count from 1) and reason. adaptive: see
    `against_fixed`. verdicts and why: sentences. slo: (measure, limit), see `words.best_within`. Raises NoExperiment.
    """
    plan = queries.experiment(con, run)
    if plan is None:
        raise NoExperiment(f"Run {run} has no A/B in it: start one with `avlab ab`.")
    description = queries.describe(con, run)
    rounds, blocks = queries.rounds(con, run), queries.block_rates(con, run)
    kept = [row["round"] for row in rounds if row["kept"]]
    traffic = prompts.known(blocks) if plan["design"] == "switchback" else prompts.UNKNOWN
    by = prompts.known_by(blocks) if traffic.price else {}
    rates = _rates(
        plan["arms"],
        *_by_round(blocks, plan["arms"], kept, lambda b: by.get(b["round"], traffic).even_seconds(b)),
    )
    users, ledger = queries.user_times(con, run), _ledgers(con, run, blocks, traffic)
    compared = [arm for arm in plan["arms"] if arm != plan["baseline"]]
    pace = _seconds_a_round(rounds)
    results = [plain(result_of(arm, rates[arm], rates[plan["baseline"]], pace)) for arm in compared]
    answer = {
        "run_id": run,
        "state": description["state"],
        "plan": plan,
        "workload": description["config"]["workload"],
        "temperature": description["config"]["temperature"],
        "rounds": len(kept),
        "seconds_a_round": pace,
        "prompts": {**traffic._asdict(), "evened": traffic.price > 0},
        "dropped": _dropped(rounds, queries.unfinished_round(con, run), description["state"]),
        "results": results,
        "arms": {
            arm: {
                "tokens_per_s": 1e6 / ledger[arm]["total_ms"] if arm in ledger else None,
                **users.get(arm, {}),
                "ledger": ledger.get(arm),
            }
            for arm in plan["arms"]
        },
    }
    answer["adaptive"] = against_fixed(rates, plan["arms"], plan["baseline"], pace)
    answer["best_fixed"] = best_fixed(
        plan["arms"], *_by_round(blocks, plan["arms"], kept, traffic.even_seconds)
    )
    answer["slo"] = words.best_within(answer["arms"], slo) if slo else None
    answer["verdicts"] = words.verdicts(answer)
    answer["why"] = reasons.why(answer, _miscalibrations(con, run, plan["arms"]))
    return plain(answer)


def result_of(
    arm: str, rates: np.ndarray, baseline: np.ndarray, seconds_a_round: float | None = None
) -> dict[str, Any]:
    """One arm against the baseline, from throughputs by kept round, [T] each. Ends without bound are None.

    `_standing`, and beside it declared_at (the round in which a difference was first declared; it stays if the ratio
    then moved, which withdraws the declaration), fixed_low, fixed_high (the fixed-sample interval), and by round
    ratio_by_round, estimate_by_round, low_by_round, high_by_round.
    """
    x = statistics.log_ratios(rates, baseline)
    if not len(x):
        return {"arm": arm, "ratio": None, "low": None, "high": None, "rounds": 0, "declared": False}
    sequence, fixed = statistics.sequence(x), statistics.fixed_sample(x)
    return {
        "arm": arm,
        **_standing(x, sequence, seconds_a_round),
        "declared_at": int(statistics.declared_at(x)) or None,
        "fixed_low": end_of(fixed.low),
        "fixed_high": end_of(fixed.high),
        "ratio_by_round": np.exp(x),
        "estimate_by_round": np.exp(statistics.centres(x)),
        "low_by_round": [end_of(low) for low in sequence.low],
        "high_by_round": [end_of(high) for high in sequence.high],
    }


def _standing(x: np.ndarray, sequence: statistics.Sequence, seconds_a_round: float | None) -> dict[str, Any]:
    """How one arm stands to another by now, from log ratios x [T], T > 0: ratio (`words.RATIO`), low, high (the
    confidence sequence), rounds, declared (the interval excludes 1), moved, rounds_to_2_percent and
    minutes_to_2_percent in all.
    """
    until = statistics.rounds_until(x, np.log(1 + HALF_WIDTH))
    return {
        "ratio": np.exp(np.clip(statistics.centre(x), sequence.low[-1], sequence.high[-1])),
        "low": end_of(sequence.low[-1]),
        "high": end_of(sequence.high[-1]),
        "rounds": len(x),
        "declared": bool(sequence.low[-1] > 0 or sequence.high[-1] < 0) and not sequence.moved,
        "moved": sequence.moved,
        "rounds_to_2_percent": until,
        "minutes_to_2_percent": until * seconds_a_round / 60 if until and seconds_a_round else None,
    }


def end_of(log_ratio: float) -> float | None:
    """The ratio at an end of an interval; None where it has no bound."""
    return float(np.exp(log_ratio)) if np.isfinite(log_ratio) else None


def _by_round(
    blocks: list[dict], arms: list[str], kept: list[int], seconds: Callable[[dict], float]
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of the counted blocks, and what `seconds` says of each, by arm and kept round, [A, T] each."""
    found = {(block["arm"], block["round"]): (block["tokens"], seconds(block)) for block in blocks}
    whole = [number for number in kept if all((arm, number) in found for arm in arms)]
    values = np.array([[found[arm, number] for number in whole] for arm in arms], dtype=np.float64)
    values = values.reshape(len(arms), len(whole), 2)
    return values[..., 0], values[..., 1]


def _rates(arms: list[str], tokens: np.ndarray, seconds: np.ndarray) -> dict[str, np.ndarray]:
    """Throughput by arm, [T], from `_by_round`; a round in which an arm emitted nothing is left out for all."""
    whole = ((tokens > 0) & (seconds > 0)).all(axis=0)
    return dict(zip(arms, tokens[:, whole] / seconds[:, whole], strict=True))


def _seconds_a_round(rounds: list[dict]) -> float | None:
    """The median time from a round's end to the next one's; None before two are over."""
    times = [row["time"] for row in rounds]
    return float(np.median(np.diff(times))) if len(times) > 1 else None


def _ledgers(
    con: duckdb.DuckDBPyConnection, run: str, blocks: list[dict], traffic: prompts.Prompts
) -> dict[str, dict[str, Any]]:
    """The ledger by arm, with the traffic's mean of prompts where that is evened out, else with the arm's own."""
    own = traffic if traffic.price else prompts.known(blocks)
    answer = {}
    for arm, entry in queries.arm_ledger(con, run).items():
        own_ms = prompts.own_ms(own, (block for block in blocks if block["arm"] == arm))
        mean_ms = 1e6 * traffic.seconds_a_token if traffic.price else own_ms
        answer[arm] = prompts.with_prompts(entry, own_ms, mean_ms)
    return answer


def _dropped(rounds: list[dict], unfinished: int | None, state: str) -> list[dict]:
    dropped = [{"round": row["round"], "reason": row["reason"]} for row in rounds if not row["kept"]]
    if unfinished is not None and state != "running":
        reason = {"cut short": "the worker went away in the middle of it"}.get(
            state, "the run ended before it did"
        )
        dropped.append({"round": unfinished, "reason": reason})
    return dropped


def _fixed(arms: list[str]) -> list[str]:
    """The fixed lengths among the arms, each once, 0 (none) included; verify:k drafts more than it verifies."""
    return [arm for arm in arms if arm == unlabelled(arm) and arm_of(arm).fixed]


def against_fixed(
    rates: dict[str, np.ndarray], arms: list[str], baseline: str, seconds_a_round: float | None = None
) -> list[dict]:
    """For each adaptive arm: the fixed lengths compared (fixed); whether there are two or more and its sequence against
    each excludes 1 from below (declared), since which round, and by how much at least (least_low); the arms whose
    sequence against it excludes 1 (beaten_by): of the baseline and those that do not adapt, or of all where it is
    the baseline itself; and how it stands to each fixed length (against: arm, that length as baseline, `_standing`).
    """
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
            {
                "arm": arm,
                "fixed": fixed,
                "declared": declared,
                "declared_at": statistics.beats_all([x[rival] for rival in fixed]) if declared else None,
                "least_low": end_of(least) if declared else None,
                "beaten_by": [
                    rival for rival in rivals if ends[rival].high[-1] < 0 and not ends[rival].moved
                ],
                "against": [
                    {
                        "arm": arm,
                        "baseline": rival,
                        **plain(_standing(x[rival], ends[rival], seconds_a_round)),
                    }
                    for rival in fixed
                ],
            }
        )
    return answer


def best_fixed(arms: list[str], tokens: np.ndarray, seconds: np.ndarray) -> dict[str, Any] | None:
    """The best of two or more fixed lengths: arm and its tokens_per_s, both None unless either half of the rounds alone
    names it, and else those that are named (between). None while there are too few rounds to declare anything.

    tokens, seconds: by arm and kept round, [A, T].
    """
    fixed = _fixed(arms)
    if len(fixed) < 2 or tokens.shape[1] < statistics.least_rounds():
        return None
    mine = [arms.index(arm) for arm in fixed]
    tokens, seconds = tokens[mine], seconds[mine]
    best = statistics.best_by_halves(tokens, seconds)
    if len(best) > 1:
        return {"arm": None, "tokens_per_s": None, "between": [fixed[place] for place in best]}
    rate = float(tokens[best[0]].sum() / seconds[best[0]].sum())
    return {"arm": fixed[best[0]], "tokens_per_s": rate, "between": []}


def _miscalibrations(con: duckdb.DuckDBPyConnection, run: str, arms: list[str]) -> dict[str, list[dict]]:
    """By arm that decides by estimates: position, mean estimate, accepted share and slots, of each position."""
    answer = {}
    for arm in arms:
        if source := arm_of(arm).source:
            sums = queries.calibration_sums(con, run, source, arm=arm)
            answer[arm] = reasons.by_position(sums)
    return answer
