"""Drafters without logits: what they copy, by vLLM's rules, and that the output stays the target's."""

import json
from collections import Counter

import numpy as np
import pytest
import torch
from tiny_models import outputs, serve, write_llama, write_tokenizer

from avlab.engine.build import BuildSettings, build, choose_drafter
from avlab.engine.checkpoint_files import CheckpointError
from avlab.engine.drafters.ngram import NgramDrafter, NgramOptions
from avlab.engine.drafters.suffix import SuffixDrafter, SuffixOptions
from avlab.engine.engine import Engine, EngineConfig
from avlab.engine.request import Request
from avlab.engine.target import Target
from avlab.policies.arm import Arm
from avlab.speculation.costs import CostTable

REPEATING = [5, 6, 7, 8, 9, 5, 6, 7, 3, 5, 6, 7]


def ngram(K=4, **options):
    return NgramDrafter(K, NgramOptions(**options))


def suffix(K=4, **options):
    return SuffixDrafter(K, SuffixOptions(**{f"suffix_decoding_{name}": v for name, v in options.items()}))


def slow_ngram(tokens, depth, shortest, longest):
    """vLLM's rule, by the book: the longest n-gram, where it stands first, and what follows it."""
    for n in range(min(longest, len(tokens) - 1), shortest - 1, -1):
        for begin in range(len(tokens) - n):
            if tokens[begin : begin + n] == tokens[-n:]:
                return tokens[begin + n : begin + n + depth], n
    return [], 0


@pytest.mark.parametrize("shortest, longest", [(1, 1), (1, 4), (2, 3), (3, 3)])
def test_ngram_finds_what_vllms_rule_finds(shortest, longest):
    rng = np.random.default_rng(0)
    for _ in range(300):
        tokens = rng.integers(0, 4, rng.integers(1, 30)).tolist()
        found = ngram(prompt_lookup_min=shortest, prompt_lookup_max=longest).look_up(0, tokens, 4)
        draft, n = slow_ngram(tokens, 4, shortest, longest)
        assert (found.tokens, found.match) == (draft, n if draft else 0), tokens


def test_ngram_counts_the_continuations_of_its_match():
    found = ngram(prompt_lookup_max=3).look_up(0, REPEATING, 4)
    assert found.tokens == [8, 9, 5, 6] and found.match == 3
    # 5 6 7 stands twice before: one goes on with 8, as drafted, and the other with 3
    assert (found.seen, found.agreeing) == ([2, 1, 1, 1], [1, 1, 1, 1])


def test_a_drafter_reads_on_and_forgets_at_the_end():
    for drafter in (ngram(prompt_lookup_max=2), suffix()):
        one = drafter.look_up(0, REPEATING[:8], 4).tokens
        assert one == [8, 9, 5, 6][: len(one)] and one
        drafter.forget(0)
        assert drafter.look_up(0, [1, 2, 3], 4).tokens == [], "another request's text is not its own"


def test_suffix_goes_the_commonest_way_and_longer_matches_draft_more():
    text = [1, 2, 3, 9, 1, 2, 4, 9, 1, 2, 4, 9, 1, 2]
    found = suffix().look_up(0, text, 4)
    assert found.tokens == [4, 9, 1, 2] and found.match == 7
    assert suffix(max_spec_factor=0.5).look_up(0, text, 4).tokens == [4, 9, 1]
    assert suffix(max_spec_factor=0.0).look_up(0, text, 4).tokens == []
    for least, draft in (
        (0.6, [4]),
        (0.7, []),
    ):  # behind 1 2, two of three go on with 4; a match of 2 drafts 2 at most
        some = suffix(max_tree_depth=4, min_token_prob=least).look_up(
            0, [1, 2, 3, 7, 1, 2, 4, 6, 1, 2, 4, 5, 1, 2], 4
        )
        assert some.tokens == draft, least


def test_suffix_drafts_from_earlier_answers_and_keeps_so_many():
    drafter = suffix(max_cached_requests=1)
    drafter.look_up(0, [40, 41], 4)
    drafter.look_up(0, [40, 41, 20, 21, 22, 23, 24], 4)
    drafter.forget(0)
    found = drafter.look_up(0, [50, 20, 21, 22], 4)
    assert (found.tokens, found.match, found.source) == ([23, 24], 3, 1)
    assert drafter.look_up(1, [50, 40, 41], 4).tokens == [], "prompts are not answers"
    drafter.look_up(2, [60], 4)
    drafter.look_up(2, [60, 30, 31, 32], 4)
    drafter.forget(2)
    assert drafter.look_up(0, [50, 20, 21, 22, 50, 20, 21], 4).source == 0
    assert drafter.look_up(3, [50, 20, 21, 22], 4).tokens == [], "the oldest answer has made room"


def test_what_is_timed_is_no_answer():
    drafter = suffix()
    drafter.assume_read(0, 3)
    drafter.look_up(0, [0] * 8, 4)
    drafter.forget(0)
    assert drafter.look_up(1, [0, 0], 4).source == 0 and not drafter._answers.texts


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    folder = write_llama(tmp_path_factory.mktemp("lookup") / "target", sharpness=3.0)
    return Target(folder, torch.float32)


def engine_of(target, drafter, policy, requests=8):
    K = drafter.K if drafter else 0
    costs = CostTable.linear(
        [(1, 1, 0.1)] if K else [(1, 0.0)], [(1, 1.0), (64, 2.0)], requests, 2000, K=K or None
    )
    return Engine(target, drafter, costs, EngineConfig(max_num_seqs=requests), Arm.parse(policy))


POLICIES = ["fixed:3", "verify:2", "adaptive", "adaptive:converged+depth+stop", "adaptive+depth+explore=0.3"]


@pytest.mark.parametrize(
    "make", [lambda: ngram(prompt_lookup_max=1), lambda: suffix()], ids=["ngram", "suffix"]
)
@pytest.mark.parametrize("policy", POLICIES)
def test_greedy_output_is_that_of_no_drafts(target, make, policy):
    requests = [Request(i, REPEATING[i:] + [i], 40, temperature=0.0) for i in range(6)]
    due = outputs(serve(engine_of(target, None, "none"), requests)[0])
    finished, reports = serve(engine_of(target, make(), policy), requests)
    assert outputs(finished) == due
    slots = [report.slots for report in reports if report.slots is not None]
    lengths = np.concatenate([each.scheduled for each in slots])
    assert 0 in lengths and lengths.max() >= 3, "some drafts are empty, some long"
    assert sum(each.accepted.sum() for each in slots) > 10
    for each in slots:
        assert (each.admitted <= each.scheduled).all() and (each.label[np.arange(len(each.label))] <= 1).all()
        drafted = np.isfinite(each.features["max_log_odds"]).sum(1)
        assert (each.scheduled <= drafted).all()


def test_a_slot_without_a_draft_counts_as_refused_in_the_next_budget(target):
    engine = engine_of(target, ngram(prompt_lookup_max=1), "adaptive")
    engine.add(Request(0, [1, 2, 3, 4, 50], 8, temperature=0.0))
    while not any(s.steps for s in engine.sequences):
        engine.step()
    sequence = engine.sequences[0]
    if sequence.tokens.index(sequence.tokens[-1]) < len(sequence.tokens) - 1:
        pytest.skip("the target repeated itself at once")
    engine.step()
    assert (sequence.earlier == 0).all()


@pytest.mark.parametrize(
    "make", [lambda: ngram(prompt_lookup_max=1), lambda: suffix()], ids=["ngram", "suffix"]
)
def test_sampled_output_follows_the_target(target, make):
    """Pairs of tokens behind one prompt, with drafts and without, from 6,000 continuations each."""
    prompt, many = REPEATING, 6_000

    def pairs(drafter, policy):
        engine = engine_of(target, drafter, policy, requests=200)
        requests = [Request(i, prompt, 3, temperature=1.0, seed=i) for i in range(many)]
        finished, _ = serve(engine, requests)
        return Counter(
            tuple(each.sequence.tokens[len(prompt) : len(prompt) + 2]) for each in finished.values()
        )

    plain, drafted = pairs(None, "none"), pairs(make(), "adaptive")
    common = [pair for pair, count in plain.most_common() if count + drafted[pair] >= 20]
    counts = np.array([[each[pair] for pair in common] for each in (plain, drafted)], dtype=float)
    counts = np.column_stack([counts, many - counts.sum(1)])
    due = counts.sum(0) / 2
    chi2 = ((counts - due) ** 2 / due).sum()
    freedom = counts.shape[1] - 1
    assert chi2 < freedom + 4.5 * np.sqrt(2 * freedom), (chi2, freedom)


def test_it_is_chosen_by_its_name_and_its_options_are_checked(tmp_path):
    target = write_llama(tmp_path / "target")
    chosen, why_none = choose_drafter("ngram:prompt_lookup_max=4,prompt_lookup_min=2", target)
    assert chosen.name == "ngram:prompt_lookup_max=4,prompt_lookup_min=2" and why_none == ""
    drafter = chosen.make(None, 4, 3)
    assert (drafter.options.prompt_lookup_min, drafter.options.prompt_lookup_max, drafter.K) == (2, 4, 3)
    usual = choose_drafter("ngram", target)[0].make(None, 4, 3).options
    assert (usual.prompt_lookup_min, usual.prompt_lookup_max) == (5, 5), "vLLM's"
    for wrong, words in (
        ("ngram:prompt_lookup_min=4,prompt_lookup_max=2", "1 <= min <= max must hold"),
        ("ngram:K=4", "no option 'K'; write ngram:NAME=VALUE with prompt_lookup_min, prompt_lookup_max"),
        ("suffix:suffix_decoding_max_tree_depth=many", "is 'many'; give a whole number"),
        ("suffix:suffix_decoding_min_token_prob=nan", "min_token_prob must be from 0 to 1"),
    ):
        with pytest.raises(CheckpointError, match=words):
            choose_drafter(wrong, target)[0].make(None, 4, 3)


def test_a_run_says_what_its_feature_is(tmp_path):
    target, costs = write_llama(tmp_path / "target"), tmp_path / "costs.json"
    write_tokenizer(target)
    costs.write_text(json.dumps({"draft": [[1, 1, 0.1]], "verify": [[1, 1.0], [64, 2.0]]}))
    asked = {"dtype": "float32", "costs": costs, "serving": EngineConfig(max_num_seqs=2)}
    built = build(BuildSettings(str(target), "suffix", K=4, arm=Arm.parse("adaptive"), **asked))
    assert built.drafter_name == "suffix" and built.drafter_hash is None
    assert any("no logits" in warning for warning in built.warnings)
