"""Several servers side by side in one watch: each engine, and when one vanishes, comes or restarts."""

import json
from contextlib import ExitStack
from itertools import pairwise

import pytest
from attach_desk import Desk
from typer.testing import CliRunner
from vllm_stand_in import growing, metrics_text, serving

from avlab.commands.cli import app
from avlab.config import ConfigError
from avlab.lab.tally import Tally
from avlab.vllm.attach import SEVERAL, AttachError, Watch
from avlab.vllm.attach_config import AttachConfig
from avlab.vllm.intervals import step_of
from avlab.vllm.metrics import Counters
from avlab.vllm.server import ServerError
from avlab.wire import frames as fr

BUSY = (503, "busy")


def name(server):
    return server.url.removeprefix("http://")


def watch(texts, count=2, **settings):
    """Watch stand-ins whose /metrics at each second are `texts(server's number, second)`; the desk and their names."""
    with ExitStack() as stack:
        servers = [stack.enter_context(serving()) for _ in range(count)]

        def serve(second):
            for number, server in enumerate(servers):
                server.answers["/metrics"] = texts(number, second)

        serve(0)
        others = [server.url for server in servers[1:]]
        desk = Desk(AttachConfig.make(url=servers[0].url, others=others, **settings), after=serve)
        desk.names = [name(server) for server in servers]
        try:
            desk.result = Watch(desk).run()
        except AttachError as error:
            desk.result = str(error)
    return desk


def test_two_servers_are_one_run_and_each_engine_has_its_server_s_name():
    def texts(number, second):
        drafts = 10 * (number + 1) * second
        return "".join(
            metrics_text(100 + (number + 1) * 20 * second, drafts, (drafts // 2,), K=2, engine=engine)
            for engine in "01"
        )

    desk = watch(texts, duration=3, verification="fixed")
    [hello] = desk.of(fr.Hello)
    first, second = desk.names
    assert hello.machine["server"] == f"http://{first}, http://{second}"
    assert hello.machine["engines"] == sorted(f"{engine} at {each}" for each in desk.names for engine in "01")
    assert hello.target == "some/model" and SEVERAL in hello.machine["unread"]
    assert [(step.tokens, step.scheduled, step.accepted) for step in desk.steps()] == [
        (120, (60, 60), (30, 0))
    ] * 3
    tokens = {sample.engine: sample.tokens for sample in desk.of(fr.EngineSample)}
    assert tokens == {f"{e} at {first}": 20 for e in "01"} | {f"{e} at {second}": 40 for e in "01"}


def test_one_that_is_silent_costs_the_others_nothing_and_its_silence_is_not_one_interval():
    def texts(number, second):
        return BUSY if number and 2 <= second < 5 else metrics_text((number + 1) * 10 * second)

    desk = watch(texts, duration=8, patience=2)
    assert [step.tokens for step in desk.steps()] == [30, 10, 10, 10, 10, 30, 30, 30]
    assert all(b.time - a.time == pytest.approx(1) for a, b in pairwise(desk.steps()))
    warnings = desk.said("warning")
    assert "answered 503" in warnings[0] and len(warnings) == 1
    assert f"{desk.names[1]} answers again. What it did meanwhile is not counted." in desk.said("info")


def test_one_that_is_gone_for_longer_than_patience_is_told_and_the_others_are_watched_on():
    desk = watch(
        lambda number, second: BUSY if number and second else metrics_text(10 * second),
        duration=8,
        patience=2,
    )
    assert desk.result == "done" and len(desk.steps()) == 8
    assert desk.said("warning")[1:] == [f"{desk.names[1]} has been silent for 2 s: rates are of the others."]


def test_all_that_are_gone_end_the_watch():
    desk = watch(lambda number, second: BUSY if second > 1 else metrics_text(10 * second), patience=3)
    assert desk.result == "All servers have been silent for 3 s, so watching ended."


def test_what_nobody_saw_in_between_counts_where_all_were_silent():
    desk = watch(lambda number, second: BUSY if second in (2, 3) else metrics_text(10 * second), duration=5)
    assert [step.tokens for step in desk.steps()] == [20, 60, 20]


def test_one_that_restarts_is_named_and_the_others_go_on():
    def texts(number, second):
        restarted = number == 1 and second >= 3
        return metrics_text(
            10 * second if restarted else 1000 + 10 * second, started=2000 if restarted else 1000
        )

    desk = watch(texts, duration=5)
    assert [step.tokens for step in desk.steps()] == [20, 20, 10, 20, 20]
    assert desk.said("warning") == [
        f"{desk.names[1]} restarted: it counts from the beginning. The interval is left out."
    ]
    assert [step.block for step in desk.steps()] == [0, 0, 1, 1, 1]


def test_another_model_at_one_s_address_is_told_and_not_counted():
    def texts(number, second):
        return metrics_text(10 * second, model="another/model" if number and second >= 2 else "some/model")

    desk = watch(texts, duration=4)
    assert [step.tokens for step in desk.steps()] == [20, 10, 10, 10]
    assert desk.said("warning") == [f"{desk.names[1]} does not serve some/model any more."]


def test_another_model_that_comes_after_a_silence_is_told_once():
    def texts(number, second):
        if number and second == 2:
            return BUSY
        return metrics_text(10 * second, model="another/model" if number and second > 2 else "some/model")

    desk = watch(texts, duration=6)
    assert desk.said("warning")[1:] == [f"{desk.names[1]} does not serve some/model any more."]


def test_an_engine_that_leaves_one_of_them_is_named_with_its_server():
    def texts(number, second):
        return "".join(metrics_text(10 * second, engine=e) for e in ("0" if number and second >= 2 else "01"))

    desk = watch(texts, duration=3)
    assert desk.said("warning") == [
        f"Engine 1 at {desk.names[1]} left /metrics: rates are of 1 from here on."
    ]


def test_servers_of_two_models_are_both_named():
    desk = watch(lambda number, second: metrics_text(10 * second, model="ab"[number]), duration=2)
    assert desk.of(fr.Hello)[0].target == "a, b" and desk.steps()[0].tokens == 20


def test_one_that_is_not_there_at_the_start_is_a_sentence():
    with serving() as server:
        server.answers["/metrics"] = metrics_text(1)
        with pytest.raises(ServerError, match="Nothing listens at http"):
            Watch(Desk(AttachConfig.make(url=server.url, others=["http://127.0.0.1:9"]))).run()


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"url": "http://h", "others": ["http://h/v1"]}, "An address stands there twice"),
        ({"url": "http://h", "others": ["h:1"]}, "is no server's address"),
        ({"url": "http://h", "others": ["http://i"], "telemetry": "/run/x"}, "attach to that alone"),
    ],
)
def test_wrong_addresses_are_one_sentence(values, sentence):
    with pytest.raises(ConfigError, match=sentence):
        AttachConfig.make(values)


def test_engines_of_different_lengths_tell_what_was_scheduled_position_by_position():
    short = Counters(drafts=10, draft_tokens=20, accepted=9, accepted_by_position=(6, 3))
    long = Counters(drafts=4, draft_tokens=12, accepted=6, accepted_by_position=(3, 2, 1))
    step = step_of([short, long], 0, 1.0, 0, adaptive=False)
    assert step.scheduled == step.admitted == (14, 14, 4)
    assert step.accepted == (9, 5, 1) and step.labelled == (14, 9, 2)


def test_a_tally_mixes_no_scheduled_with_accepted_of_other_steps():
    """Drafts of several lengths: an interval that happens to hold whole ones says nothing of the others."""
    tally = Tally()
    whole = Counters(drafts=16, draft_tokens=48, accepted=30, accepted_by_position=(15, 10, 5))
    mixed = Counters(drafts=130, draft_tokens=273, accepted=207, accepted_by_position=(110, 60, 37))
    steps = [step_of([each], number, 1.0 + number, 0, None) for number, each in enumerate((whole, mixed))]
    tally.add(fr.Steps(steps))
    told = tally.snapshot()
    assert told["accepted"] == 237 and told["scheduled"] is told["admitted"] is None


def test_a_watch_says_that_it_serves_and_when_it_waits():
    states = []
    with ExitStack() as stack:
        one, two = (stack.enter_context(serving()) for _ in range(2))

        def serve(second):
            states.append(desk.state)
            for server in (one, two):
                server.answers["/metrics"] = BUSY if second in (2, 3) else metrics_text(10 * second)

        desk = Desk(AttachConfig.make(url=one.url, others=[two.url], duration=6), after=serve)
        desk.progress = lambda doing, *_: setattr(desk, "state", doing)
        for server in (one, two):
            server.answers["/metrics"] = metrics_text(0)
        Watch(desk).run()
    waiting = "waiting for the server"
    assert states == ["serving", "serving", waiting, waiting, "serving", "serving"]


def test_the_command_shows_each_server_and_no_arrival(tmp_path):
    path = str(tmp_path / "lab.duckdb")
    with serving() as one, serving() as two, growing(one), growing(two):
        words = ["attach", one.url, two.url, "--interval", "0.2", "--tokens", "900", "--database", path]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
    for server in (one, two):
        assert f"0 at {name(server)}" in result.stdout and server.url in result.stdout
    assert "some/model" in result.stdout
    summary = json.loads(CliRunner().invoke(app, ["show", "last", "--json", "--database", path]).stdout)
    assert summary["server"] == f"{one.url}, {two.url}" and summary["arrival"] is None
    assert [each["engine"] for each in summary["watched"]["engines"]] == sorted(
        f"0 at {name(server)}" for server in (one, two)
    )
