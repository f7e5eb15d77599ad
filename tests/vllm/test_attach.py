"""A server that somebody else started, watched by a real worker and lab. It is a small one that answers as vLLM's does.

The texts of /metrics are written after the documentation: see `vllm_stand_in.py`.
"""

import json
import time
from itertools import pairwise

import pytest
from attach_desk import Desk, watch
from typer.testing import CliRunner
from vllm_records import ABOUT, record
from vllm_stand_in import growing, metrics_text, serving

from avlab.commands.cli import app
from avlab.config import ConfigError
from avlab.kinds.registry import make_config
from avlab.lab.lab import Lab
from avlab.store import queries
from avlab.store.database import connect_reader
from avlab.vllm.attach import AttachError, Watch
from avlab.vllm.attach_config import AttachConfig
from avlab.vllm.drained import NO_LENGTH, NO_STEPS
from avlab.vllm.find_extension import FIRST_ONLY, NAME, NOT_IN_DEVELOPMENT_MODE, NOT_LOADED
from avlab.vllm.intervals import step_of
from avlab.vllm.metrics import Counters, MetricsError, read
from avlab.vllm.server import ServerError
from avlab.vllm.unknown import cannot_know
from avlab.wire import commands as cm
from avlab.wire import frames as fr

KEY = "a-key-that-must-not-appear"


def until(condition, seconds=90.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def test_intervals_are_differences_of_what_two_engines_count():
    with serving() as server:

        def serve(seconds):
            first = metrics_text(
                1000 + 100 * seconds, 300 + 40 * seconds, (240 + 30 * seconds, 120 + 10 * seconds), K=2
            )
            second = metrics_text(
                500 + 10 * seconds, 5 * seconds, (4 * seconds, seconds), K=2, engine="1", running=3
            )
            server.answers["/metrics"] = first + second

        serve(0)
        desk = watch(server, serve, duration=5, interval=1, verification="adaptive")
    assert desk.result == "done"
    [hello] = desk.of(fr.Hello)
    assert (hello.kind, hello.target, hello.K, hello.machine["engines"]) == (
        "attach",
        "some/model",
        2,
        ["0", "1"],
    )
    assert hello.machine["versions"]["vllm"] == "0.33.0" and hello.machine["adaptive"] is True
    steps = desk.steps()
    assert len(steps) == 5 and [step.step for step in steps] == [0, 1, 2, 3, 4]
    for step in steps:
        assert (step.tokens, step.accepted, step.scheduled, step.running) == (110, (34, 11), (45, 45), 4)
        assert step.admitted is step.labelled is step.budget is None  # trimming is not told
    by_engine = {(sample.step, sample.engine): sample for sample in desk.of(fr.EngineSample)}
    assert len(by_engine) == 10
    assert by_engine[2, "0"].accepted_by_position == [30, 10] and by_engine[2, "1"].draft_tokens == 10
    assert by_engine[2, "0"].seconds == pytest.approx(1.0)


def test_what_is_admitted_and_labelled_is_told_only_where_verification_is_fixed():
    counters = Counters(drafts=40, draft_tokens=80, accepted=40, accepted_by_position=(30, 10))
    fixed = step_of([counters], 0, 1.0, 0, adaptive=False)
    assert (fixed.admitted, fixed.labelled, fixed.budget) == ((40, 40), (40, 30), 80)
    for adaptive in (True, None):
        unsure = step_of([counters], 0, 1.0, 0, adaptive)
        assert unsure.scheduled == (40, 40) and unsure.admitted is unsure.labelled is None
    short = Counters(drafts=40, draft_tokens=61, accepted=40, accepted_by_position=(30, 10))
    assert step_of([short], 0, 1.0, 0, adaptive=False).scheduled is None  # drafts of several lengths


@pytest.mark.parametrize(
    ("adaptive", "speculates", "told", "words"),
    [
        (True, True, True, "trimming looks like rejection"),
        (None, True, False, "Whether verification is adaptive is not known"),
        (False, True, True, "what was scheduled was verified"),
        (None, False, True, "it does not speculate"),
    ],
)
def test_what_cannot_be_known_is_said(adaptive, speculates, told, words):
    said = cannot_know(adaptive, speculates, told)
    assert words in said[0]
    assert ("configuration is not told" in said[-1]) is not told


def test_why_the_extension_tells_nothing_stands_with_what_cannot_be_known():
    assert cannot_know(False, True, True, [NOT_LOADED])[-1] == NOT_LOADED
    assert NOT_IN_DEVELOPMENT_MODE in cannot_know(None, True, False, [NOT_IN_DEVELOPMENT_MODE])
    assert NOT_IN_DEVELOPMENT_MODE not in cannot_know(None, True, False)


def test_the_server_says_whether_verification_is_adaptive_in_development_mode():
    spec = {"method": "eagle3", "model": "some/drafter", "enable_adaptive_verification": True}
    with serving() as server:
        server.answers["/metrics"] = metrics_text(1, 1, (1,), K=2)
        server.answers["/server_info?config_format=json"] = json.dumps(
            {"vllm_config": {"speculative_config": spec}}
        )
        desk = watch(server, None, duration=1)
    [hello] = desk.of(fr.Hello)
    assert hello.machine["adaptive"] is True and hello.drafter == "some/drafter"
    assert "trimming looks like rejection" in desk.said("info")[0]


def test_a_restart_begins_a_new_block_and_its_interval_is_left_out():
    with serving() as server:

        def serve(seconds):
            tokens = 1000 + 10 * seconds if seconds < 3 else 10 * seconds
            server.answers["/metrics"] = metrics_text(tokens)

        serve(0)
        desk = watch(server, serve, duration=5)
    assert [step.tokens for step in desk.steps()] == [10, 10, 10, 10]
    assert [block.block for block in desk.of(fr.Block)] == [0, 1]
    assert [step.block for step in desk.steps()] == [0, 0, 1, 1]
    assert "The server restarted: it counts from" in desk.said("warning")[0]


def test_a_silent_server_is_waited_for_and_what_it_did_meanwhile_counts():
    with serving() as server:

        def serve(seconds):
            server.answers["/metrics"] = (
                (503, "busy") if 2 <= seconds < 5 else metrics_text(1000 + 10 * seconds)
            )

        serve(0)
        desk = watch(server, serve, duration=7)
    steps = desk.steps()
    assert [step.tokens for step in steps] == [10, 40, 10, 10]
    assert [round(b.time - a.time) for a, b in pairwise(steps)] == [4, 1, 1]
    assert "answered 503" in desk.said("warning")[0] and "answers again" in desk.said("info")[-1]


def test_a_server_that_stays_silent_ends_the_run_with_a_sentence():
    with serving() as server:
        server.answers["/metrics"] = metrics_text(1)

        def stop(seconds):
            server.answers["/metrics"] = (500, "broken")

        with pytest.raises(AttachError, match=r"answered 500\. It has been silent for 3 s"):
            watch(server, stop, patience=3)


def test_a_server_that_starts_again_without_counters_is_waited_for():
    with serving() as server:

        def serve(seconds):
            server.answers["/metrics"] = (
                "up 1\n" if seconds == 2 else metrics_text(1000 if seconds < 2 else 10)
            )

        serve(0)
        desk = watch(server, serve, duration=4)
    assert "no counters of vLLM" in desk.said("warning")[0] and "restarted" in desk.said("warning")[1]


def test_a_new_engine_counts_from_its_second_reading():
    with serving() as server:

        def serve(seconds):
            more = metrics_text(7000 + seconds, engine="1") if seconds >= 2 else ""
            server.answers["/metrics"] = metrics_text(10 * seconds) + more

        serve(0)
        desk = watch(server, serve, duration=4)
    assert [step.tokens for step in desk.steps()] == [10, 10, 11, 11]


def test_an_engine_that_leaves_or_comes_is_told():
    with serving() as server:

        def serve(seconds):
            more = metrics_text(20 * seconds, engine="1") if not 2 <= seconds < 4 else ""
            server.answers["/metrics"] = metrics_text(10 * seconds) + more

        serve(0)
        desk = watch(server, serve, duration=6)
    assert [step.tokens for step in desk.steps()] == [30, 10, 10, 10, 30, 30]
    assert desk.said("warning") == ["Engine 1 left /metrics: rates are of 1 from here on."]
    assert "Engine 1 came to /metrics." in desk.said("info")


def test_replicas_are_told_apart_and_no_position_is_overwritten():
    text = ""
    for pod, usage in (("a", 0.25), ("b", 0.5)):
        one = metrics_text(100, drafts=30, by_position=(24, 12, 4), K=3).replace(
            'engine="0"', f'engine="0",pod="{pod}"'
        )
        text += one.replace("} 0.25", f"}} {usage}")
    reading = read(text)
    assert sorted(engine for _, engine in reading.engines) == ["0 at a", "0 at b"]
    assert reading.started == 1000.0
    assert (
        read(text + 'process_start_time_seconds{pod="b"} 2000.0\n').started is None
    )  # of which, nobody knows
    assert [each.cache_usage for each in reading.engines.values()] == [0.25, 0.5]
    assert {each.accepted_by_position for each in reading.engines.values()} == {(24.0, 12.0, 4.0)}


def test_metrics_of_ray_serve_are_read():
    text = metrics_text(100, drafts=30, by_position=(24, 12, 4), K=3)
    ray = text.replace("vllm:", "ray_vllm_").replace('engine="0"', 'engine="0",ReplicaId="r1"')
    [(key, counters)] = read(ray).engines.items()
    [plain] = read(text).engines.values()
    assert key == ("some/model", "0 at r1") and counters == plain


def test_counts_by_position_that_do_not_add_up_are_told():
    with serving() as server:

        def serve(seconds):
            told = metrics_text(
                1000 + 100 * seconds, drafts=30 * seconds, by_position=(24 * seconds, 12 * seconds), K=3
            )
            wrong = f'accepted_tokens_total{{engine="0",model_name="some/model"}} {float(36 * seconds)}'
            assert wrong in told
            server.answers["/metrics"] = told.replace(wrong, wrong[:-2] + "9.0")

        serve(0)
        desk = watch(server, serve, duration=3)
    assert [text for text in desk.said("warning") if "do not trust acceptance by position" in text]


def test_a_server_that_is_not_up_yet_is_waited_for():
    with serving() as server:
        server.answers["/metrics"] = (503, "loading")

        def rise(seconds):
            if seconds >= 3:
                server.answers["/metrics"] = metrics_text(10 * seconds)

        desk = watch(server, rise, duration=6, wait=10)
        assert desk.result == "done" and [step.tokens for step in desk.steps()]
        server.answers["/metrics"] = (503, "loading")
        with pytest.raises(ServerError):
            watch(server, lambda seconds: None, wait=2)


def test_limits_of_tokens_and_requests_and_a_stop_end_it():
    with serving() as server:

        def serve(seconds):
            server.answers["/metrics"] = metrics_text(100 * seconds)

        serve(0)
        assert len(watch(server, serve, tokens=250).steps()) == 3
        assert len(watch(server, serve, requests=25).steps()) == 3

        desk = Desk(AttachConfig.make(url=server.url))
        desk.after = lambda waits: desk.asked.append(cm.Stop() if waits == 3 else cm.SetPolicy("fixed:2"))
        assert Watch(desk).run() == "stopped"
        assert "SetPolicy was not done: the server is somebody else's." in desk.said("warning")


def test_a_pause_is_not_counted():
    with serving() as server:
        desk = Desk(AttachConfig.make(url=server.url, duration=8))

        def serve(seconds):
            server.answers["/metrics"] = metrics_text(10 * seconds)
            desk.asked += {2: [cm.Pause()], 5: [cm.Resume()]}.get(seconds, [])

        desk.after = serve
        serve(0)
        assert Watch(desk).run() == "done"
    assert [step.tokens for step in desk.steps()] == [10, 10, 10, 10]
    assert [event.kind for event in desk.of(fr.Event) if event.kind in ("paused", "serving")] == [
        "paused",
        "serving",
    ]


@pytest.mark.parametrize(
    ("texts", "settings", "sentence"),
    [
        (["a/b", "c/d"], {}, r"serves 2 models, a/b, c/d: choose one with --model"),
        (["a/b"], {"model": "c/d"}, r"does not serve 'c/d'; it serves a/b"),
        (["a/b"], {"engine": "7"}, r"has no engine 7 of a/b; it has 0"),
    ],
)
def test_a_model_or_an_engine_that_is_not_there(texts, settings, sentence):
    with serving() as server:
        server.answers["/metrics"] = "".join(metrics_text(1, model=model) for model in texts)
        with pytest.raises(AttachError, match=sentence):
            watch(server, None, **settings)


def test_one_of_several_models_and_engines_is_watched_alone():
    with serving() as server:

        def serve(seconds):
            texts = [("a/b", "0", 1), ("a/b", "1", 2), ("c/d", "0", 4)]
            server.answers["/metrics"] = "".join(
                metrics_text(10 * each * seconds, model=model, engine=engine) for model, engine, each in texts
            )

        serve(0)
        assert watch(server, serve, duration=2, model="a/b").steps()[0].tokens == 30
        serve(0)
        assert watch(server, serve, duration=2, model="a/b", engine="1").steps()[0].tokens == 20


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "No server is named: give its address, http://HOST:PORT, or --telemetry FOLDER"),
        ({"url": "localhost:8000"}, "is no server's address"),
        ({"url": "http://h", "interval": 0}, "interval is 0; it must be at least 0.2"),
        (
            {"url": "http://h", "key_variable": KEY},
            "it must be environment variable that holds the server's key",
        ),
        ({"url": "http://h", "verification": "maybe"}, "it must be 'ask', 'adaptive' or 'fixed'"),
        ({"url": "http://h", "K": 3}, "there is no setting 'K'; the settings are url, model"),
    ],
)
def test_a_wrong_setting_is_one_sentence(values, sentence):
    with pytest.raises(ConfigError) as caught:
        AttachConfig.make(values)
    assert sentence in str(caught.value)


def test_kinds_of_worker_are_known_by_name():
    assert make_config({"url": "http://h"}, "attach").url == "http://h"
    with pytest.raises(
        ConfigError, match="no worker of the kind 'sglang'; the kinds are attach, reference, replay, vllm"
    ):
        make_config({}, "sglang")


# ---- with a lab and a worker -------------------------------------------------------------------------------------


def test_a_run_is_recorded_and_a_key_is_nowhere_in_it(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_KEY", KEY)
    path = tmp_path / "lab.duckdb"
    with serving() as server, growing(server):
        server.key = KEY
        config = {
            "url": server.url,
            "interval": 0.2,
            "key_variable": "SOME_KEY",
            "verification": "fixed",
            "tokens": 900,
        }
        with Lab(path) as lab:
            run = lab.run(config, kind="attach")
            until(lambda: not lab.supervisor.status().alive)
            status, tally = lab.supervisor.status(), lab.tally.snapshot()
            log = lab.supervisor.log_tail()
            told = lab.show(run)
    assert (status.outcome, status.kind, status.error) == ("done", "attach", "")
    assert tally["tokens"] >= 900 and tally["conditional_acceptance"] == [0.75, pytest.approx(1 / 3)]
    assert told["kind"] == "attach" and told["state"] == "finished" and told["K"] == 2
    assert told["tokens"] == tally["tokens"]
    assert told["watched"]["accepted_per_scheduled"] == 0.5 and told["watched"]["positions"] == [0.75, 0.25]
    assert [row["conditional_acceptance"] for row in told["positions"]] == [0.75, pytest.approx(1 / 3)]
    assert any("travels unencrypted" in event["text"] for event in told["events"])
    assert KEY not in path.read_bytes().decode("latin-1")
    assert KEY not in json.dumps(told) and not any(KEY in line for line in log)
    con = connect_reader(path)
    samples = queries.engine_samples_since(con, run).to_pylist()
    assert sum(sample["tokens"] for sample in samples) == told["tokens"]
    assert samples[0]["accepted_by_position"] == [30, 10] and samples[0]["model"] == "some/model"
    con.close()


def test_numbers_that_are_not_told_stay_empty_in_the_summary(tmp_path):
    with serving() as server, growing(server), Lab(tmp_path / "lab.duckdb") as lab:
        run = lab.run({"url": server.url, "interval": 0.2, "tokens": 300}, kind="attach")
        until(lambda: not lab.supervisor.status().alive)
        told = lab.show(run)
    assert told["adaptive"] is None and told["told"] is False
    for row in told["positions"]:
        assert (
            row["admitted"] is row["labelled"] is row["conditional_acceptance"] is None
            and row["scheduled"] > 0
        )
    assert all(value is None for value in told["ledger_ms"].values())


@pytest.mark.parametrize("answer", [None, "up 1\n", (401, "")])
def test_a_server_that_cannot_be_watched_is_one_sentence(tmp_path, answer):
    with serving() as server, Lab(tmp_path / "lab.duckdb") as lab:
        if answer is not None:
            server.answers["/metrics"] = answer
        lab.run({"url": server.url}, kind="attach")
        until(lambda: not lab.supervisor.status().alive)
        status = lab.supervisor.status()
        words = {None: "has no /metrics", "up 1\n": "has no counters of vLLM", (401, ""): "wants a key"}[
            answer
        ]
        assert status.outcome == "failed" and words in status.error and "Traceback" not in status.error
        assert lab.runs() == []


def test_a_server_that_goes_away_in_mid_run_leaves_what_was_recorded(tmp_path):
    with Lab(tmp_path / "lab.duckdb") as lab:
        with serving() as server, growing(server):
            run = lab.run({"url": server.url, "interval": 0.2, "patience": 1.0}, kind="attach")
            until(lambda: lab.tally.snapshot()["steps"] >= 2)
        until(lambda: not lab.supervisor.status().alive)
        status, told = lab.supervisor.status(), lab.show(run)
    assert (
        status.outcome == "failed" and "Nothing listens" in status.error and "silent for 1 s" in status.error
    )
    assert told["state"] == "failed" and told["tokens"] >= 200


def test_the_command_watches_and_shows(tmp_path):
    path = str(tmp_path / "lab.duckdb")
    with serving() as server, growing(server):
        words = ["attach", server.url + "/v1", "--interval", "0.2", "--tokens", "500", "--database", path]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
        assert "accepted by position  0.750 0.250" in result.stdout
        assert "Whether verification is adaptive is not known" in result.stdout
        shown = CliRunner().invoke(app, ["show", "last", "--database", path])
        assert "accepted by position  0.750 0.250" in shown.stdout
        result = CliRunner().invoke(app, [*words, "--json"])
        assert json.loads(result.stdout)["watched"]["tokens_per_draft"] == 2.0
    result = CliRunner().invoke(app, ["attach", "http://127.0.0.1:9", "--database", path])
    assert result.exit_code == 1 and "Nothing listens" in result.output


def test_what_the_watcher_raises_is_ours():
    from avlab.errors import is_ours

    for error in (AttachError("a"), ServerError("b"), MetricsError("c")):
        assert is_ours(error)


def test_conditional_acceptance_is_told_only_where_every_interval_tells_it(tmp_path):
    """Drafts of several lengths: some intervals happen to hold full ones only. Their parts must not be mixed."""
    path = tmp_path / "lab.duckdb"
    with serving() as server, Lab(path) as lab:
        run = lab.run({"url": server.url, "interval": 0.2, "verification": "fixed"}, kind="attach")
        server.answers["/metrics"] = metrics_text(100, 40, (30, 10), K=2)
        until(lambda: lab.tally.snapshot()["steps"] >= 1)
        text = metrics_text(200, 80, (60, 20), K=2)
        server.answers["/metrics"] = text.replace(" 160.0", " 141.0")
        until(lambda: lab.tally.snapshot()["tokens"] >= 100)
        tally = lab.tally.snapshot()
        lab.stop()
        told = lab.show(run)
    assert tally["conditional_acceptance"] == []
    for row in told["positions"]:
        assert row["scheduled"] is row["labelled"] is row["conditional_acceptance"] is None
    assert told["watched"]["accepted_per_scheduled"] == pytest.approx(40 / 61)


INFO = "/server_info?config_format=json"


class Extension:
    """A server's worker extension, in development mode: answers /collective_rpc. steps: made so far. verify: the length
    that each of them held, where one was. ahead: of our clock. old: knows no -2. failing: how often it still fails.
    """

    def __init__(self, server, name=NAME):
        self.steps, self.verify, self.ahead, self.old, self.dropped = 4, {}, 0.0, False, 0
        self.asked, self.failing, self.slow = [], 0, 0.0
        self.about = ABOUT | {"adaptive": True}
        self.server = server
        server.answers["/collective_rpc"] = self
        configuration = {"parallel_config": {"worker_extension_cls": name}}
        server.answers[INFO] = json.dumps({"vllm_config": configuration, "vllm_env": {}})

    def __call__(self, body):
        order = json.loads(body)
        self.asked.append((order["method"], *order["args"]))
        if self.failing and order["method"] == "avlab_drain":
            self.failing -= 1
            return 500, "Worker failed"
        if order["method"] == "avlab_begin":
            return self.told(self.about | {"clock": time.monotonic() + self.ahead})
        time.sleep(self.slow)
        after = order["args"][0]
        numbers = range(max(0, after + 1), 0 if after == -2 and not self.old else self.steps)
        found = record(numbers, refits=(1,), counts=8, next=self.steps, dropped=self.dropped)
        for row in found["steps"]:
            row[found["step_fields"].index("verify")] = self.verify.get(row[0], NO_LENGTH)
            row[found["step_fields"].index("time")] += self.ahead
        return self.told(found)

    def told(self, answer):
        return json.dumps({"results": [answer]})


def inside(server, after=None, begin=None, **settings):
    """Watch a stand-in with an extension that makes two steps a second; after: called with the seconds and it."""
    extension = Extension(server)
    if begin:
        begin(extension)
    desk = Desk(AttachConfig.make(url=server.url, **settings))

    def more(waits):
        extension.steps += 2
        server.answers["/metrics"] = metrics_text(10 + 6 * waits, drafts=waits, by_position=(3, 1, 0), K=3)
        if after:
            after(waits, extension)

    server.answers["/metrics"] = metrics_text(10, by_position=(3, 1, 0), K=3)
    desk.after, desk.extension = more, extension
    desk.watch = Watch(desk)
    desk.result = desk.watch.run()
    return desk


def test_with_the_extension_everything_is_told():
    with serving() as server:
        desk = inside(server, duration=3)
    (hello,) = desk.of(fr.Hello)
    assert hello.K == 3 and hello.machine["extension"] and hello.machine["adaptive"]
    assert hello.machine["unread"] == []
    steps = desk.steps()
    assert [step.step for step in steps] == list(range(6))
    assert steps[0].admitted == (2, 1, 0) and steps[0].budget == 3 and steps[0].waiting == 2
    assert desk.of(fr.Refit) and desk.of(fr.EngineSample)
    assert not any("cannot be known" in event.text for event in desk.of(fr.Event))


@pytest.mark.parametrize("old", [False, True])
def test_the_first_question_asks_for_no_steps_and_an_older_extension_may_answer_with_some(old):
    with serving() as server:
        desk = inside(server, begin=lambda extension: setattr(extension, "old", old), duration=2)
    assert desk.extension.asked[:3] == [("avlab_begin",), ("avlab_drain", -2, -1), ("avlab_drain", 3, 1)]
    assert [step.step for step in desk.steps()] == [0, 1, 2, 3]


def test_the_other_clock_is_compared_when_it_is_read_and_not_when_it_is_used():
    """The first record comes late; steps must not be late by that."""

    def begin(extension):
        extension.ahead, extension.slow = 1000.0, 2.0

    def quick(waits, extension):
        extension.slow = 0.0

    with serving() as server:
        desk = inside(server, quick, begin, duration=1)
    assert desk.watch.drained._offset == pytest.approx(1000.0, abs=1.0)


@pytest.mark.parametrize(("engine", "is_read"), [(None, False), ("0", True), ("1", False)])
def test_an_extension_answers_for_the_first_engine_of_several(engine, is_read):
    with serving() as server:
        server.answers["/metrics"] = "".join(metrics_text(10, K=3, engine=number) for number in "10")
        extension = Extension(server)
        desk = Desk(AttachConfig(url=server.url, duration=0.5, engine=engine))
        Watch(desk).run()
    (hello,) = desk.of(fr.Hello)
    assert hello.machine["extension"] == bool(extension.asked) == is_read
    assert (FIRST_ONLY in desk.said("info")) != is_read


def without_extension(server, answers):
    server.answers |= {"/metrics": metrics_text(10, drafts=5, by_position=(3, 1, 0), K=3)} | answers
    desk = Desk(AttachConfig(url=server.url, duration=0.5))
    Watch(desk).run()
    return desk


def info_of(**parallel):
    return json.dumps({"vllm_config": {"parallel_config": parallel}, "vllm_env": {}})


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        ({}, NOT_IN_DEVELOPMENT_MODE),
        ({INFO: info_of(worker_extension_cls="")}, NOT_LOADED),
        ({INFO: info_of(worker_extension_cls="their.Own")}, "extension is their.Own, which is not the lab's"),
        ({INFO: (503, "busy")}, "answered 503. So its worker extension is not read."),
        ({INFO: "{}"}, "does not tell the configuration as vLLM 0.32 does. So its"),
    ],
)
def test_why_there_is_no_extension_is_said_and_workers_without_it_are_asked_nothing(answers, sentence):
    asked = []
    with serving() as server:
        server.answers["/collective_rpc"] = lambda body: asked.append(body) or (500, "no such method")
        desk = without_extension(server, answers)
    [said] = [text for text in desk.said("info") if sentence in text]
    (hello,) = desk.of(fr.Hello)
    assert hello.machine["unread"] == [said] and not hello.machine["extension"] and asked == []
    others = {NOT_IN_DEVELOPMENT_MODE, NOT_LOADED} - {sentence}
    assert not others.intersection(desk.said("info"))


@pytest.mark.parametrize("answer", [(500, "broken"), "no JSON", '{"results": []}', '{"results": [{}]}'])
def test_an_extension_that_does_not_answer_leaves_the_counters(answer):
    with serving() as server:
        desk = without_extension(
            server, {INFO: info_of(worker_extension_cls=NAME), "/collective_rpc": answer}
        )
    (hello,) = desk.of(fr.Hello)
    assert not hello.machine["extension"] and hello.machine["told"]
    assert len(hello.machine["unread"]) == 1


def test_a_copy_of_the_extension_under_another_module_s_name_is_the_lab_s():
    with serving() as server:
        server.answers["/metrics"] = metrics_text(10, K=3)
        Extension(server, "watching.Switch")
        desk = Desk(AttachConfig(url=server.url, duration=0.5))
        Watch(desk).run()
    assert desk.of(fr.Hello)[0].machine["extension"]


def test_drains_that_fail_are_one_silence_and_nothing_is_lost_by_them():
    def fail(waits, extension):
        if waits == 2:
            extension.failing = 3

    with serving() as server:
        desk = inside(server, fail, duration=7)
    said = [event.text for event in desk.of(fr.Event) if event.kind == "server"]
    assert len(said) == 2 and "answered 500" in said[0] and said[1] == "The server answers again."
    assert [step.step for step in desk.steps()] == list(range(14))
    assert sum(sample.tokens for sample in desk.of(fr.EngineSample)) == 42


def test_a_server_whose_extension_fails_for_good_ends_the_run():
    def fail(waits, extension):
        extension.failing = 1000

    with serving() as server, pytest.raises(AttachError, match=r"collective_rpc answered 500\. It has been"):
        inside(server, fail, patience=3, duration=60)


def restarting(then):
    """What makes a server restart after two seconds; then: its extension after that."""

    def after(waits, extension):
        if waits >= 2:
            extension.steps = 2 * (waits - 1)
            text = metrics_text(6 * (waits - 1), drafts=waits, by_position=(3, 1, 0), K=3, started=2000.0)
            extension.server.answers["/metrics"] = text
        if waits == 2:
            then(extension)

    return after


def test_a_restarted_server_s_extension_is_read_anew():
    with serving() as server:
        desk = inside(server, restarting(lambda extension: setattr(extension, "failing", 2)), duration=7)
    assert [block.block for block in desk.of(fr.Block)] == [0, 1]
    said = [event.text for event in desk.of(fr.Event) if event.kind == "server"]
    assert len(said) == 3 and "restarted" in said[0] and "answered 500" in said[1] and "again" in said[2]
    numbers = [step.step for step in desk.steps()]
    assert numbers == list(range(len(numbers))) and {step.block for step in desk.steps()} == {0, 1}
    assert all(step.admitted for step in desk.steps())


def test_a_restart_behind_a_pause_is_seen_by_the_extension_s_own_numbers():
    with serving() as server:
        extension = Extension(server)
        desk = Desk(AttachConfig.make(url=server.url, duration=9))

        def after(waits):
            extension.steps = 4 + 2 * waits if waits < 4 else 2 * (waits - 4)
            server.answers["/metrics"] = metrics_text(6 * (waits if waits < 4 else waits - 4), drafts=1, K=3)
            desk.asked += {3: [cm.Pause()], 4: [cm.Resume()]}.get(waits, [])

        after(0)
        desk.after = after
        Watch(desk).run()
    assert [block.block for block in desk.of(fr.Block)] == [0, 1]
    numbers = [step.step for step in desk.steps()]
    assert numbers == list(range(len(numbers))) and {step.block for step in desk.steps()} == {0, 1}


def test_a_restarted_server_without_the_extension_has_its_counters_told():
    def lose(extension):
        extension.server.answers[INFO] = info_of(worker_extension_cls="")

    with serving() as server:
        desk = inside(server, restarting(lose), duration=6)
    [said] = [text for text in desk.said("warning") if NOT_LOADED in text]
    assert "only the server's counters" in said
    assert [step.admitted for step in desk.steps()] == [(2, 1, 0)] * 2 + [None] * 4


def test_a_restarted_server_that_drafts_more_ends_the_run():
    def more(extension):
        extension.about = extension.about | {"K": 5}

    with (
        serving() as server,
        pytest.raises(AttachError, match="drafts 5 tokens at a time, and this run began"),
    ):
        inside(server, restarting(more), duration=9)


def test_steps_that_were_overwritten_and_a_length_that_somebody_holds_are_said():
    def change(waits, extension):
        extension.dropped = 7 if waits in (2, 3) else 0
        if waits in (2, 3):
            extension.verify |= dict.fromkeys((extension.steps - 2, extension.steps - 1), 2)

    with serving() as server:
        desk = inside(server, change, duration=6)
    said = [event.text for event in desk.of(fr.Event) if event.kind == "extension"]
    assert len(said) == 3
    assert said[0] == "7 steps were overwritten before they were read."
    assert "holds the length of verification at 2" in said[1] and "vLLM's own choice again" in said[2]


def test_what_means_that_no_length_is_held_is_the_same_on_both_sides():
    extension = pytest.importorskip("avlab.vllm.extension")
    assert (NO_LENGTH, NO_STEPS) == (extension.UNTRIMMED, extension.NO_STEPS)
    assert f"{extension.Watch.__module__}.{extension.Watch.__name__}" == NAME


def test_an_extension_that_sees_nothing_leaves_the_counters():
    with serving() as server:
        desk = inside(
            server,
            begin=lambda extension: extension.about.update(
                steps=False, missing=["It is not Model Runner V2."]
            ),
            duration=2,
        )
    (hello,) = desk.of(fr.Hello)
    assert not hello.machine["extension"] and desk.steps()[0].target_tokens is None
    assert "It is not Model Runner V2." in [event.text for event in desk.of(fr.Event)]
