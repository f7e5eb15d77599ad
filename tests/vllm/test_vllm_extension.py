"""The worker extension on vLLM's real adaptive loop: its tables against vLLM's own tensors and against our mathematics.

Model Runner V2, the estimator's Triton kernels and the budget manager run on a CPU under Triton's interpreter
(`vllm_interpreted.py`), on a tiny target. Part of `make test-vllm`.
"""

import json

import numpy as np
import pytest
from tiny_models import write_llama
from vllm_environment import ask, needs_vllm

from avlab.speculation import calibration
from avlab.speculation.allocation import allocate
from avlab.speculation.features import log_odds
from avlab.speculation.labels import labels
from avlab.speculation.regression import Coefficients, RoundStatistics, refit
from avlab.vllm.ring import RingFile
from avlab.vllm.sidecar.exporter import Exporter

pytestmark = [needs_vllm, pytest.mark.vllm, pytest.mark.slow]

K, REQUESTS, TOKENS, REFIT = 3, 4, 24, 6
SHAPE = {
    "hidden_size": 128,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
}  # heads of 32: vLLM has no smaller on a CPU
INTERPRETED = {
    "TRITON_INTERPRET": "1",
    "VLLM_USE_V2_MODEL_RUNNER": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}
ORDER = {
    "K": K,
    "requests": REQUESTS,
    "tokens": TOKENS,
    "refit": REFIT,
    "draft_curve": [[1, 0.2], [8, 0.4]],
    "verify_curve": [
        [1, 2.0],
        [4, 2.2],
        [8, 2.8],
        [16, 5.0],
        [2048, 500.0],
    ],  # what lies beyond four tokens costs
    "adaptive": True,
    "late": False,
    "holds": [-1],
    "extension": "",
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    target = write_llama(folder / "target", sharpness=2.5, **SHAPE)
    drafter = write_llama(folder / "drafter", sharpness=2.0, **SHAPE | {"num_hidden_layers": 1})
    return {"target": str(target), "drafter": str(drafter)}


@pytest.fixture(scope="module")
def plain(models):
    return ask("vllm_adaptive_loop.py", ORDER | models, **INTERPRETED)


@pytest.fixture(scope="module")
def watched(models):
    return ask(
        "vllm_adaptive_loop.py", ORDER | models | {"extension": "avlab.vllm.extension.Watch"}, **INTERPRETED
    )


@pytest.fixture(scope="module")
def switched(models):
    holds = {"extension": "avlab.vllm.extension.Switch", "holds": [-1, 2, 0, K]}
    return ask("vllm_adaptive_loop.py", ORDER | models | holds, **INTERPRETED)


def steps_of(drain):
    """A drain's steps as columns."""
    return {name: [row[i] for row in drain["steps"]] for i, name in enumerate(drain["step_fields"])}


def taught(answer):
    """What vLLM's estimator was taught with, step by step: accepted, admitted [B]; feature, prediction [B, K]."""
    for each in answer["probes"]["taught"]:
        accepted = np.maximum(np.array(each["sampled"]) - 1, 0)
        yield accepted, accepted + each["rejected"], np.array(each["feature"]), np.array(each["prediction"])


def test_outputs_are_the_same_with_the_extension_and_without(plain, watched, switched):
    assert plain["outputs"][0] == watched["outputs"][0] == switched["outputs"][0]


def test_every_table_is_filled_and_nothing_is_missing(watched):
    (about,), drain = watched["about"], watched["drains"][-1]
    assert (about["K"], about["source"], about["missing"]) == (K, "online", [])
    assert len(drain["steps"]) > 3 * REFIT and len(drain["refits_made"]) >= 3
    assert set(drain["calibration"]) == {"online", "raw"} and all(drain["calibration"].values())
    first = watched["drains"][0]
    assert first["cost_tables"][0][1] == pytest.approx(0.2) and len(first["cost_tables"][1]) > 100


def test_steps_are_what_verification_did(watched):
    drain = watched["drains"][-1]
    steps, seen = steps_of(drain), list(taught(watched))
    assert steps["number"] == list(range(len(seen)))
    for n, (accepted, admitted, _, _) in enumerate(seen):
        _, labelled = labels(accepted, admitted, K)
        assert steps["admitted"][n] == [(admitted > k).sum() for k in range(K)]
        assert steps["accepted"][n] == [(accepted > k).sum() for k in range(K)]
        assert steps["labelled"][n] == labelled.sum(0).tolist()
    sampled = [sum(each["sampled"]) for each in watched["probes"]["taught"]]
    assert steps["tokens"] == sampled and 0 <= sum(sampled) - REQUESTS * TOKENS <= REQUESTS * K
    assert all(t > 0 for t in steps["verify_ms"]) and np.isfinite(steps["expected_ms"]).any()


def test_what_was_admitted_is_the_budget_and_our_allocation(watched):
    steps = steps_of(watched["drains"][-1])
    drafting = [n for n, scheduled in enumerate(steps["scheduled"]) if sum(scheduled)]
    assert len(drafting) == len(watched["probes"]["allocated"])
    trimmed = 0
    for n, each in zip(drafting, watched["probes"]["allocated"], strict=True):
        assert sum(steps["admitted"][n]) == steps["budget"][n] == each["budget"] == sum(each["admitted"])
        assert sum(steps["scheduled"][n]) == sum(each["scheduled"])
        survival = np.cumprod(each["confidence"], axis=1)
        scheduled = np.array(each["scheduled"])
        ours = allocate(survival, scheduled, each["budget"])
        chosen = np.sort(survival[np.arange(K) < np.array(each["admitted"])[:, None]])
        assert np.allclose(chosen, np.sort(survival[np.arange(K) < ours[:, None]]))  # but for ties
        if len(np.unique(survival)) == survival.size:
            assert each["admitted"] == ours.tolist()
        trimmed += 0 < each["budget"] < scheduled.sum()
    assert trimmed > 3, "the case must trim"


def test_coefficients_are_ours_from_the_same_labels(watched):
    ours, statistics, made = Coefficients.cold_start(K), RoundStatistics.zero(K), []
    counts, positives = [], []
    for n, (accepted, admitted, feature, prediction) in enumerate(taught(watched), start=1):
        label, labelled = labels(accepted, admitted, K)
        statistics += RoundStatistics.of(feature, prediction, label, labelled)
        counts.append(labelled.sum(0))
        positives.append((label * labelled).sum(0))
        if n % REFIT == 0:
            ours, statistics = refit(ours, statistics), RoundStatistics.zero(K)
            made.append((ours, np.sum(counts, 0), np.sum(positives, 0)))
            counts, positives = [], []
    cold, *refits = watched["drains"][-1]["refits_made"]
    assert cold[0] == 0 and cold[3] == pytest.approx(0.5) and cold[4] == pytest.approx([-0.2] * K)
    assert len(refits) == len(made) == len(watched["probes"]["coefficients"])
    for found, (wanted, n, y), theirs in zip(refits, made, watched["probes"]["coefficients"], strict=True):
        assert found[3:5] == [theirs[0], theirs[1]]
        assert found[3] == pytest.approx(wanted.slope, rel=1e-4, abs=1e-5)
        assert found[4] == pytest.approx(wanted.intercepts, rel=1e-4, abs=1e-5)
        assert (found[5], found[6]) == (n.tolist(), y.tolist())


def test_reliability_is_ours_from_the_same_slots(watched):
    sums = {"online": np.zeros((K, calibration.BINS, 5)), "raw": np.zeros((K, calibration.BINS, 5))}
    for accepted, admitted, feature, prediction in taught(watched):
        label, labelled = labels(accepted, admitted, K)
        for source, x in (("online", log_odds(prediction)), ("raw", feature)):
            sums[source] += calibration.bin_sums(x, label, labelled)
    for source, wanted in sums.items():
        found = np.zeros_like(wanted)
        for position, number, *cell in watched["drains"][-1]["calibration"][source]:
            found[position, number] = cell
        assert found[..., 0].sum() == wanted[..., 0].sum() > 50
        assert np.allclose(found.sum((0, 1)), wanted.sum((0, 1)), rtol=1e-6)
        assert np.abs(found - wanted)[..., 0].sum() <= 2  # a slot on the border of two bins


def test_held_verification_admits_exactly_the_length(switched):
    vllms, two, none, all_of_them = switched["next"]
    assert vllms == 0
    drain = switched["drains"][-1]
    steps = steps_of(drain)
    borders = [*switched["next"], len(steps["number"])]
    for length, begin, end in zip((2, 0, K), borders[1:-1], borders[2:], strict=True):
        assert end > begin
        for n in range(begin, end):
            scheduled = steps["scheduled"][n]
            if sum(scheduled):
                assert steps["admitted"][n] == [
                    count if k < length else 0 for k, count in enumerate(scheduled)
                ]
                assert steps["verify"][n] == length
    for each in switched["probes"]["allocated"]:
        assert sum(each["admitted"]) == each["budget"]
    assert two < none < all_of_them


def test_asking_again_gives_the_same_and_a_cursor_gives_the_rest(switched):
    earlier, later = switched["drains"][1], switched["drains"][-1]
    assert later["steps"][: len(earlier["steps"])] == earlier["steps"]
    assert earlier["dropped"] == later["dropped"] == 0


def test_hooked_in_late_it_tells_the_rest(models, plain):
    late = {"extension": "avlab.vllm.extension.Watch", "late": True, "holds": [-1, -1]}
    answer = ask("vllm_adaptive_loop.py", ORDER | models | late, **INTERPRETED)
    first, second = answer["drains"]
    assert not first["steps"] and answer["outputs"][0] == plain["outputs"][0]
    steps = steps_of(second)
    assert 0 <= sum(steps["tokens"]) - REQUESTS * TOKENS <= REQUESTS * K
    assert second["refits_made"][0][0] > 0  # it begins with the coefficients that it found


def test_a_file_without_development_mode_has_the_extensions_figures(models, plain, tmp_path):
    """Nothing is asked of the worker till the end: it begins by itself, and a thread beside the loop writes."""
    order = ORDER | models | {"extension": "avlab.vllm.extension.Watch", "late": True, "holds": [-1, -1]}
    answer = ask("vllm_adaptive_loop.py", order, **INTERPRETED, AVLAB_TELEMETRY=str(tmp_path))
    assert answer["outputs"][0] == plain["outputs"][0]
    file = RingFile(tmp_path / "engine-0.ring")
    told, found = answer["drains"][-1], file.drain(-1, -1)
    assert len(found["steps"]) > 6 * REFIT and found["refits_made"][0][0] == 0 and found["cost_tables"]
    for name in (
        "steps",
        "refits_made",
        "calibration",
        "cost_tables",
        "cost_curves",
        "next",
        "dropped",
        "source",
    ):
        assert json.dumps(found[name]) == json.dumps(told[name]), name  # to the last digit; nan is itself
    steps, state = steps_of(found), file.state()
    assert state.totals["steps"] == len(answer["probes"]["taught"]) == len(found["steps"])
    assert (state.engine, state.model) == ("0", models["target"]) and state.vllm.startswith("0.")
    expected = accepted = 0.0
    for each, taught_with in zip(answer["probes"]["allocated"], [
        each for n, each in enumerate(taught(answer)) if sum(steps["scheduled"][n])
    ], strict=True):  # fmt: skip
        survival = np.cumprod(each["confidence"], axis=1)
        expected += survival[np.arange(K) < np.array(each["admitted"])[:, None]].sum()
        accepted += taught_with[0].sum()
    assert state.totals["expected_accepted"] == pytest.approx(expected, rel=1e-5)
    scraped = {
        (sample.name, sample.labels.get("position")): sample.value
        for family in Exporter(tmp_path).collect()
        for sample in family.samples
    }
    for name in ("scheduled", "admitted", "accepted", "labelled"):
        for k in range(K):
            counted = scraped[f"vllm:adaptive_sd_{name}_tokens_per_pos_total", str(k)]
            assert counted == sum(row[k] for row in steps[name])
    assert (
        scraped["vllm:adaptive_sd_expected_accepted_tokens_total", None] == state.totals["expected_accepted"]
    )
    measured = sum(a + b for a, b, c in zip(*(steps[n] for n in ("draft_ms", "verify_ms", "expected_ms")), strict=True)
                   if np.isfinite(c))  # fmt: skip
    assert scraped["vllm:adaptive_sd_measured_step_seconds_total", None] == pytest.approx(measured / 1e3)
    assert scraped["vllm:adaptive_sd_slope", None] == told["refits_made"][-1][3]
    assert scraped["vllm:adaptive_sd_budget_tokens", None] == steps["budget"][-1]
    assert state.totals["error_sum"] == pytest.approx(expected - accepted, rel=1e-4, abs=1e-4)


def test_without_adaptive_verification_it_says_so(models):
    answer = ask(
        "vllm_adaptive_loop.py",
        ORDER | models | {"adaptive": False, "extension": "avlab.vllm.extension.Watch"},
        **INTERPRETED,
    )
    (about,), drain = answer["about"], answer["drains"][-1]
    assert any("off" in sentence for sentence in about["missing"]) and about["source"] == ""
    steps = steps_of(drain)
    assert steps["scheduled"] == steps["admitted"]
    assert 0 <= sum(steps["tokens"]) - REQUESTS * TOKENS <= REQUESTS * K
