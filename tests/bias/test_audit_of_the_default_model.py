"""The audit of the shipped target and drafter, in a process of its own: two seeds of 20,000 continuations."""

import pytest

from avlab.bias.process import SOUND_RULES, UNSOUND_RULES, AuditProcess

pytestmark = [pytest.mark.model, pytest.mark.slow]


def audited(rules, seeds):
    process = AuditProcess(rules, seeds, 20_000)
    try:
        assert process.done.wait(1500)
    finally:
        process.close()
    assert not process.error
    assert len(process.rows) == len(rules) * len(seeds)
    return list(process.rows.values())


@pytest.mark.long
def test_sound_rules_are_not_rejected():
    for row in audited(SOUND_RULES, [0, 1]):
        assert row["sound"] and not row["rejected"], row
        assert row["continuations"] == 20_000 and row["exact_total_variation"] < 1e-9


@pytest.mark.long
def test_unsound_rules_are_rejected_and_marked():
    for row in audited(UNSOUND_RULES, [0, 1]):
        assert row["rejected"] and row["label"].startswith("UNSOUND"), row
        assert row["exact_total_variation"] is None or row["exact_total_variation"] > 0.02


def test_a_process_that_is_stopped_ends():
    process = AuditProcess(["none"], [0], 100_000)
    process.close()
    assert process.done.is_set() and process.error == "The audit was stopped."
