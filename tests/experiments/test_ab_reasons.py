"""Why an adaptive arm lost: each term is named by the ledger that shows it."""

from dataclasses import replace

import pytest
from answers import ab_answer, ledger, seen

from avlab.experiments.answers import AgainstFixed
from avlab.experiments.reasons import ENOUGH_SLOTS, Position, why

WINNER = ledger(
    draft_ms=100.0, verify_ms=700.0, sample_ms=50.0, decide_ms=10.0, other_ms=40.0, total_ms=900.0, expected_ms=None,
    measured_ms=None, scheduled=2500.0,
)  # fmt: skip
# loses 100 ms to the winner, 60 of them in verification; no term stands out
LOSER = replace(
    WINNER, draft_ms=120.0, verify_ms=760.0, decide_ms=30.0, total_ms=1000.0, saved_ms=300.0, expected_ms=20.0,
    measured_ms=20.5, trimmed=1500.0,
)  # fmt: skip
GOOD = [Position(0, 0.71, 0.7, 5000)]
POOR = [*GOOD, Position(2, 0.5, 0.4, ENOUGH_SLOTS)]
FEW = [*GOOD, Position(2, 0.9, 0.1, ENOUGH_SLOTS - 1)]


def reason(positions=GOOD, winner="fixed:5", arm="adaptive+depth", **changes):
    answer = ab_answer(
        arms={
            arm: seen(ledger=replace(LOSER, **changes), tokens_per_s=1.0),
            winner: seen(ledger=WINNER, tokens_per_s=1.1),
        },
        adaptive=[AgainstFixed(arm, [], False, None, None, [winner], [])],
    )
    (found,) = why(answer, {arm: positions})
    assert (found.arm, found.by) == (arm, winner)
    return found.term, found.text


@pytest.mark.parametrize(
    ("changes", "term", "words"),
    [
        ({"draft_ms": 150.0}, "draft cost already spent", "takes 50 ms more for drafting than fixed:5"),
        ({"measured_ms": 24.0}, "wrong cost table", "20 % more than adaptive+depth expects (24.0 ms, not 20.0 ms)"),
        ({"measured_ms": 16.0}, "wrong cost table", "steps took 20 % less"),
        ({"positions": POOR}, "poor calibration", "at position 2: estimated 0.50, accepted 0.40 over 300"),
        ({"saved_ms": 15.0}, "flat cost curve", "would have cost 15 ms more per 1,000 tokens, 1.5 % of the time"),
        ({}, "verification", "60 ms more than fixed:5 per 1,000 tokens, of 100 ms in all"),
        ({"positions": FEW}, "verification", "verification"),
    ],
)  # fmt: skip
def test_the_term_that_explains_a_loss_is_named(changes, term, words):
    found = reason(**changes)
    assert found[0] == term and words in found[1]


def test_a_loss_to_an_adaptive_baseline_has_a_reason_too():
    assert reason(winner="adaptive")[0] == "verification"


def test_without_a_loss_in_the_totals_none_is_given_in_milliseconds():
    term, text = reason(total_ms=895.0)
    assert term == "not in the totals" and "takes no longer than fixed:5" in text and "-5" not in text


WHOLE = {"trimmed": 0.0, "saved_ms": 0.0, "measured_ms": 30.6}  # steps took 53 % longer than expected


def test_exploration_that_explains_the_loss_is_the_reason():
    explored = {"explored": 400.0, "explored_ms": 80.0}
    term, text = reason(arm="adaptive+explore=1", **WHOLE, **explored)
    assert term == "exploration"
    assert "adaptive+explore=1 verifies 400 draft tokens beyond its budget per 1,000 tokens" in text
    assert "they take 80 ms, of 100 ms that it loses in all" in text
    assert reason(arm="adaptive+explore=0.5", **explored)[0] == "exploration"  # though something was trimmed
    assert reason(**explored | {"explored_ms": 40.0})[0] == "verification"
    assert reason(**explored, draft_ms=190.0)[0] == "draft cost already spent"  # 90 ms of drafting weigh more
    assert reason(**explored, total_ms=895.0)[0] == "not in the totals"


def test_where_no_budget_was_chosen_neither_costs_nor_estimates_are_to_blame():
    few = {"explored": 400.0, "explored_ms": 30.0}
    for positions in (GOOD, POOR):
        term, text = reason(positions, arm="adaptive+explore=1", **WHOLE, **few)
        assert term == "nothing trimmed" and "adaptive+explore=1 verified every draft token" in text
        assert "cost table" not in text and "53" not in text
    term, text = reason(arm="adaptive", **WHOLE)
    assert (
        term == "nothing trimmed"
        and "It may trim too little: steps took 53 % more than adaptive expects" in text
    )
    assert reason(**WHOLE)[0] == "wrong cost table"  # with +depth a depth was chosen, and by costs
