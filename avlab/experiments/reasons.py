"""Why an arm lost: the term of the cost that explains it, from the ledger per 1,000 output tokens."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from avlab.speculation.calibration import COUNT, POSITIVES, SUM_P

FLAT = 0.02  # of the time, saved by trimming: below it, verifying everything would have cost the same
TABLE_OFF = 0.15  # measured against expected step cost: beyond it budgets were chosen with wrong costs
MISJUDGED, ENOUGH_SLOTS = 0.05, 300  # mean estimate against accepted share, over so many labelled slots
FLAT_SHARE = 0.5  # of the lost time, that drafting must explain to be named first


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
    off = mine["measured_ms"] / mine["expected_ms"] - 1 if mine["expected_ms"] else 0.0
    saved = mine["saved_ms"] or 0.0
    if lost > 0 and drafting >= FLAT_SHARE * lost:
        return "draft cost already spent", (
            f"Draft cost already spent: {arm} takes {drafting:.0f} ms more for drafting than {winner} for every 1,000 "
            f"tokens, of {lost:.0f} ms that it loses in all. What is drafted is paid, however little is verified."
        )
    if abs(off) > TABLE_OFF:
        return "wrong cost table", (
            f"Wrong cost table: steps took {abs(off):.0%} {'more' if off > 0 else 'less'} than the costs that {arm} "
            f"decides by say ({mine['measured_ms']:.1f} ms against {mine['expected_ms']:.1f} ms), so budgets were "
            "chosen with wrong ones. Time them again under this load."
        )
    if worst and abs(worst["estimate"] - worst["accepted"]) > MISJUDGED:
        return "poor calibration", (
            f"Poor calibration at position {worst['position']}: estimated {worst['estimate']:.2f}, accepted "
            f"{worst['accepted']:.2f} over {worst['slots']:,.0f} draft tokens, so the budget went to the wrong ones."
        )
    if saved < FLAT * mine["total_ms"]:
        return "flat cost curve", (
            f"Flat cost curve: verifying every draft token would have cost {saved:.0f} ms more for every 1,000 tokens, "
            f"{saved / mine['total_ms']:.1%} of the time. There is little to gain by trimming, and deciding costs "
            f"{mine['decide_ms'] or 0.0:.0f} ms."
        )
    if lost <= 0:
        return "not in the totals", (
            f"Over all rounds together {arm} takes no longer than {winner} for 1,000 tokens: it loses in most rounds "
            "and gains in a few, so no term of the ledger explains it. Look at the rounds."
        )
    names = {
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
