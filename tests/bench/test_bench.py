"""The benchmark: what it reports, that it goes on where it stopped, and that every measure runs on a tiny model."""

import contextlib
import json
import time
from types import SimpleNamespace

import numpy as np
import pytest
from answers import ab_answer
from tiny_models import write_block_drafter, write_llama, write_tokenizer

from avlab.bench import report, rounds, runner
from avlab.bench.base import Bar, BenchError, Context, Measure, Outcome, Table, all_measures, choose
from avlab.bench.cache import Cache
from avlab.bench.process import Child
from avlab.config import RunConfig
from avlab.experiments.answers import Comparison
from avlab.processes import worker_environment

FAST = Measure(
    "fast", "fast things", (Bar("speed", "speed", "x", 2.0), Bar("fact", "a fact", "s")), lambda c: None, 1
)
SMALL = Measure("small", "small things", (Bar("size", "size", "GB", 1.0, "<="),), lambda c: None, 2)


class Silent:
    """Progress bars that show nothing and remember what ended."""

    def __init__(self):
        self.ended = []

    def begin(self, about):
        pass

    def show(self, text, done, total):
        pass

    def end(self, about, outcome):
        self.ended.append((about, outcome.problem, outcome.cached))


def outcome_of(measure, **values):
    return Outcome(
        measure.name, values=values, tables=[Table("some | thing", ["a"], [[1.23456]])], notes=["Noted."]
    )


def take_good(measure, progress):
    progress("on the way", 1, 2)
    return outcome_of(FAST, speed=2.5, fact=None) if measure is FAST else outcome_of(SMALL, size=1.5)


def take_bad(measure, progress):
    if measure is FAST:
        raise OSError("no such thing")
    return take_good(measure, progress)


KEYS = {"fast": "k1", "small": "k2"}


def test_a_bar_is_met_by_its_sense_and_a_fact_never():
    assert [FAST.bars[0].met(v) for v in (2.0, 1.9, None)] == [True, False, None]
    assert [SMALL.bars[0].met(v) for v in (1.0, 1.1)] == [True, False]
    assert FAST.bars[1].met(3.0) is None


def test_json_maps_every_line_to_value_bar_and_unit(tmp_path):
    outcomes = runner.collect([FAST, SMALL], KEYS, Cache(tmp_path / "c.json"), take_good, Silent())
    plain = json.loads(json.dumps(report.plain([FAST, SMALL], outcomes)))
    assert plain == {
        "speed": {"value": 2.5, "bar": 2.0, "unit": "x"},
        "fact": {"value": None, "bar": None, "unit": "s"},
        "size": {"value": 1.5, "bar": 1.0, "unit": "GB"},
    }


def test_the_page_holds_table_and_details_and_keeps_what_was_written_by_hand(tmp_path, capsys):
    outcomes = runner.collect([FAST, SMALL], KEYS, Cache(tmp_path / "c.json"), take_good, Silent())
    page = tmp_path / "docs" / "page.md"
    report.write(page, [FAST, SMALL], outcomes, quick=True)
    page.write_text(page.read_text() + "\nWhy size is missed: because.\n")
    report.write(page, [FAST, SMALL], outcomes, quick=False)
    text = page.read_text()
    assert "| speed | 2.5 | ≥ 2 | x | yes |" in text and "| size | 1.5 | ≤ 1 | GB | no |" in text
    assert "| a fact | not measured |  | s |  |" in text
    assert "**some | thing**" in text and "Noted." in text and "| 1.23 |" in text
    assert text.count("Why size is missed: because.") == 1 and text.count(report.BY_HAND) == 1
    report.show([FAST, SMALL], outcomes)
    assert "2.5" in capsys.readouterr().out


def test_a_measure_that_fails_says_so_and_the_others_run(tmp_path):
    bars, cache = Silent(), Cache(tmp_path / "c.json")
    first, second = runner.collect([FAST, SMALL], KEYS, cache, take_bad, bars)
    assert first.failed and first.problem == "failed: no such thing" and second.values == {"size": 1.5}
    assert report.cells(FAST.bars[0], None, first.problem)[1] == "failed: no such thing"
    assert report.plain([FAST], [first])["speed"]["value"] is None
    assert "failed: no such thing" in report.page([FAST, SMALL], [first, second], quick=False)
    assert Cache(tmp_path / "c.json").get("fast", "k1") is None  # a failure is tried again


def test_a_benchmark_goes_on_where_it_stopped(tmp_path):
    path, taken = tmp_path / "c.json", []

    def take(measure, progress):
        taken.append(measure.name)
        return take_good(measure, progress)

    runner.collect([FAST], KEYS, Cache(path), take, Silent())
    outcomes = runner.collect([FAST, SMALL], KEYS, Cache(path), take, Silent())
    assert taken == ["fast", "small"] and outcomes[0].cached and not outcomes[1].cached
    assert (
        outcomes[0].values == {"speed": 2.5, "fact": None} and outcomes[0].tables[0].title == "some | thing"
    )
    runner.collect([FAST], {"fast": "other code"}, Cache(path), take, Silent())
    runner.collect([FAST], KEYS, Cache(path, fresh=True), take, Silent())
    assert taken == ["fast", "small", "fast", "fast"]
    path.write_text("{damaged")
    assert Cache(path).get("fast", "k1") is None


def test_ratios_are_medians_over_rounds_of_interleaved_blocks():
    speed = np.array([10.0, 20.0, 40.0])  # the machine's, by round; it cancels inside a round
    gain = {"adaptive": [1.5, 1.6, 1.4], "fixed:1": [1.0, 1.0, 1.0], "fixed:7": [0.5, 0.5, 0.5]}
    order = []

    def serve(arm, number):
        order.append((number, arm))
        return rounds.Block(arm, number, round(100 * speed[number] * gain[arm][number]), 100.0, 10)

    blocks = rounds.switchback(list(gain), 3, serve, seed=1)
    assert [number for number, _ in order] == [0] * 3 + [1] * 3 + [2] * 3
    assert all({arm for n, arm in order if n == number} == set(gain) for number in range(3))
    assert np.median(rounds.round_ratios(blocks, "adaptive", "fixed:7")) == pytest.approx(3.0)
    assert rounds.best_arm(blocks, ["fixed:1", "fixed:7"]) == "fixed:1"
    low, high = rounds.interval(rounds.round_ratios(blocks, "adaptive", "fixed:1"))
    assert 1.4 <= low <= 1.5 <= high <= 1.6
    row = rounds.arm_rows(blocks, list(gain), "adaptive")[1]
    assert row[:3] == ["fixed:1", 20.0, pytest.approx(100 * 70 / 30, abs=0.01)]


def test_measures_are_found_and_chosen_by_name():
    found = all_measures()
    bars = [bar.name for measure in found for bar in measure.bars]
    assert len({m.name for m in found}) == len(found) and len(set(bars)) == len(bars)
    assert {bar.name: bar.bar for m in found for bar in m.bars if bar.bar is not None} == {
        "decode-step": 1.4,
        "new-sizes-16": 1.05,
        "new-sizes-64": 1.05,
        "overhead": 15.0,
        "overhead-top-p": 15.0,
        "estimation": 2.0,
        "deciding": 0.1,
        "deciding-combined": 1.2,
        "vllm-1": 1.0,
        "vllm-1-top-p": 1.0,
        "vllm-16": 1.25,
        "vllm-16-top-p": 1.25,
        "vllm-64": 1.5,
        "vllm-64-top-p": 1.5,
        "best-fixed-1": 0.97,
        "best-fixed-2": 0.97,
        "best-fixed-4": 0.97,
        "fixed7-8": 1.3,
        "fixed7-16": 1.5,
        "fixed7-64": 2.0,
        "ece": 0.015,
        "ece-over-raw": 0.5,
        "acceptance": 0.55,
        "tokens-per-step": 2.0,
        "memory": 2.5,
        "memory-adaptive": 1.6,
        "recorder": 100_000,
        "identical-declared": 0,
        "frontier-off": 0,
        "frontier-least": 0.98,
        "frontier-gains": 2,
        "frontier-ratio-half-width": 1.5,
        "replay-outside": 0,
        "replay-mean": 1.5,
        "replay-speed": 5.0,
        "replay-priced": 5.0,
        "drift-gain": 1.05,
        "drift-recovery": 3,
        "first-page": 3.0,
        "first-tokens": 20.0,
        "tick": 100.0,
        "dashboard-effect": 5.0,
        "audit-speed": 2000,
    }
    assert [m.name for m in choose(found, ["recorder", "overhead-top-p"])] == ["overhead", "recorder"]
    with pytest.raises(BenchError, match="no measure named 'speed'"):
        choose(found, ["speed"])


def test_an_unknown_measure_is_a_sentence_and_no_run(capsys):
    assert runner.main(only=["speed"]) == 2
    assert "there is no measure named 'speed'" in capsys.readouterr().err


class Tiny(Context):
    """A context whose every size is small."""

    def pick(self, quick, full):
        if isinstance(quick, tuple):
            return tuple(3 if isinstance(each, int) else each for each in quick)
        if quick == 64:  # the longest prompt of a comparison
            return full
        return 0.01 if isinstance(quick, float) else max(3, quick // 40)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    target = write_llama(folder / "target", max_position_embeddings=1024, eos_token_id=1)
    write_tokenizer(target)
    drafter = write_block_drafter(folder / "drafter", target)
    config = RunConfig.make(
        target=str(target),
        drafter=str(drafter),
        K=4,
        max_model_len=1024,
        max_new_tokens=60,
        max_num_seqs=16,
        dtype="float32",
    )
    return Tiny(config, True, folder, folder / "costs.json")


NAMES = (
    "decode-step",
    "overhead",
    "policies-4",
    "estimator",
    "drafter",
    "memory",
    "recorder",
    "entropy",
    "dashboard-ticks",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_measure_gives_a_number_for_each_of_its_lines(tiny, name):
    measure = next(each for each in all_measures() if each.name == name)
    result = measure.run(tiny)
    assert set(result.values) == {bar.name for bar in measure.bars}
    assert all(value > 0 for value in result.values.values())
    for table in result.tables:
        assert table.rows and {len(row) for row in table.rows} == {len(table.columns)}
    json.dumps(result.values)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["identical-arms", "ab-4", "frontier", "drift"])
def test_a_measure_of_an_experiment_is_taken_and_goes_on_from_its_runs(tiny, name, monkeypatch):
    from avlab.bench.measures import drift
    from avlab.bench.product import Product

    monkeypatch.setattr(drift, "KINDS", drift.KINDS[:2])
    monkeypatch.setattr(drift, "LOADS", drift.LOADS[:2])
    measure, served = next(each for each in all_measures() if each.name == name), []
    serve = Product.serve
    monkeypatch.setattr(
        Product, "serve", lambda self, *given, **more: served.append(given) or serve(self, *given, **more)
    )
    result = measure.run(tiny)
    assert set(result.values) == {bar.name for bar in measure.bars} and served
    for table in result.tables:
        assert table.rows and {len(row) for row in table.rows} == {len(table.columns)}
    report.markdown(result.tables[0])
    served.clear()
    again = measure.run(tiny)
    assert not served and again == result


def identical(rounds=30, **changes):
    result = Comparison(arm="fixed:5#2", rounds=rounds, low=0.99, high=1.01, ratio=1.0, **changes)
    return ab_answer(rounds=rounds, results=[result])


def test_identical_arms_meet_no_bar_with_too_few_runs_or_rounds():
    from avlab.bench.measures.identical_arms import values_of

    whole, declared = [identical() for _ in range(3)], "identical-declared"
    assert values_of(whole)[declared] == 0 and values_of(whole)["identical-half-width"] > 0
    assert values_of(whole[:2])[declared] is None
    assert values_of([*whole[:2], identical(rounds=29)])[declared] is None
    assert values_of([])[declared] is values_of([])["identical-half-width"] is None
    withdrawn = identical(declared_at=9)  # one who watched saw it
    assert values_of([*whole[:2], withdrawn])[declared] == 1


def test_runs_of_identical_arms_have_orders_and_traffic_of_their_own(monkeypatch):
    from avlab.bench import product
    from avlab.bench.measures import identical_arms
    from avlab.config import RunConfig

    class Served:
        config, served, plans = RunConfig.make(policy="none"), 0.0, []

        def serve(self, config, plan, *_):
            self.plans.append((config, plan))

        def experiments(self):
            return list(range(len(self.plans)))

        def query(self, *_):
            return identical()

    served = Served()
    monkeypatch.setattr(product, "product", lambda *_: contextlib.nullcontext(served))
    result = identical_arms.measure(SimpleNamespace(pick=lambda quick, full: full))
    assert result.values["identical-declared"] == 0
    assert (
        len({config.seed for config, _ in served.plans}) == len({plan.seed for _, plan in served.plans}) == 3
    )


def test_preparation_is_no_time_of_a_run(monkeypatch):
    from avlab.bench import product

    class Supervisor:
        waited, stopped = 0, False

        def wait(self, seconds):
            time.sleep(0.02)
            self.waited += 1
            return self.stopped

        def status(self):
            return SimpleNamespace(state="timing steps 3/40" if self.waited < 10 else "serving", error="")

    supervisor = Supervisor()
    stops = []

    def stop():
        supervisor.stopped = True
        stops.append(supervisor.waited)

    lab = SimpleNamespace(supervisor=supervisor, run=lambda config, plan: "run", stop=stop)
    served = product.Product.__new__(product.Product)
    served.lab, served.context, served.kept = lab, SimpleNamespace(progress=lambda *_: None), lambda run: 1
    assert served.serve(None, None, 0.05) == "run"
    assert len(stops) == 1 and stops[0] > 10


def test_without_its_environment_the_comparison_says_what_to_run(tiny, tmp_path, monkeypatch):
    from avlab.bench.base import NotMeasured
    from avlab.bench.measures import against_vllm

    monkeypatch.setattr(against_vllm, "ENVIRONMENT", tmp_path)
    with pytest.raises(NotMeasured, match="run make bench-vllm-env"):
        against_vllm.measure(tiny)


def test_the_comparison_serves_both_engines_in_every_case(tiny, monkeypatch):
    from avlab.bench.measures import against_vllm

    class Other:
        def __init__(self):
            self.asked = []

        def ask(self, **order):
            self.asked.append(order)
            if "serve" in order:
                return {"tokens": 10, "seconds": 1.0, "steps": 5}
            return {"ready": "0"} if "model" in order else {}

    other = Other()
    monkeypatch.setattr(against_vllm, "vllm", lambda: contextlib.nullcontext(other))
    result = against_vllm.measure(tiny)
    assert set(result.values) == {bar.name for bar in against_vllm.BARS}
    assert all(value > 0 for value in result.values.values())
    first, *rest = other.asked
    assert len(first["prompts"]) == against_vllm.PROMPTS and first["dtype"] == "float32"
    begun = [(order["begin"], order["top_p"]) for order in rest if "begin" in order]
    assert begun == against_vllm.CASES
    assert sum("serve" in order for order in rest) == 3 * len(begun)


@pytest.mark.slow
def test_a_process_takes_measures_and_says_why_it_cannot_take_one(tiny, tmp_path):
    child, seen = Child(worker_environment(tiny.config.threads, tiny.config.spin), tmp_path / "log"), []
    order = {"measure": "decode-step", "quick": True, "folder": str(tmp_path), "costs": str(tiny.costs)}

    def take(config, limit=120):
        given = {**order, "config": config.model_dump(mode="json")}
        return child.take(given, lambda *said: seen.append(said), limit)

    bad, good = take(tiny.config.changed(target=str(tmp_path / "none"))), take(tiny.config)
    assert bad.failed and bad.problem.startswith("failed: There is no model folder")
    assert good.values["decode-step"] > 0 and not good.problem and seen
    assert good.machine["spin"] == tiny.config.spin and good.machine["dtype"] == "float32"
    late = take(tiny.config, limit=0.01)
    assert late.failed and "was given up" in late.problem and not child.alive
