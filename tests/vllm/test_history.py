"""The past from a Prometheus server as a run: differenced like a watch, restarts and gaps left out."""

import json
import time
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest
from attach_desk import Desk
from typer.testing import CliRunner
from vllm_stand_in import metrics_text, serving

from avlab.commands.attach import moment_of
from avlab.commands.cli import app
from avlab.config import ConfigError
from avlab.vllm.attach_config import AttachConfig
from avlab.vllm.history import WINDOW, History
from avlab.vllm.metrics import READ, samples
from avlab.vllm.watched import AttachError
from avlab.wire import frames as fr

BEGIN, STEP = 1_700_000_000.0, 15.0


class Answers(dict):
    """A Prometheus server: `text(seconds since BEGIN)` is what was scraped then, "" for nothing."""

    def __init__(self, text):
        super().__init__()
        self.text, self.asked = text, []

    def get(self, path, default=None):
        parts = urlsplit(path)
        if parts.path != "/api/v1/query_range":
            return default
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.asked.append(query)
        start, end, step = (float(query[name]) for name in ("start", "end", "step"))
        series = {}
        for i in range(round((end - start) / step) + 1):
            at = start + i * step
            for name, labels, value in samples(self.text(at - BEGIN), READ):
                series.setdefault((name, tuple(sorted(labels.items()))), []).append([at, f"{value}"])
        result = [
            {"metric": {"__name__": name, **dict(labels)}, "values": values}
            for (name, labels), values in series.items()
        ]
        return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


def read_past(text, seconds=150, **settings):
    with serving() as server:
        server.answers = Answers(text)
        config = AttachConfig.make(
            url=server.url, history=True, since=BEGIN, until=BEGIN + seconds, step=STEP, **settings
        )
        history = History(config)
        desk = Desk(config)
        desk.clock = lambda: history.now
        desk.result = history.run(desk)
        desk.asked_of = server.answers.asked
    return desk


def one(seconds, instance="a:8000", base=0.0, rate=10):
    text = metrics_text(base + rate * seconds, 4 * seconds, (3 * seconds, seconds), K=2)
    return text.replace('engine="0"', f'engine="0",instance="{instance}"')


def test_a_span_is_differenced_step_by_step():
    desk = read_past(lambda t: one(t) + one(t, "b:8000", rate=20), verification="fixed")
    assert desk.result == "done"
    [hello] = desk.of(fr.Hello)
    assert hello.wall == BEGIN and hello.K == 2 and "Prometheus" in hello.machine["server"]
    assert hello.machine["engines"] == ["0 at a:8000", "0 at b:8000"]
    steps = desk.steps()
    assert len(steps) == 10 and [step.time for step in steps[:2]] == [15.0, 30.0]
    assert {(step.tokens, step.accepted, step.admitted) for step in steps} == {(450, (90, 30), (120, 120))}
    assert {sample.engine: sample.tokens for sample in desk.of(fr.EngineSample)} == {
        "0 at a:8000": 150, "0 at b:8000": 300,
    }  # fmt: skip


def test_a_reset_of_one_engine_is_left_out_for_it_alone():
    desk = read_past(lambda t: one(t) + one(t if t < 60 else t - 60, "b:8000", rate=20))
    assert [step.tokens for step in desk.steps()] == [450] * 3 + [150] + [450] * 6
    assert desk.said("warning") == ["Engine 0 at b:8000 restarted: the interval is left out for it."]
    assert [block.block for block in desk.of(fr.Block)] == [0, 1]


def test_an_engine_that_was_not_scraped_and_a_gap_are_no_traffic():
    desk = read_past(lambda t: "" if t == 45 else one(t) + (one(t, "b:8000") if t < 90 else ""))
    assert [step.time for step in desk.steps()] == [15, 30, 75, 90, 105, 120, 135, 150]
    assert [step.tokens for step in desk.steps()] == [300] * 3 + [150] * 5
    assert desk.said("warning") == ["Engine 0 at b:8000 left."]


def test_a_long_span_is_asked_in_windows():
    desk = read_past(one, seconds=STEP * (WINDOW + 20), selector='job="vllm"')
    assert len(desk.asked_of) == 2 and len(desk.steps()) == WINDOW + 20
    assert desk.asked_of[0]["query"].endswith(',job="vllm"}')
    assert sum(step.tokens for step in desk.steps()) == 10 * STEP * (WINDOW + 20)


@pytest.mark.parametrize(
    "answer", ["{}", '{"data": {"result": 3}}', '{"data": {"result": [{"metric": {}, "values": []}]}}']
)
def test_another_server_is_one_sentence(answer):
    with serving() as server:
        server.answers = SimpleNamespace(get=lambda *_: answer)
        config = AttachConfig.make(url=server.url, history=True, since=BEGIN, until=BEGIN + 60)
        with pytest.raises(AttachError, match="as Prometheus does"):
            History(config).run(Desk(config))


def test_a_span_without_vllm_is_one_sentence():
    with pytest.raises(AttachError, match="no counters of vLLM in that time"):
        read_past(lambda t: "up 1\n")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"since": BEGIN}, "a beginning and an end"),
        ({"since": BEGIN, "until": BEGIN - 5}, "a beginning and an end"),
        ({"since": BEGIN, "until": BEGIN + 1e8}, "longer --step"),
        ({"since": BEGIN, "until": BEGIN + 60, "selector": "} or {"}, "holds a brace"),
        ({"since": BEGIN, "until": BEGIN + 60, "others": ["http://i"]}, "of one Prometheus server"),
    ],
)
def test_a_wrong_span_is_one_sentence(values, words):
    with pytest.raises(ConfigError, match=words):
        AttachConfig.make({"url": "http://h", "history": True} | values)


def test_times_as_people_write_them():
    assert moment_of("1700000000") == BEGIN and moment_of("2023-11-14T22:13:20+00:00") == BEGIN
    assert moment_of("2h") == pytest.approx(time.time() - 7200, abs=5)
    with pytest.raises(ConfigError, match="is no time"):
        moment_of("yesterday")


def test_the_command_records_a_run(tmp_path):
    path = str(tmp_path / "lab.duckdb")
    with serving() as server:
        server.answers = Answers(one)
        words = ["attach", "--prometheus", server.url, "--from", f"{BEGIN:.0f}", "--to", f"{BEGIN + 300:.0f}"]
        result = CliRunner().invoke(app, [*words, "--database", path, "--json"])
        assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["tokens"] == 3000 and told["tokens_per_s"] == pytest.approx(10.0) and told["started"] == BEGIN
    assert "needs --from" in str(CliRunner().invoke(app, ["attach", "--prometheus", "http://h"]).exception)
    assert "Give the address" in str(CliRunner().invoke(app, ["attach"]).exception)
