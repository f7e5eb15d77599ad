"""The run that a first visit opens on: a replay in which load and policy change, so that a reader sees why it pays.

It is an ordinary run of the replay worker; a thread of the lab changes its traffic and its policy by the run's clock.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from avlab.kinds.replay import ReplayConfig
from avlab.lab.lab import Lab
from avlab.lab.supervisor import WorkerError
from avlab.policies.arm import DEFAULT_ARM
from avlab.wire import commands

CALM, BUSY = 4, 128  # requests under way
LOOK_SECONDS = 0.1  # between two looks at the run's clock
SECONDS = 60.0  # of the run


@dataclass(frozen=True, slots=True)
class Scene:
    """From `begins` (seconds of the run's clock) on: a policy, so many requests under way, and what is to be seen."""

    begins: float
    policy: str
    requests: int
    title: str
    says: str

    @property
    def arrival(self) -> str:
        return f"closed:{self.requests}"


SCENES = (
    Scene(
        0.0, DEFAULT_ARM, CALM, "Few users, and the policy decides",
        "Four requests. The machine reads its weights at every step, whatever it computes, so a few more draft tokens "
        "are nearly free: adaptive verification has about three of them verified for each request.",
    ),
    Scene(
        8.0, DEFAULT_ARM, BUSY, "Load rises",
        "128 requests. Now every draft token makes the step longer for everybody. Nobody changed a setting: the budget "
        "falls to about two a request, those that are likeliest to be accepted.",
    ),
    Scene(
        18.0, "fixed:7", BUSY, "The same load, always seven draft tokens",
        "The policy is now fixed:7, which looked fine when it was calm. A step has 1,024 tokens, leaves the sizes that "
        "the machine has prepared, and takes five times as long: throughput falls to about a quarter.",
    ),
    Scene(
        28.0, DEFAULT_ARM, BUSY, "Adaptive again",
        "It goes on with what it had learnt, and throughput is back within a step.",
    ),
    Scene(
        38.0, "fixed:2", BUSY, "The best fixed length for this load",
        "Somebody who tried every length at 128 requests would have chosen 2. It comes close, for as long as the load "
        "stays what it is; the table below says by how much adaptive verification is ahead.",
    ),
    Scene(
        48.0, DEFAULT_ARM, CALM, "Load falls",
        "Four requests again. The policy verifies more draft tokens by itself, where fixed:2 would now leave speed "
        "unused. The table below compares all six parts.",
    ),
)  # fmt: skip


def configuration() -> ReplayConfig:
    """The run's settings: a B300's published costs, recorded texts, at that machine's own speed."""
    first = SCENES[0]
    return ReplayConfig.make(
        policy=first.policy, arrival=first.arrival, pace="machine", duration=SECONDS, drafts="sampled", seed=7
    )


def is_story(description: Mapping[str, Any]) -> bool:
    """Whether a run, as `queries.describe` gives it, was started with these settings."""
    config, ours = description["config"], configuration()
    same = ("policy", "arrival", "machine", "trace", "pace", "duration", "seed")
    return description["kind"] == ours.kind and all(config.get(name) == getattr(ours, name) for name in same)


def scene_at(seconds: float) -> Scene:
    """The scene of a moment of the run's clock."""
    return next(scene for scene in reversed(SCENES) if scene.begins <= max(seconds, 0.0))


def play(lab: Lab) -> str:
    """Start the run and return its id; its scenes follow by themselves. Raises WorkerError."""
    run = lab.run(configuration())
    threading.Thread(target=direct, args=(lab, run, SCENES), name="story", daemon=True).start()
    return run


def direct(lab: Lab, run: str, scenes: Sequence[Scene]) -> None:
    """Change traffic and policy as the scenes say. Ends with the run, or where the reader changed something."""
    in_force = scenes[0]
    for scene in scenes[1:]:
        while lab.tally.snapshot()["seconds"] < scene.begins:
            status = lab.supervisor.status()
            if status.run != run or not status.alive:
                return
            threading.Event().wait(LOOK_SECONDS)
        if (lab.tally.snapshot()["policy"], lab.traffic[1]) != (in_force.policy, in_force.arrival):
            return  # the reader has taken over
        try:
            if scene.arrival != in_force.arrival:
                lab.change(commands.SetWorkload(lab.traffic[0], scene.arrival))
            if scene.policy != in_force.policy:
                lab.change(commands.SetPolicy(scene.policy))
        except WorkerError:  # it came too late: the run has ended
            return
        in_force = scene
