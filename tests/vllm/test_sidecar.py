"""`avlab sidecar`: what is scraped against what was recorded; dashboard and rules against what is scraped."""

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry
from promql import Expression
from stand_in_runner import INTERVAL, REQUESTS, K, Worker, load, manage, serve
from typer.testing import CliRunner

from avlab.commands.cli import app
from avlab.installation import PROJECT
from avlab.vllm import extension, telemetry
from avlab.vllm.ring import RingError, RingFile
from avlab.vllm.sidecar import FILES, FOLDER
from avlab.vllm.sidecar import metrics as m
from avlab.vllm.sidecar.exporter import Exporter
from avlab.vllm.sidecar.recent import WINDOW, Recent

PROMTOOL = shutil.which("promtool")
TARGET = {"instance": "host:9478", "job": "avlab"}  # what Prometheus itself adds to every series
RULES = [
    rule
    for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
EXPRESSIONS = [rule["expr"] for rule in RULES] + [
    target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]
]


def write(folder, monkeypatch, model="some/model", engine=0, steps=2 * INTERVAL + 3):
    """A worker's file of so many steps; the worker, still writing."""
    import numpy as np

    monkeypatch.setenv(extension.TELEMETRY, str(folder))
    monkeypatch.setattr(telemetry, "PERIOD", 0.01)
    worker = Worker()
    worker.model_config.served_model_name, worker.parallel_config.data_parallel_index = model, engine
    worker.init_worker_extension()
    load(worker.model_runner)
    manage(worker.model_runner)
    worker.model_runner.adaptive_verification.cost_tables = np.linspace(0, 1, 9), np.linspace(0, 9, 65)
    serve(worker.model_runner, steps)
    end = time.monotonic() + 20
    while kept(folder / f"engine-{engine}.ring") < steps:
        assert time.monotonic() < end
        time.sleep(0.005)
    return worker


def kept(path):
    try:
        return RingFile(path).state().steps_kept
    except RingError:  # it is being begun
        return -1


def scraped(exporter):
    """Samples by name and labels, as Prometheus's own parser reads them."""
    registry = CollectorRegistry()
    registry.register(exporter)
    text = generate_latest(registry).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def by_name(samples, name, *labels):
    """Values of one metric by the named labels."""
    return {
        tuple(dict(key)[label] for label in labels): value for (n, key), value in samples.items() if n == name
    }


@pytest.fixture
def found(tmp_path, monkeypatch):
    worker = write(tmp_path, monkeypatch)
    samples = scraped(Exporter(tmp_path))
    yield worker.avlab_drain(), samples
    worker.destroy_worker_extension()


def test_counters_are_the_sums_of_the_recorded_steps(found):
    told, samples = found
    columns = {name: [row[i] for row in told["steps"]] for i, name in enumerate(told["step_fields"])}
    for name in telemetry.BY_POSITION:
        counted = by_name(samples, f"vllm:adaptive_sd_{name}_tokens_per_pos_total", "position")
        assert counted == {(str(k),): sum(row[k] for row in columns[name]) for k in range(K)}
    value = {name: number for (name, labels), number in samples.items() if len(labels) == 2}
    steps = len(told["steps"])
    assert value[m.STEPS.name] == value[m.DRAFTING.name] == steps == 2 * INTERVAL + 3
    assert value[m.TOKENS.name] == sum(columns["tokens"]) and value[m.EMPTY.name] == 0
    assert value[m.EXPECTED.name] == pytest.approx(sum(columns["expected_accepted"]))
    assert value[m.BUDGET.name] == columns["budget"][-1] and value[m.RUNNING.name] == REQUESTS
    assert value[m.REFITS.name] == 2 and value[m.SLOPE.name] == 0.5 and value[m.LENGTH.name] == -1
    assert value[m.UP.name] == value[m.RECORDING.name] == 1 and value[m.AGE.name] < 10


def test_the_histogram_of_errors_is_cumulative_and_has_their_sum(found):
    told, samples = found
    i, j = (told["step_fields"].index(name) for name in ("expected_accepted", "accepted"))
    errors = [row[i] - sum(row[j]) for row in told["steps"]]
    buckets = {float(le): n for (le,), n in by_name(samples, f"{m.ERROR.name}_bucket", "le").items()}
    assert buckets == {bound: sum(error <= bound for error in errors) for bound in buckets}
    assert len(buckets) == len(telemetry.ERROR_BOUNDS) + 1
    (total,), (count,) = (by_name(samples, f"{m.ERROR.name}_{end}").values() for end in ("sum", "count"))
    assert total == pytest.approx(sum(errors)) and count == len(errors)


def test_estimates_and_outcomes_by_position_are_the_recorded_cells(found):
    told, samples = found
    for source, cells in told["calibration"].items():
        for k in range(K):
            mine = [cell for cell in cells if cell[0] == k]
            for metric, column in ((m.ESTIMATED, 2), (m.ESTIMATED_ACCEPTED, 3), (m.ESTIMATED_SUM, 4)):
                counted = by_name(samples, metric.name, "source", "position").get((source, str(k)), 0.0)
                assert counted == pytest.approx(sum(cell[column] for cell in mine))


def test_every_metric_is_exported_with_its_labels_and_nothing_else_is(found, tmp_path, monkeypatch):
    write(tmp_path, monkeypatch).destroy_worker_extension()
    exporter = Exporter(tmp_path)
    scraped(exporter)
    exporter._recent[tmp_path / "engine-0.ring", "online"]._kept[0][1][:] = 0.0  # as if a window had gone by
    samples = scraped(exporter)
    ends = {"histogram": ("_bucket", "_count", "_sum"), "counter": ("",), "gauge": ("",)}
    wanted = {f"{each.name}{end}": each for each in m.METRICS for end in ends[each.kind]}
    assert {name for name, _ in samples} == set(wanted)
    for name, labels in samples:
        extra = {"le"} if name.endswith("_bucket") else set()
        assert {label for label, _ in labels} == set(wanted[name].all_labels) | extra


def test_labels_are_escaped(tmp_path, monkeypatch):
    hostile = 'a"b\\c\nvllm:adaptive_sd_steps_total{engine="9"} 5'
    worker = write(tmp_path, monkeypatch, model=hostile)
    samples = scraped(Exporter(tmp_path))
    worker.destroy_worker_extension()
    assert by_name(samples, m.STEPS.name, "model_name", "engine") == {(hostile, "0"): 2 * INTERVAL + 3}


def test_engines_are_told_apart_and_one_that_cannot_be_read_is_down(tmp_path, monkeypatch):
    workers = [write(tmp_path, monkeypatch, engine=n, steps=5 + n) for n in (0, 1)]
    exporter = Exporter(tmp_path)
    assert by_name(scraped(exporter), m.STEPS.name, "engine") == {("0",): 5, ("1",): 6}
    workers[1].destroy_worker_extension()
    assert by_name(scraped(exporter), m.UP.name, "engine") == {("0",): 1, ("1",): 0}
    (tmp_path / "engine-1.ring").write_bytes(b"something else")
    samples = scraped(exporter)
    assert by_name(samples, m.UP.name, "engine") == {("0",): 1, ("1",): 0}
    assert by_name(samples, m.STEPS.name, "engine") == {("0",): 5}
    assert any("is no telemetry" in sentence for sentence in exporter.said)
    workers[0].destroy_worker_extension()
    for path in tmp_path.iterdir():
        path.unlink()
    assert by_name(scraped(exporter), m.UP.name, "engine") == {("0",): 0, ("1",): 0}


def test_calibration_is_of_the_last_minutes():
    now = [0.0]
    recent = Recent(lambda: now[0])
    assert recent.scores([[0, 64, 1000, 900, 500.0, 1.0, 1.0]]).count == 0
    now[0] += WINDOW / 2  # since then estimates of a half were right
    found = recent.scores([[0, 64, 1200, 1000, 600.0, 1.0, 1.0]])
    assert (found.count, found.ece) == (200, pytest.approx(0.0))
    now[0] += WINDOW + 1  # and then wrong again
    found = recent.scores([[0, 64, 1300, 1100, 650.0, 1.0, 1.0]])
    assert (found.count, found.ece) == (100, pytest.approx(0.5))
    assert recent.scores([[0, 64, 10, 5, 5.0, 1.0, 1.0]]).count == 0  # a worker that begins anew


# ---- the shipped files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_the_dashboard_and_the_rules_name_what_is_exported(text):
    names = {each.name: each for each in m.METRICS} | {f"{m.ERROR.name}_bucket": m.ERROR}
    expression = Expression(text)
    assert expression.selectors
    known = set()
    for selector in expression.selectors:
        metric = names[selector.name]
        known |= {*metric.all_labels}
        assert {label for label, _, _ in selector.matchers} <= {*metric.all_labels}, selector
        assert bool(selector.window) == (metric.kind != "gauge"), f"{selector.name} is a {metric.kind}"
    assert expression.grouping <= known


def test_legends_and_annotations_name_labels_that_there_are():
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            labels = set.union(
                *({*metric_of(each).all_labels} for each in Expression(target["expr"]).selectors)
            )
            assert {*re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])} <= labels
    for rule in RULES:
        labels = {
            label for each in Expression(rule["expr"]).selectors for label in metric_of(each).all_labels
        }
        used = re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))
        assert used and {*used} <= labels and rule["annotations"]["description"]
    variables = [each["query"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
    assert variables == [
        f"label_values({m.INFO.name}, model_name)",
        f'label_values({m.INFO.name}{{model_name=~"$model"}}, engine)',
    ]


def metric_of(selector):
    return next(each for each in m.METRICS if selector.name.removesuffix("_bucket") == each.name)


def line(*pieces):
    """Values one a minute: pieces of (minutes, how much a minute); the first value is 0."""
    values = [0.0]
    for minutes, slope in pieces:
        values += [values[-1] + slope * (n + 1) for n in range(minutes)]
    return values


def level(*pieces):
    """Values one a minute: pieces of (minutes, value)."""
    return [value for minutes, value in pieces for _ in range(minutes)]


HOURS = 7 * 60


def series(**changed):
    """All series that rules read, of one healthy engine; changed: what one of them is instead."""
    healthy = {
        "drafting_steps": line((HOURS, 1000)), "empty_steps": line((HOURS, 10)),
        "predicted_steps": line((HOURS, 1000)), "predicted_step_seconds": line((HOURS, 20.0)),
        "measured_step_seconds": line((HOURS, 22.0)), "accepted": line((HOURS, 4000)), "admitted": line((HOURS, 7000)),
        "expected_calibration_error": level((HOURS + 1, 0.02)), "calibration_noise_floor": level((HOURS + 1, 0.01)),
        "telemetry_up": level((HOURS + 1, 1)), "recording": level((HOURS + 1, 1)),
    } | changed  # fmt: skip
    found = {}
    for short, values in healthy.items():
        names = [each for each in m.METRICS if each.name in (
            m.PREFIX + short, f"{m.PREFIX}{short}_total", f"{m.PREFIX}{short}_tokens_per_pos_total")]  # fmt: skip
        [metric] = names
        for more in [{"position": k} for k in "01"] if "position" in metric.labels else [{}]:
            labels = {"model_name": "a/b", "engine": "0"} | TARGET | more
            found[
                metric.name,
                frozenset((labels | ({"source": "online"} if "source" in metric.labels else {})).items()),
            ] = values
    return found


CALM_PIECE = HOURS - 30  # minutes until anything changes
CASES = {
    "AdaptiveVerificationStarved": {"empty_steps": line((CALM_PIECE, 10), (30, 980))},
    "AdaptiveVerificationMiscalibrated": {
        "expected_calibration_error": level((CALM_PIECE, 0.02), (31, 0.15)),
    },
    "AdaptiveVerificationCostDrift": {"measured_step_seconds": line((CALM_PIECE, 22.0), (30, 30.0))},
    "AdaptiveVerificationCollapsed": {"accepted": line((CALM_PIECE, 4000), (30, 700))},
    "AdaptiveVerificationNotRecorded": {"telemetry_up": level((CALM_PIECE, 1), (31, 0))},
}
QUIET = {  # what resembles a fault and is none
    "AdaptiveVerificationStarved": {"empty_steps": line((HOURS, 0)), "drafting_steps": line((HOURS, 0))},
    "AdaptiveVerificationMiscalibrated": {
        "expected_calibration_error": level((HOURS + 1, 0.15)), "calibration_noise_floor": level((HOURS + 1, 0.12)),
    },
    "AdaptiveVerificationCostDrift": {
        "measured_step_seconds": line((HOURS, 0.09)), "predicted_step_seconds": line((HOURS, 0.02)),
        "predicted_steps": line((HOURS, 1)),
    },
    "AdaptiveVerificationCollapsed": {"accepted": line((HOURS, 0)), "admitted": line((HOURS, 0))},
    "AdaptiveVerificationNotRecorded": {},
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_fires_on_its_fault_alone(rule):
    expression = Expression(rule["expr"])
    for name, fault in CASES.items():
        healthy, wrong = (expression.at(minute, series(**fault)) for minute in (CALM_PIECE - 1, HOURS - 1))
        assert not healthy
        if name == rule["alert"]:
            [labels] = wrong
            assert dict(labels) | {"model_name": "a/b", "engine": "0"} | TARGET == dict(labels)
        else:
            assert not wrong, name
    assert not expression.at(HOURS - 1, series(**QUIET[rule["alert"]]))


@pytest.mark.skipif(PROMTOOL is None, reason="promtool, of Prometheus, is not here")
def test_prometheus_itself_says_the_same(tmp_path):
    cases = []
    for name, fault in CASES.items():
        told = [
            {
                "series": f"{metric}{{{', '.join(f'{key}={json.dumps(value)}' for key, value in labels)}}}",
                "values": " ".join(f"{value:g}" for value in values),
            }
            for (metric, labels), values in series(**fault).items()
        ]
        alerts = [
            {"eval_time": f"{minute}m", "alertname": rule["alert"], "exp_alerts": expected}
            for rule in RULES
            for minute, expected in (
                (CALM_PIECE - 1, []),
                (HOURS - 1, ["fires"] if rule["alert"] == name else []),
            )
        ]
        cases.append({"interval": "1m", "input_series": told, "alert_rule_test": alerts})
    rules = [{name: part for name, part in rule.items() if name != "annotations"} for rule in RULES]
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))
    for case in cases:
        for alert in case["alert_rule_test"]:
            if alert["exp_alerts"]:
                [rule] = [each for each in RULES if each["alert"] == alert["alertname"]]
                source = {"source": "online"} if "source" in rule["expr"] else {}
                alert["exp_alerts"] = [
                    {"exp_labels": TARGET | source | rule["labels"] | {"model_name": "a/b", "engine": "0"}}
                ]
    text = yaml.safe_dump({"rule_files": ["alerts.yaml"], "evaluation_interval": "1m", "tests": cases})
    (tmp_path / "tests.yaml").write_text(text)
    done = subprocess.run(
        [PROMTOOL, "test", "rules", "tests.yaml"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    checked = subprocess.run([PROMTOOL, "check", "rules", str(FOLDER / "alerts.yaml")], capture_output=True)
    assert checked.returncode == 0, checked.stdout


def test_the_documents_have_every_metric_and_alert():
    page = (PROJECT / "docs" / "sidecar.md").read_text(encoding="utf-8")
    for metric in m.METRICS:
        proposed = f" Proposed in {metric.proposed}." if metric.proposed else ""
        labels = ", ".join(metric.labels) or "–"
        assert f"| `{metric.name}` | {metric.kind} | {labels} | {metric.says}{proposed} |" in page
    assert page.count("| `vllm:adaptive_sd_") == len(m.METRICS)
    assert [rule["alert"] for rule in RULES] == re.findall(r"^\| (Adaptive\w+) \|", page, re.M)


# ---- the command -----------------------------------------------------------------------------------------------


def test_the_command_serves_what_it_prints_once(tmp_path, monkeypatch):
    worker = write(tmp_path, monkeypatch)
    once = CliRunner().invoke(app, ["sidecar", "--telemetry", str(tmp_path), "--once"])
    assert once.exit_code == 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "avlab", "sidecar", "--telemetry", str(tmp_path), "--port", str(port)],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert f"http://127.0.0.1:{port}/metrics" in process.stderr.readline()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain")
            text = answer.read().decode()
        plain = [row for row in text.splitlines() if "age_seconds" not in row]
        assert plain == [row for row in once.stdout.splitlines() if "age_seconds" not in row]
        taken = subprocess.run(
            [sys.executable, "-m", "avlab", "sidecar", "--telemetry", str(tmp_path), "--port", str(port)],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert taken.returncode == 2 and "choose another --port" in taken.stderr
    finally:
        process.terminate()
        assert process.wait(20) == 0
        worker.destroy_worker_extension()


def test_the_command_says_what_is_missing(tmp_path):
    def told(*words):
        result = subprocess.run(
            [sys.executable, "-m", "avlab", "sidecar", *words], capture_output=True, text=True, timeout=60
        )
        assert result.returncode and len(result.stderr.strip().splitlines()) == 1, result.stderr
        return result.stderr

    assert "--telemetry is missing" in told()
    assert "holds no telemetry" in told("--telemetry", str(tmp_path), "--once")
    (tmp_path / "a.ring").write_bytes(b"x" * 5000)
    assert "is no telemetry of avlab" in told("--telemetry", str(tmp_path), "--once")


def test_the_files_for_grafana_and_prometheus_are_written(tmp_path):
    result = CliRunner().invoke(app, ["sidecar", "--write-dashboard", str(tmp_path / "new")])
    assert result.exit_code == 0
    for name in FILES:
        assert (tmp_path / "new" / name).read_bytes() == (FOLDER / name).read_bytes()
        assert str(Path("new") / name) in result.stdout.replace("\n", "")
