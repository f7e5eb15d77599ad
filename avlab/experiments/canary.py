"""Two servers side by side, control and candidate: rounds of both, and what the sequential statistics of an A/B say.

With a load of our own a round serves both in an order drawn at random, so that `statistics` holds as it stands. Where
only somebody's traffic is watched, a round is an interval of both: nothing was drawn, and `CAVEATS` says what it costs.
"""

import random
import statistics as plain_statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from avlab.experiments.analysis import result_of
from avlab.experiments.answers import Comparison
from avlab.vllm.load import ClosedLoop, LoadError
from avlab.vllm.metrics import Counters, Reading, fell, total
from avlab.vllm.server import ServerError
from avlab.vllm.watched import AttachError, Watched

SIDES = ("control", "candidate")
MEASURES = {
    "throughput": "output tokens a second",
    "interactivity": "output tokens a second for one user, behind the first",
    "first-token": "requests by the mean seconds to their first token",
}
CAVEATS = (
    "Nothing was drawn at random: somebody's router decides which request goes where, so a difference may be one of "
    "traffic. Split requests at random and by equal weights, or alternate the weights.",
    "Neighbouring intervals share requests and drift together, so the interval may be too narrow: make --block longer "
    "than a request lasts.",
)
MOST_DROPPED = 5  # rounds in a row, after which it ends
SPLIT_MOVED = 0.15  # of the requests: chosen here; the noise of 40 requests is half of it
SPLIT_REQUESTS = 40  # of both servers, that a share is judged by


class CanaryError(LoadError):
    """Two servers cannot be compared. The message is one sentence."""


@dataclass(frozen=True)
class Pair:
    """A round. rates: of control and candidate, in the measure's unit. reason: why it does not count, "" if it does."""

    number: int
    rates: tuple[float, float] | None
    reason: str = ""
    order: tuple[str, ...] = ()


@dataclass
class Canary:
    """What is known by now. events: sentences about servers and about how the caller's traffic is split."""

    measure: str
    randomised: bool
    pairs: list[Pair] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    @property
    def caveats(self) -> tuple[str, ...]:
        return () if self.randomised else CAVEATS

    def comparison(self) -> Comparison:
        """The candidate against the control."""
        kept = [pair.rates for pair in self.pairs if pair.rates is not None]
        rates = np.array(kept, dtype=np.float64).reshape(-1, 2)
        return result_of("candidate", rates[:, 1], rates[:, 0])

    def medians(self) -> dict[str, float | None]:
        """Of each side, over the rounds that count."""
        kept = [pair.rates for pair in self.pairs if pair.rates is not None]
        return {
            side: plain_statistics.median(each[number] for each in kept) if kept else None
            for number, side in enumerate(SIDES)
        }


def loaded(loops: Sequence[ClosedLoop], rounds: int, seconds: float, seed: int) -> Iterator[Pair]:
    """Rounds with a load of our own: a block of each, in an order drawn anew; the same prompts for both.

    Raises ServerError or LoadError where the first round fails, CanaryError after MOST_DROPPED failures in a row.
    """
    draw, failed, number = random.Random(seed), 0, 0
    kept = 0
    while kept < rounds:
        order = list(range(len(SIDES)))
        draw.shuffle(order)
        names = tuple(SIDES[side] for side in order)
        rates = [0.0, 0.0]
        try:
            for side in order:
                rates[side] = loops[side].block(seconds, number).tokens_per_s
        except (LoadError, ServerError) as error:
            failed += 1
            if not kept and failed == 1:
                raise
            if failed >= MOST_DROPPED:
                raise CanaryError(f"{MOST_DROPPED} rounds in a row could not be served: {error}") from None
            yield Pair(number, None, str(error), names)
        else:
            failed, kept = 0, kept + 1
            yield Pair(number, (rates[0], rates[1]), "", names)
        number += 1


class Watching:
    """Rounds of somebody's traffic: one interval of both servers each."""

    def __init__(self, servers: Sequence[Watched], measure: str, tell: Callable[[str], None]):
        self.servers, self.measure, self.tell = servers, measure, tell
        self.last: list[tuple[float, Reading] | None] = [None, None]
        self.requests = np.zeros(2)  # since the split was last judged
        self.share: float | None = None

    def begin(self) -> None:
        """The first look. Raises ServerError or AttachError."""
        for side, watched in enumerate(self.servers):
            answer = watched.read()
            if isinstance(answer, ServerError):
                raise answer
            watched.choose_model(answer)
            watched.mine(answer)
            self.last[side] = (time.monotonic(), answer)

    def rounds(self, count: int, seconds: float) -> Iterator[Pair]:
        """So many intervals. Raises CanaryError after MOST_DROPPED in a row that do not count."""
        dropped = 0
        for number in range(count):
            time.sleep(seconds)
            pair = self._look(number)
            dropped = 0 if pair.rates else dropped + 1
            yield pair
            if dropped >= MOST_DROPPED:
                raise CanaryError(f"{MOST_DROPPED} intervals in a row do not count: {pair.reason}")

    def _look(self, number: int) -> Pair:
        answers = [watched.read() for watched in self.servers]
        found = [self._interval(side, answer) for side, answer in enumerate(answers)]
        reasons = [each for each in found if isinstance(each, str)]
        known = [each for each in found if not isinstance(each, str)]
        rates = [rate_of(counters, seconds, self.measure) for counters, seconds in known]
        if not reasons:
            self._judge_split([counters.first_tokens for counters, _ in known])
            reasons = [
                f"The {side} had no traffic to measure."
                for side, rate in zip(SIDES, rates, strict=True)
                if rate is None
            ]
        control, candidate = (*rates, None, None)[:2]
        if reasons or control is None or candidate is None:
            return Pair(number, None, " ".join(reasons))
        return Pair(number, (control, candidate))

    def _interval(self, side: int, answer: Reading | ServerError) -> tuple[Counters, float] | str:
        """What a server did since its last look, and the seconds; or why that does not count."""
        watched, before, now = self.servers[side], self.last[side], time.monotonic()
        self.last[side] = None
        if isinstance(answer, ServerError):
            return str(answer)
        try:
            engines = watched.mine(answer)
        except AttachError as error:
            return str(error)
        self.last[side] = (now, answer)
        if before is None:
            return f"The {SIDES[side]} answers again."
        if fell(before[1], answer):
            return f"The {SIDES[side]} restarted."
        if engines.keys() != watched.mine(before[1]).keys():
            return f"Engines of the {SIDES[side]} came or left."
        return total([part.counters for part in watched.parts(before, (now, answer))]), now - before[0]

    def _judge_split(self, requests: Sequence[float]) -> None:
        """Say when the caller's weights moved, by the share of requests that the candidate gets."""
        self.requests += requests
        if self.requests.sum() < SPLIT_REQUESTS:
            return
        share = float(self.requests[1] / self.requests.sum())
        self.requests[:] = 0
        if self.share is None:
            self.tell(f"The candidate gets {share:.0%} of the requests.")
        elif abs(share - self.share) > SPLIT_MOVED:
            self.tell(
                f"The caller's weights changed: the candidate gets {share:.0%}, before {self.share:.0%}."
            )
        else:
            return
        self.share = share


def rate_of(counters: Counters, seconds: float, measure: str) -> float | None:
    """A measure of one interval, more is better; None where nothing of it happened."""
    if measure == "throughput":
        return counters.tokens / seconds if counters.tokens else None
    if measure == "interactivity":
        later = counters.tokens - counters.first_tokens
        return later / counters.later_seconds if later > 0 and counters.later_seconds > 0 else None
    return (
        counters.first_tokens / counters.first_token_seconds
        if counters.first_tokens and counters.first_token_seconds
        else None
    )


def sentences(canary: Canary) -> list[str]:
    """What may be said, the most important first."""
    found = canary.comparison()
    if found.ratio is None:
        return ["No round counts yet."]
    low, high = ("no bound" if each is None else f"{each:.3f}" for each in (found.low, found.high))
    ratio = f"{found.ratio:.3f} [{low}, {high}]"
    what = MEASURES[canary.measure]
    if found.moved:
        return [f"The ratio moved on the way, so nothing is declared: {ratio} times the control's {what}."]
    if found.declared:
        better = "better" if found.ratio > 1 else "worse"
        return [
            f"The candidate is {better}: {ratio} times the control's {what}, after {found.rounds} rounds."
        ]
    more = (
        f" About {found.rounds_to_2_percent} rounds would tell it to ± 2 %."
        if found.rounds_to_2_percent
        else ""
    )
    return [f"Not told apart after {found.rounds} rounds: {ratio} times the control's {what}.{more}"]
