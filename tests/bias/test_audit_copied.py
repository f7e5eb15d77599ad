"""The audit of drafters without logits: a draft follows from the text, and has the chance that the target gives it."""

import pytest
import torch
from tiny_models import write_llama

from avlab.bias.audit.audit import TOGETHER, Audit
from avlab.bias.audit.rules import AuditError, parse
from avlab.engine.drafters.ngram import NgramDrafter, NgramOptions
from avlab.engine.drafters.suffix import SuffixDrafter, SuffixOptions
from avlab.engine.drafts import Drafts
from avlab.engine.target import Target

PROMPT = [1, 5, 7, 2, 9, 4, 1, 5, 7]
MADE = {
    "ngram": lambda: NgramDrafter(2, NgramOptions(prompt_lookup_min=1, prompt_lookup_max=3)),
    "suffix": lambda: SuffixDrafter(2, SuffixOptions()),
}
RULES = ("none", "fixed:2", "verify:1", "adaptive", "adaptive:matches", "adaptive:converged+depth+stop")


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    path = write_llama(tmp_path_factory.mktemp("copied") / "target", seed=3, sharpness=2.0)
    return Target(path, torch.float32, length=128)


def audited(target, kind, rule, seed=0, count=6000):
    audit = Audit(target, MADE[kind](), PROMPT, parse(rule), seed=seed)
    *_, counts = audit.continuations(count)
    return audit, audit.fits(counts, 2)


def rejected(fits):
    return min(fit.corrected for fit in fits) < 0.01


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("rule", RULES)
def test_policies_are_not_rejected(target, kind, rule):
    audit, fits = audited(target, kind, rule)
    assert not rejected(fits), fits
    assert audit.exact_total_variation() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("kind", MADE)
def test_a_draft_that_is_accepted_too_often_is_found(target, kind, monkeypatch):
    monkeypatch.setattr(
        Drafts, "probability", lambda self, request, position, token: torch.full((len(token),), 0.05)
    )
    assert rejected(audited(target, kind, "fixed:2")[1])


def test_some_are_trimmed_before_the_first_token(target):
    shares = []

    def look(report, drafts, rows):
        if len(report.slots.request) == TOGETHER:
            shares.append(report.slots.admitted.sum() / report.slots.scheduled.sum())

    for _ in Audit(target, MADE["ngram"](), PROMPT, parse("adaptive"), observer=look).continuations(TOGETHER):
        pass
    assert shares and 0 < shares[0] < 1


def test_what_cannot_be_audited_is_one_sentence(target):
    with pytest.raises(AuditError, match="finds 0 tokens behind this prompt, and the audit drafts 2"):
        Audit(target, MADE["ngram"](), [1, 2, 3, 4], parse("fixed:2"))
    for rule in ("maximum:0.5", "drawn:0.2", "budget:same-step", "noise:correction"):
        with pytest.raises(AuditError, match="trims by draft rows, and the drafter ngram has none"):
            Audit(target, MADE["ngram"](), PROMPT, parse(rule))
