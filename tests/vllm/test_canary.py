"""Two servers compared: under a load of the lab's own in randomised blocks, and by watching somebody's traffic."""

import json
import time

import pytest
from completions_stand_in import streaming
from typer.testing import CliRunner
from vllm_stand_in import metrics_text, serving

from avlab.commands.cli import app
from avlab.experiments import canary as module
from avlab.experiments.canary import Canary, CanaryError, Pair, Watching, loaded, rate_of, sentences
from avlab.vllm.load import ClosedLoop, LoadError, Prompts
from avlab.vllm.metrics import Counters
from avlab.vllm.server import Server, ServerError
from avlab.vllm.watched import Watched

MODEL = "some/model"


def loop(server, requests=3, **settings):
    return ClosedLoop(Server(server.url), MODEL, requests, Prompts(tokens=20, **settings), warm=30)


def test_a_closed_loop_counts_the_tokens_of_the_server_s_own_usage():
    with streaming(token_s=0.02, per_chunk=3) as server:
        block = loop(server).block(0.6)
        assert 0 < block.tokens_per_s <= 1.1 * 3 * 3 / 0.02  # less on a busy machine
        assert block.tokens <= server.tokens and block.seconds >= 0.6
        deadline = time.monotonic() + 3
        while server.open and time.monotonic() < deadline:
            time.sleep(0.02)
        assert server.open == 0  # nothing runs on behind a block
        assert {body["max_tokens"] for body in server.bodies} == {20}


def test_both_servers_get_the_same_prompts_and_seeds():
    with streaming() as one, streaming() as two:
        for server in (one, two):
            loop(server, requests=1, seed=5).block(0.5, round=2)
        shared = min(len(one.bodies), len(two.bodies))
        assert shared > 1 and one.bodies[:shared] == two.bodies[:shared]
        assert len({body["prompt"] for body in one.bodies}) > 1


def test_a_faster_candidate_is_declared_by_randomised_rounds():
    found = Canary("throughput", True)
    with streaming(token_s=0.1) as slow, streaming(token_s=0.02) as fast:
        for pair in loaded([loop(slow), loop(fast)], 12, 0.4, seed=1):
            found.pairs.append(pair)
    answer = found.comparison()
    assert answer.rounds == 12 and answer.declared and answer.ratio > 1.3  # 5 on an idle machine
    assert len({pair.order for pair in found.pairs}) == 2 and not found.caveats
    assert sentences(found)[0].startswith("The candidate is better")


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"refuse": (404, "no such model")}, ServerError, "has no /v1/completions"),
        ({"refuse": (400, '{"message": "max_tokens is too large"}')}, ServerError, "max_tokens is too large"),
        ({"usage": False}, LoadError, "without usage or without a token"),
        ({"cut": True}, LoadError, "without usage|closed|no token"),
    ],
)
def test_what_cannot_be_counted_is_one_sentence(change, error, words):
    with streaming() as server:
        for name, value in change.items():
            setattr(server, name, value)
        if name == "cut":
            server.usage = False
        with pytest.raises(error, match=words) as caught:
            loop(server).block(0.5)
    assert "\n" not in str(caught.value)


def test_a_server_that_is_gone_in_mid_way_costs_rounds_and_then_ends_it():
    with streaming() as one:
        with streaming() as two:
            rounds = loaded([loop(one), loop(two)], 50, 0.1, seed=1)
            assert next(rounds).rates
        found = []
        with pytest.raises(CanaryError, match="5 rounds in a row could not be served: Nothing listens"):
            found += list(rounds)
    assert not any(pair.rates for pair in found)


def watching(texts, rounds, monkeypatch, measure="interactivity"):
    """Rounds over stand-ins whose counters are `texts(side, second)`; the pairs and what was told."""
    told, clock = [], [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    with serving() as one, serving() as two:

        def sleep(seconds):
            clock[0] += seconds
            for side, server in enumerate((one, two)):
                server.answers["/metrics"] = texts(side, round(clock[0]))

        monkeypatch.setattr(module.time, "sleep", sleep)
        sleep(0)
        names = ("control:1", "candidate:1")
        servers = [Watched(Server(s.url), n, None) for s, n in zip((one, two), names, strict=True)]
        found = Watching(servers, measure, told.append)
        found.begin()
        pairs = list(found.rounds(rounds, 1.0))
    return pairs, told


def test_watched_intervals_are_pairs_and_what_is_broken_does_not_count(monkeypatch):
    def texts(side, second):
        if side and second == 3:
            return 503, "busy"
        restarted = not side and second >= 6
        return metrics_text(1000 * second + (0 if restarted else 50000), started=2000 if restarted else 1000)

    pairs, _ = watching(texts, 8, monkeypatch)
    reasons = [pair.reason for pair in pairs]
    assert [bool(pair.rates) for pair in pairs] == [True, True, False, False, True, False, True, True]
    assert (
        "answered 503" in reasons[2]
        and "candidate answers again" in reasons[3]
        and "control restarted" in reasons[5]
    )
    # 1,000 tokens a second, a tenth of them first ones; their outputs took 20 s
    assert pairs[0].rates == pytest.approx((900 / 20, 900 / 20))


def test_engines_that_come_and_no_traffic_do_not_count(monkeypatch):
    def texts(side, second):
        more = metrics_text(5, engine="1") if side and second >= 2 else ""
        return (
            metrics_text(0 if second >= 4 else 100 * second) + more
            if second < 4
            else metrics_text(300) + more
        )

    pairs, _ = watching(texts, 5, monkeypatch)
    assert "Engines of the candidate came or left" in pairs[1].reason
    assert "The control had no traffic" in pairs[4].reason


def test_the_caller_s_weights_are_events(monkeypatch):
    def texts(side, second):
        early, late = min(second, 5), max(second - 5, 0)
        each = (500 * early + 800 * late, 500 * early + 200 * late)
        return metrics_text(each[side])

    _, told = watching(texts, 10, monkeypatch)
    assert told == [
        "The candidate gets 50% of the requests.",
        "The caller's weights changed: the candidate gets 20%, before 50%.",
    ]


def test_rates_are_none_where_nothing_happened():
    assert rate_of(Counters(), 1.0, "throughput") is None
    assert rate_of(Counters(tokens=5, first_tokens=5), 1.0, "interactivity") is None
    assert rate_of(Counters(first_tokens=4, first_token_seconds=2.0), 1.0, "first-token") == 2.0


def test_sentences_say_what_is_not_known():
    found = Canary("throughput", False)
    assert sentences(found) == ["No round counts yet."] and len(found.caveats) == 2
    found.pairs = [Pair(0, (10.0, 11.0)), Pair(1, None, "gone")]
    assert sentences(found)[0].startswith("Not told apart after 1 rounds: 1.1")


def test_the_command_serves_both_and_says_it_in_json():
    with streaming(token_s=0.1) as slow, streaming(token_s=0.01) as fast:
        words = ["canary", slow.url, fast.url, "--load", "2", "--rounds", "2", "--block", "0.5", "--json"]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
        told = json.loads(result.stdout)
        assert told["randomised"] and told["comparison"]["rounds"] == 2 and told["comparison"]["ratio"] > 1.3
        assert told["models"] == [MODEL, MODEL] and len(told["rounds"]) == 2
        same = CliRunner().invoke(app, ["canary", slow.url, slow.url])
        wrong = CliRunner().invoke(app, ["canary", slow.url, fast.url, "--measure", "speed"])
    assert "one address" in str(same.exception) and "must be throughput" in str(wrong.exception)
