"""Servers that break off, trickle, or send what no vLLM sends: a sentence within seconds, no watch ended by a blip."""

import itertools
import socket
import threading
import time
from contextlib import contextmanager, suppress

import pytest
from vllm_stand_in import metrics_text, serving

from avlab.vllm.metrics import LARGEST, MOST_ENGINES, MetricsError, between, fell, read
from avlab.vllm.server import Server, ServerError

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"


@contextmanager
def answering(answer):
    """A server that hands each connection to `answer(connection, number)` after its question was read."""
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def serve():
        number = 0
        while not stop.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            number += 1
            with connection:
                connection.settimeout(5)
                while b"\r\n\r\n" not in connection.recv(65536):
                    pass
                with suppress(OSError):
                    answer(connection, number, stop)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        stop.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def trickle(data):
    def answer(connection, _, stop):
        for byte in data:
            if stop.wait(0.05):
                return
            connection.sendall(bytes([byte]))

    return answer


@pytest.mark.parametrize(
    "data",
    [
        HEAD + b"Content-Length: 5000\r\n\r\n" + b"x" * 5000,
        HEAD + b"\r\n" + b"y" * 5000,  # without a length
        HEAD + b"X: " + b"z" * 5000,  # even its head
    ],
)
def test_an_answer_that_trickles_ends_with_the_time_limit(data):
    with answering(trickle(data)) as url:
        began = time.monotonic()
        with pytest.raises(ServerError, match=r"did not answer within 0\.6 s") as caught:
            Server(url, timeout=0.6).metrics()
        assert time.monotonic() - began < 3 and caught.value.passing


@pytest.mark.parametrize("sent", [b"", HEAD + b"Content-Length: 500\r\n\r\nvllm"])
def test_a_connection_that_is_closed_in_the_middle_may_be_asked_again(sent):
    with (
        answering(lambda connection, *_: connection.sendall(sent)) as url,
        pytest.raises(ServerError) as caught,
    ):
        Server(url).metrics()
    assert caught.value.passing and "closed the connection before" in str(caught.value)


def sample(position, value, name="vllm:spec_decode_num_accepted_tokens_per_pos_total"):
    return f'{name}{{engine="0",model_name="some/model",position="{position}"}} {value}\n'


@pytest.mark.parametrize("position", ["2000000000", "²", "-1", "1e3", "", "99999999999999999999"])
def test_a_position_that_cannot_be_is_passed_over(position):
    reading = read(metrics_text(100, 10, (5, 2), K=2) + sample(position, 7))
    [counters] = reading.engines.values()
    assert counters.accepted_by_position == (5.0, 2.0)


def test_counts_that_are_not_finite_are_not_told_and_no_restart():
    name = 'vllm:generation_tokens_total{engine="0",model_name="some/model"}'
    texts = [metrics_text(tokens) for tokens in (1000, 1100, 1200, 1300)]
    texts[1] = texts[1].replace(f"{name} 1100.0", f"{name} +Inf")
    texts[2] = texts[2].replace(f"{name} 1200.0", f"{name} -Inf")
    more = 'vllm:generation_tokens_total{engine="1",model_name="some/model"} 1\n'
    readings = [read(text + more) for text in texts]
    for before, after in itertools.pairwise(readings):
        assert not fell(before, after)
        parts = between(*(each.engines["some/model", "0"] for each in (before, after)))
        assert parts.tokens == 0.0 and "tokens" in parts.missing


def test_three_hundred_thousand_engines_are_one_sentence_within_seconds():
    text = "".join(
        f'vllm:generation_tokens_total{{engine="{number}",model_name="m"}} 1\n' for number in range(300_000)
    )
    began = time.process_time()
    with pytest.raises(MetricsError, match=f"more than {MOST_ENGINES} engines"):
        read(text)
    assert time.process_time() - began < 5


def test_as_many_samples_of_one_engine_are_a_sentence_too():
    text = "".join(
        f'vllm:request_success_total{{engine="0",finished_reason="{number}",model_name="m"}} 1\n'
        for number in range(150_000)
    )
    began = time.process_time()
    with pytest.raises(MetricsError, match="of a whole federation"):
        read(text)
    assert time.process_time() - began < 10


def test_the_largest_counts_of_the_most_engines_fit_into_the_database():
    assert MOST_ENGINES * LARGEST < 2**63


def test_copies_of_a_federation_are_told_apart_and_a_sample_twice_is_no_sum():
    one = metrics_text(100, 30, (24, 12), K=2)
    both = "".join(one.replace('engine="0"', f'engine="0",job="{job}"') for job in ("a", "b"))
    reading = read(both + one + one)
    assert sorted(engine for _, engine in reading.engines) == ["0", "0 at a", "0 at b"]
    assert {
        (each.tokens, each.cache_usage, each.accepted_by_position) for each in reading.engines.values()
    } == {(100.0, 0.25, (24.0, 12.0))}
    assert {each.finished for each in reading.engines.values()} == {11.0}  # its reasons are summed


def test_a_blip_does_not_end_a_watch():
    from test_attach import watch

    with serving() as server:

        def serve(seconds):
            server.answers["/metrics"] = metrics_text(10 * seconds)
            server.closing = seconds == 2

        serve(0)
        desk = watch(server, serve, duration=4)
    assert [step.tokens for step in desk.steps()] == [10, 20, 10]
    assert "closed the connection" in desk.said("warning")[0] and "answers again" in desk.said("info")[-1]
