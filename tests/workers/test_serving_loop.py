"""The worker's loop: what it reports adds up, it obeys, it ends when it should."""

import threading
import time

import numpy as np
import pyarrow as pa
import pytest
from serving_loop import Wire, quick, serve, until  # noqa: F401  (quick is a fixture)
from stand_in_engine import CONTEXT, K, Words

from avlab.wire import commands as cm
from avlab.wire import draft_rows
from avlab.wire import frames as fr
from avlab.workers import reporting, serving
from avlab.workers.intake import ServingError, request_seed


def test_what_is_reported_adds_up():
    wire, server = serve(tokens=4000, drafts="all", temperature=0.5, keep_text=True)
    assert server.run() == "done"
    steps = wire.steps
    assert [step.step for step in steps] == list(range(len(steps)))
    total = sum(step.tokens for step in steps)
    assert 4000 <= total < 4000 + 4 * (K + 1)
    done = wire.of(fr.RequestDone)
    assert sum(request.output_tokens for request in done) == total
    assert {request.finish for request in done} == {"length", "cancelled"}
    complete = [request for request in done if request.finish == "length"]
    assert all(request.prompt and request.output.startswith("7 7") for request in complete)
    assert all(request.seed == request_seed(0, request.request) for request in done)
    assert all(r.arrival <= r.admitted <= r.first_token <= r.last_token for r in complete)
    scheduled = np.sum([step.scheduled for step in steps], axis=0)
    labelled = np.sum([step.labelled for step in steps], axis=0)
    accepted = np.sum([step.accepted for step in steps], axis=0)
    assert (scheduled >= labelled).all() and (labelled >= accepted).all() and labelled[0] > 100

    rows = sum(frame.rows for frame in wire.of(fr.Drafts))
    slots = pa.concat_tables([draft_rows.unpack(frame.batch, frame.rows) for frame in wire.of(fr.Drafts)])
    label = np.array([-1 if label is None else label for label in slots["label"].to_pylist()])
    admitted = np.array(slots["admitted"])
    assert rows == scheduled.sum() == len(label)
    assert (label >= 0).sum() == labelled.sum() and (label == 1).sum() == accepted.sum()
    assert admitted.sum() == sum(sum(step.admitted) for step in steps)

    for source in ("online", "raw", "head"):
        frames = [frame for frame in wire.of(fr.Calibration) if frame.source == source]
        assert sum(map(sum, (frame.count for frame in frames))) == labelled.sum()
        assert sum(map(sum, (frame.positives for frame in frames))) == accepted.sum()
        assert {(frame.kind, frame.temperature) for frame in frames} == {("verse", 0.5)}
    assert len({frame.window for frame in wire.of(fr.Calibration)}) > 1


def test_refits_say_what_their_round_held():
    wire, server = serve(tokens=3000)
    server.run()
    cold, first, *_ = wire.of(fr.Refit)
    assert (cold.refit, cold.slope, cold.intercepts, cold.counts) == (0, 0.5, [-0.2] * K, [0] * K)
    assert (first.refit, first.step) == (1, 99)
    before = [step for step in wire.steps if step.step <= first.step]
    assert first.counts == np.sum([step.labelled for step in before], axis=0).tolist()
    assert first.positives == np.sum([step.accepted for step in before], axis=0).tolist()


def test_arms_are_switched_between_steps_in_blocks_of_their_own():
    wire = Wire()
    wire.orders += [
        (10, cm.SetPolicy("fixed:2")),
        (20, cm.SetPolicy("fixed:9")),
        (30, cm.SetPolicy("none", "wash-out", 4)),
    ]
    wire.orders += [(40, cm.SetPolicy("adaptive"))]
    _, server = serve(wire, tokens=1500)
    assert server.run() == "done"
    blocks = wire.of(fr.Block)
    assert [(b.block, b.arm, b.kind, b.round) for b in blocks] == [
        (0, "adaptive", "serve", None), (1, "fixed:2", "serve", None), (2, "none", "wash-out", 4),
        (3, "adaptive", "serve", None),
    ]  # fmt: skip
    for step in wire.steps:
        expected = {1: (2, 2), 2: (0, 0)}.get(step.block)
        assert expected is None or (step.drafted, sum(step.scheduled[2:])) == (expected[0], 0)
        assert len(step.scheduled) == K
    assert [event.kind for event in wire.of(fr.Event)] == ["policy"]
    assert [refit.refit for refit in wire.of(fr.Refit)][:2] == [
        0,
        1,
    ]  # the second block goes on, no cold start
    sources = {frame.source for frame in wire.of(fr.Calibration) if frame.block == 1}
    assert sources == {"raw", "head"}


@pytest.mark.parametrize("preparing", [0.0, 100.0])
def test_a_workload_begins_when_serving_does(preparing):
    wire, server = serve(workload="drift:verse,code@30s", arrival="burst:8@50s", requests=8, max_new_tokens=4)
    server.order.clock.began -= preparing  # what loading and timing have taken
    assert server.run() == "done"
    done = wire.of(fr.RequestDone)
    assert {request.kind for request in done} == {"verse"} and len(done) == 8
    assert all(preparing <= request.arrival <= request.admitted < preparing + 20 for request in done)


def test_a_workload_is_switched_and_a_wrong_one_is_not():
    wire = Wire()
    wire.orders += [
        (5, cm.SetWorkload("nonsense", "closed:2")),
        (10, cm.SetWorkload("arithmetic", "closed:2")),
    ]
    _, server = serve(wire, tokens=1500)
    server.run()
    assert [block.workload for block in wire.of(fr.Block)] == ["verse", "arithmetic"]
    assert "nonsense" in wire.of(fr.Event)[0].text
    assert {request.kind for request in wire.of(fr.RequestDone)} == {"verse", "arithmetic"}
    assert max(step.running for step in wire.steps[-10:]) == 2


def test_a_number_of_requests_is_served_to_its_end():
    wire, server = serve(requests=7)
    assert server.run() == "done"
    assert sorted(request.request for request in wire.of(fr.RequestDone)) == list(range(7))
    assert {request.finish for request in wire.of(fr.RequestDone)} == {"length"}


def test_time_is_a_limit_and_idle_time_is_measured():
    wire, server = serve(arrival="poisson:30", duration=1.0, max_new_tokens=4)
    begin = time.monotonic()
    assert server.run() == "done"
    assert 0.9 < time.monotonic() - begin < 60
    assert sum(step.idle_ms for step in wire.steps) > 400


def test_a_file_is_served_once(tmp_path):
    file = tmp_path / "mine.jsonl"
    file.write_text('{"prompt": "a b", "arrival": 5.0}\n{"prompt": "c", "arrival": 5.1, "max_tokens": 3}\n')
    wire, server = serve(workload=f"file:{file}", arrival=None)
    assert server.run() == "done"
    done = sorted(wire.of(fr.RequestDone), key=lambda request: request.request)
    assert [(request.prompt_tokens, request.output_tokens) for request in done] == [(2, 20), (1, 3)]
    assert done[1].arrival - done[0].arrival == pytest.approx(0.1)


def test_stop_pause_drain():
    wire, server = serve()
    wire.orders += [(3, cm.Pause())]
    result = []
    thread = threading.Thread(target=lambda: result.append(server.run()))
    thread.start()
    until(lambda: server.order.state == "paused")
    held = len(wire.steps)
    time.sleep(0.1)
    assert len(wire.steps) == held
    wire.orders += [(0, cm.Resume()), (held + 20, cm.Stop(drain=True))]
    thread.join(60)
    assert result == ["stopped"]
    assert {request.finish for request in wire.of(fr.RequestDone)} == {"length"}
    wire, server = serve()
    wire.orders += [(3, cm.Stop())]
    assert server.run() == "stopped"
    assert "cancelled" in {request.finish for request in wire.of(fr.RequestDone)}


def test_a_drain_ends_a_pause():
    wire, server = serve()
    wire.orders += [(3, cm.Pause()), (3, cm.Stop(drain=True))]
    assert server.run() == "stopped"
    assert {request.finish for request in wire.of(fr.RequestDone)} == {"length"}


def test_an_engine_that_dies_while_nothing_runs_ends_the_run():
    class Died(Exception):
        pass

    def look():
        raise Died

    wire, server = serve()
    wire.orders += [(3, cm.Pause())]
    server.engine.look = look
    with pytest.raises(Died):
        server.run()


def test_all_that_was_done_is_sent_when_serving_is_held(monkeypatch):
    monkeypatch.setattr(reporting, "REPORT_SECONDS", 3600.0)
    monkeypatch.setattr(serving, "LONGEST_SLEEP", 0.02)
    wire, server = serve()
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server.engine.step_number > 20)
    assert not wire.steps
    wire.orders += [(0, cm.Pause())]
    until(lambda: wire.steps)
    assert len(wire.steps) == server.engine.step_number
    wire.orders += [(0, cm.Stop())]
    thread.join(60)


def test_a_switch_that_takes_a_while_leaves_a_pause_a_pause():
    _, server = serve()
    server.paused, server.order.state = True, "paused"
    switch = server.engine.set_policy

    def slow(arm):
        server.order.state = "serving"  # as an engine says that is ready again
        switch(arm)

    server.engine.set_policy = slow
    server.begin_block(server.engine.policy.arm, "serve")
    assert server.order.state == "paused"


def test_a_prompt_that_does_not_fit_is_refused_with_a_sentence(tmp_path):
    file = tmp_path / "mine.jsonl"
    file.write_text('{"prompt": "a"}\n{"prompt": "long"}\n{"prompt": "b"}\n')

    class Long(Words):
        def reads(self, name):
            return True

        def encode(self, messages, given=None):
            return [1] * (CONTEXT if messages[-1]["content"] == "long" else 2)

    wire, server = serve(text=Long(0), workload=f"file:{file}", arrival="closed:1")
    assert server.run() == "done"
    ends = {request.request: request.finish for request in wire.of(fr.RequestDone)}
    assert ends == {0: "length", 1: "refused", 2: "length"}
    assert [event.text for event in wire.of(fr.Event)] == ["Request 1 has a prompt of 100 tokens."]


def test_many_refusals_are_a_few_warnings(tmp_path):
    file = tmp_path / "mine.jsonl"
    file.write_text('{"prompt": "long"}\n' * 26 + '{"prompt": "b"}\n')

    class Long(Words):
        def reads(self, name):
            return True

        def encode(self, messages, given=None):
            return [1] * (CONTEXT if messages[-1]["content"] == "long" else 2)

    wire, server = serve(text=Long(0), workload=f"file:{file}", arrival="closed:1")
    assert server.run() == "done"
    assert [request.finish for request in wire.of(fr.RequestDone)] == ["refused"] * 26 + ["length"]
    first, tenth = [event.text for event in wire.of(fr.Event)]
    assert first == "Request 0 has a prompt of 100 tokens."
    assert tenth == "Request 9 has a prompt of 100 tokens. 10 requests were refused so far."


def test_requests_of_a_file_are_sampled_as_it_says(tmp_path):
    file = tmp_path / "mine.jsonl"
    file.write_text(
        '{"prompt": "a", "temperature": 0, "top_k": 9, "top_p": 0.5, "seed": 3}\n{"prompt": "b"}\n'
    )
    wire, server = serve(workload=f"file:{file}", temperature=0.7, top_k=2, top_p=0.9, seed=5)
    assert server.run() == "done"
    asked, other = sorted(wire.of(fr.RequestDone), key=lambda request: request.request)
    assert (asked.temperature, asked.top_k, asked.top_p, asked.seed) == (0.0, 9, 0.5, 3)
    assert (other.temperature, other.top_k, other.top_p, other.seed) == (0.7, 2, 0.9, request_seed(5, 1))


def test_a_run_in_which_nothing_fits_is_given_up():
    class Longer(Words):
        def reads(self, name):
            return True

        def encode(self, messages, given=None):
            return [1] * CONTEXT

    _, server = serve(text=Longer(0))
    with pytest.raises(ServingError, match="100 requests in a row"):
        server.run()


def test_a_lost_lab_ends_the_run():
    wire, server = serve()
    wire.lost = "The lab ended, so its worker did."
    with pytest.raises(ServingError, match="lab ended"):
        server.run()
