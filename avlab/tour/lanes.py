"""The same arrivals served under several arms on one machine's clock, recorded once: `python -m avlab.tour.lanes`."""

import functools
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from avlab.policies.arm import DEFAULT_ARM, Arm
from avlab.replay.server import ReplayServer
from avlab.tour.material import gpu, trace

FILE = Path(__file__).parent / "recorded" / "lanes.json"
FIXED = ("none", "fixed:1", "fixed:2", "fixed:3", "fixed:5", "fixed:7")
RATES = ((5.0, 10.0), (10.0, 62.0), (15.0, 10.0))  # seconds, requests a second: calm, busy, calm
PLACES = 128  # requests under way at most
STEP = 0.25  # seconds between two points
MOST_SECONDS = 120.0
SEED = 11


@dataclass(frozen=True, slots=True)
class Lane:
    """arm. inside: requests under way or waiting, every `STEP` seconds. ended: seconds at which the last one was done.
    first: median seconds to the first token. tokens: written in all."""

    arm: str
    inside: list[int]
    ended: float
    first: float
    tokens: int


def arrivals() -> list[tuple[float, int]]:
    """Seconds and texts of all requests."""
    random, found, begin = np.random.default_rng(SEED), [], 0.0
    for length, rate in RATES:
        count = random.poisson(length * rate)
        found += sorted(begin + length * random.random(count))
        begin += length
    return list(zip(found, random.integers(0, trace().texts, len(found)).tolist(), strict=True))


def serve(arm: str) -> Lane:
    """Serve all arrivals to their end."""
    server = ReplayServer(trace(), gpu(), Arm.parse(arm, trace().about.K), PLACES, SEED)
    due = arrivals()
    firsts: list[float] = []
    inside: list[int] = []
    tokens = number = 0
    while number < len(due) or server.queue or server.running:
        now = server.now_ms / 1e3
        while number < len(due) and due[number][0] <= now:
            server.add(number, due[number][1], due[number][0] * 1e3)
            number += 1
        while len(inside) * STEP <= now:
            inside.append(len(server.queue) + len(server.running))
        done = server.step()
        if done is None:
            server.wait_until(due[number][0] * 1e3)
            continue
        tokens += done.step.tokens
        firsts += [each.first_token_after_ms / 1e3 for each in done.begun]
        if server.now_ms > MOST_SECONDS * 1e3:
            break
    return Lane(arm, inside, round(server.now_ms / 1e3, 2), round(float(np.median(firsts)), 3), tokens)


@functools.cache
def recorded() -> dict[str, Lane]:
    """The lanes that ship, by arm."""
    return {each["arm"]: Lane(**each) for each in json.loads(FILE.read_text(encoding="utf-8"))}


def make() -> None:
    """Serve every lane and write them down."""
    FILE.parent.mkdir(exist_ok=True)
    lanes = [asdict(serve(arm)) for arm in (*FIXED, DEFAULT_ARM)]
    FILE.write_text(json.dumps(lanes, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    make()
