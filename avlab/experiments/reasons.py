"""Why an arm lost: the term of the cost that explains it, from the ledger per 1,000 output tokens."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from avlab.policies import Arm, unlabelled
from avlab.speculation.calibration import COUNT, POSITIVES, SUM_P

FLAT = 0.02  # of the time, saved by trimming: below it, verifying everything would have cost the same
TABLE_OFF = 0.15  # measured against expected step cost: beyond it budgets were chosen with wrong costs
MISJUDGED, ENOUGH_SLOTS = 0.05, 300  # mean estimate against accepted share, over so many labelled slots
FLAT_SHARE = 0.5  # of the lost time, that drafting or exploring must explain to be named first


def by_position(sums: np.ndarray) -> list[dict[str, float]]:
    """Mean estimate, accepted share and labelled slots of each position, from calibration sums [K, 128, 5]."""
    count, positives, predicted = (sums[..., field].sum(axis=1) for field in (COUNT, POSITIVES, SUM_P))
    return [
        {"position": k, "estimate": predicted[k] / n, "accepted": positives[k] / n, "slots": n}
        for k, n in enumerate(count)
        if n
    ]


def why(answer: Mapping[str, Any], positions: Mapping[str, list[dict]]) -> list[dict[str, str]]:
    """For each adaptive arm that another has beaten: arm, by (the fastest of those), term and text.

    answer: as `analysis.analyse` builds it. positions: by adaptive arm, see `by_position`.
    """
    found, arms = [], answer["arms"]
    for row in answer["adaptive"]:
        arm, winner = (
            row["arm"],
            max(row["beaten_by"], key=lambda name: arms[name]["tokens_per_s"], default=None),
        )
        if winner:
            term, text = _term(
                arm, winner, arms[arm]["ledger"], arms[winner]["ledger"], positions.get(arm, [])
            )
            found.append({"arm": arm, "by": winner, "term": term, "text": text})
    return found


def _term(arm: str, winner: str, mine: dict, other: dict, positions: list[dict]) -> tuple[str, str]:
    lost = mine["total_ms"] - other["total_ms"]
    drafting = (mine["draft_ms"] or 0.0) - (other["draft_ms"] or 0.0)
    worst = max(
        (row for row in positions if row["slots"] >= ENOUGH_SLOTS),
        key=lambda row: abs(row["estimate"] - row["accepted"]),
        default=None,
    )
    exploring = (mine["explored_ms"] or 0.0) - (other["explored_ms"] or 0.0)
    off = mine["measured_ms"] / mine["expected_ms"] - 1 if mine["expected_ms"] else 0.0
    off_text = (
        f"steps took {100 * abs(off):.0f} % {'more' if off > 0 else 'less'} than the costs that {arm} decides by say "
        f"({mine['measured_ms'] or 0.0:.1f} ms against {mine['expected_ms'] or 0.0:.1f} ms)"
    )
    saved = mine["saved_ms"] or 0.0
    trims = mine["trimmed"] > 0
    decides = trims or Arm.parse(unlabelled(arm)).depth  # a depth is chosen by costs, too
    if lost > 0 and exploring >= max(FLAT_SHARE * lost, drafting):
        return "exploration", (
            f"Exploration: {mine['explored']:,.0f} draft tokens that {arm} verifies beyond its budget for every 1,000 "
            f"tokens take {mine['explored_ms']:.0f} ms by the costs that it decides by; it loses {lost:.0f} ms in all. "
            "Some of them are accepted, so that is the most that exploring costs: explore less."
        )
    if lost > 0 and drafting >= FLAT_SHARE * lost:
        return "draft cost already spent", (
            f"Draft cost already spent: {arm} takes {drafting:.0f} ms more for drafting than {winner} for every 1,000 "
            f"tokens, of {lost:.0f} ms that it loses in all. What is drafted is paid, however little is verified."
        )
    if decides and abs(off) > TABLE_OFF:
        return "wrong cost table", (
            f"Wrong cost table: {off_text}, so budgets were chosen with wrong ones. Time them again under this load."
        )
    if decides and worst and abs(worst["estimate"] - worst["accepted"]) > MISJUDGED:
        return "poor calibration", (
            f"Poor calibration at position {worst['position']}: estimated {worst['estimate']:.2f}, accepted "
            f"{worst['accepted']:.2f} over {worst['slots']:,.0f} draft tokens, so the budget went to the wrong ones."
        )
    if not decides:
        perhaps = f" It may trim too little: {off_text}." if abs(off) > TABLE_OFF and not exploring else ""
        return "nothing trimmed", (
            f"Nothing trimmed: {arm} verified every draft token, as a fixed length does, and deciding costs "
            f"{mine['decide_ms'] or 0.0:.0f} ms for every 1,000 tokens.{perhaps}"
        )
    if trims and saved < FLAT * mine["total_ms"]:
        return "flat cost curve", (
            f"Flat cost curve: verifying every draft token would have cost {saved:.0f} ms more for every 1,000 tokens, "
            f"{100 * saved / mine['total_ms']:.1f} % of the time. There is little to gain by trimming, and deciding "
            f"costs {mine['decide_ms'] or 0.0:.0f} ms."
        )
    if lost <= 0:
        return "not in the totals", (
            f"Over all rounds together {arm} takes no longer than {winner} for 1,000 tokens: it loses in most rounds "
            "and gains in a few, so no term of the ledger explains it. Look at the rounds."
        )
    names = {
        "prompt_ms": "computing prompts",
        "draft_ms": "drafting",
        "verify_ms": "verification",
        "sample_ms": "sampling",
        "decide_ms": "deciding",
    }
    names["other_ms"] = "everything else"
    untold = [
        each for each, ledger in ((arm, mine), (winner, other)) if any(ledger[n] is None for n in names)
    ]
    if untold:
        return "not told", (
            f"{arm} loses {lost:.0f} ms to {winner} for every 1,000 tokens; where the time of {' and '.join(untold)} "
            "goes, its engine does not tell."
        )
    largest = max(names, key=lambda name: mine[name] - other[name])
    return names[largest], (
        f"The largest part of the loss is {names[largest]}: {mine[largest] - other[largest]:.0f} ms more than {winner} "
        f"for every 1,000 tokens, of {lost:.0f} ms in all."
    )
