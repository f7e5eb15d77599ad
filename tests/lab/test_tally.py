"""A run's numbers as its frames arrive, in whatever order a busy machine brings them."""

from avlab.lab.tally import RECENT_SECONDS, Tally
from avlab.wire import frames as fr


def step(number, time):
    return fr.Step(
        step=number, time=time, block=0, running=1, waiting=0, emitting=1, prompt_tokens=0, drafted=0, tokens=2,
        accepted=(),
    )  # fmt: skip


def test_steps_that_come_long_after_a_heartbeat_are_counted():
    """While an engine starts anew heartbeats go on, and the steps before it are told late."""
    tally = Tally()
    tally.add(fr.Block(0, "fixed:1", "serve", 0, 0.0, "code"))
    tally.add(fr.Steps([step(0, 1.0)]))
    tally.add(fr.Heartbeat(2.0 + 2 * RECENT_SECONDS, "starting", 1, 100.0, 0))
    tally.add(fr.Steps([step(1, 1.5)]))
    told = tally.snapshot()
    assert told["steps"] == 2 and told["tokens"] == 4 and told["recent_tokens_per_s"] is None
