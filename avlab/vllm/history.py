"""The past of vLLM servers from a Prometheus server, as a run: a range query, differenced as a watch's readings are.

Series come from `/api/v1/query_range` (prometheus.io, "HTTP API"); each step is one interval. A counter that fell is an
engine's restart: its interval is left out. An engine without a sample at a step was not scraped then.
"""

import math
import os
import platform
import time
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import urlencode

from avlab.about import code_version
from avlab.vllm.attach_config import AttachConfig
from avlab.vllm.intervals import engine_sample, step_of
from avlab.vllm.metrics import READ, STARTED, Counters, Engine, MetricsError, Reading, fell, gathered, total
from avlab.vllm.server import Server
from avlab.vllm.unknown import cannot_know
from avlab.vllm.watched import AttachError, Part, Watched
from avlab.vllm.watching import Order
from avlab.wire import frames

ARM, WORKLOAD = "watched", "its users' requests"
WINDOW = 500  # steps of one query: some megabytes
MOST_SERIES = 50_000
Sample = tuple[str, Mapping[str, str], float]


class History:
    """Reads a span step by step. now: seconds since its beginning, which is this run's clock."""

    def __init__(self, config: AttachConfig):
        assert config.since is not None and config.until is not None
        self.config, self.now = config, 0.0
        self.since, self.until = config.since, config.until
        self.server = Server(config.url, config.key_variable, config.ca_file, max(config.timeout, 30.0))

    def run(self, order: Order) -> str:
        """Read it all; "done" or "stopped". Raises AttachError or ServerError."""
        self.order, self.put = order, order.outbox.put
        watched = Watched(self.server, "", self.config.engine, self.config.model or "")
        before: tuple[float, Reading] | None = None
        block, told = 0, False
        for at, samples in self._steps():
            self.now = at - self.since
            try:
                reading = gathered(samples)
            except MetricsError:  # nothing was scraped at this step
                before = None
                continue
            if not told:
                watched.choose_model(reading)
                self._greet(watched, reading)
                told = True
            try:
                engines = watched.mine(reading)
            except AttachError:
                before = None
                continue
            if before is not None:
                old = watched.mine(before[1])
                restarted = [key for key in engines if key in old and _fell(key, old[key], engines[key])]
                if restarted:
                    block += 1
                    self._tell("warning", f"{_names(restarted)} restarted: the interval is left out for it.")
                    self.put(frames.Block(block, ARM, "serve", order.step, self.now, WORKLOAD))
                for names, words, level in (
                    (old.keys() - engines.keys(), "left", "warning"),
                    (engines.keys() - old.keys(), "came", "info"),
                ):
                    if names:
                        self._tell(level, f"{_names(names)} {words}.")
                parts = watched.parts(before, (self.now, reading))
                gone = {watched.called(engine) for _, engine in restarted}
                self._report([part for part in parts if part.engine not in gone], block)
            before = (self.now, reading)
            order.outbox.wait(0.0)
            if order.asked_to_stop.is_set() or any(order.outbox.commands()):
                return "stopped"
        if not told:
            raise AttachError(
                f"{self.config.url} has no counters of vLLM in that time: look at --from, --to and --selector."
            )
        self.now = self.until - self.since
        return "done"

    def _greet(self, watched: Watched, reading: Reading) -> None:
        engines = watched.mine(reading)
        self.K = max(len(each.accepted_by_position) for each in engines.values())
        self.adaptive = {"adaptive": True, "fixed": False, "ask": None}[self.config.verification]
        self.put(
            frames.Hello(
                kind=self.config.kind,
                pid=os.getpid(),
                wall=self.since,
                config=self.config.model_dump(mode="json") | {"policy": ARM, "workload": WORKLOAD},
                target=watched.model,
                target_hash="",
                drafter="not told" if self.K else None,
                drafter_hash=None,
                K=self.K,
                code=code_version(),
                machine={
                    "server": f"{self.config.url} (Prometheus)",
                    "engines": sorted(number for _, number in engines),
                    "adaptive": self.adaptive,
                    "told": False,
                    "extension": False,
                    "unread": [],
                    "read": time.time(),
                    "system": platform.platform(),
                    "versions": {"vllm": None, "python": platform.python_version()},
                },
            )
        )
        self.order.state = "serving"
        self.put(frames.Block(0, ARM, "serve", self.order.step, self.now, WORKLOAD))
        for sentence in cannot_know(self.adaptive, bool(self.K), told=False):
            self.order.event("info", "not told", sentence)

    def _tell(self, level: str, text: str) -> None:
        self.order.event(level, "server", text)

    def _report(self, parts: list[Part], block: int) -> None:
        if not parts:
            return
        step, counters = self.order.step, [part.counters for part in parts]
        for part in parts:
            self.put(
                engine_sample(part.counters, step, self.now, block, part.model, part.engine, part.seconds)
            )
        everything = total(counters)
        by_position = everything.accepted_by_position
        if by_position and abs(sum(by_position) - everything.accepted) > 1 + 0.001 * everything.accepted:
            self._tell("warning", "Accepted tokens and their counts by position differ in one interval.")
        self.put(frames.Steps([step_of(counters, step, self.now, block, self.adaptive)]))
        self.order.step = step + 1

    # ---- asking --------------------------------------------------------------------------------------------

    def _steps(self) -> Iterator[tuple[float, list[Sample]]]:
        """Every step with the samples at it."""
        count = int((self.until - self.since) / self.config.step) + 1
        for first in range(0, count, WINDOW):
            times = [self.since + self.config.step * i for i in range(first, min(first + WINDOW, count))]
            self.order.progress("asking Prometheus", first, count)
            at: dict[int, list[Sample]] = {}
            for name, labels, values in self._series(times[0], times[-1]):
                for told, text in values:
                    place = round((float(told) - times[0]) / self.config.step)
                    at.setdefault(place, []).append((name, labels, _number(text)))
            for place, moment in enumerate(times):
                yield moment, at.get(place, [])

    def _series(
        self, first: float, last: float
    ) -> Iterator[tuple[str, Mapping[str, str], list[tuple[float, str]]]]:
        """Name, labels, and [time, text] of every series. Raises ServerError or AttachError."""
        names = "|".join(sorted(READ - {STARTED}))
        more = f",{self.config.selector}" if self.config.selector else ""
        query = {
            "query": f'{{__name__=~"{names}"{more}}}',
            "start": f"{first:.3f}",
            "end": f"{last:.3f}",
            "step": f"{self.config.step:g}",
        }
        answer = self.server.json(f"/api/v1/query_range?{urlencode(query)}")
        try:
            result = answer["data"]["result"]
            if len(result) > MOST_SERIES:
                raise AttachError(
                    f"{self.config.url} has more than {MOST_SERIES:,} such series: choose some with --selector."
                )
            for each in result:
                labels = {str(name): str(value) for name, value in each["metric"].items()}
                values = [(float(told), str(text)) for told, text in each["values"]]
                yield labels.pop("__name__"), labels, values
        except (KeyError, TypeError, ValueError, AttributeError):
            raise AttachError(
                f"{self.config.url} does not answer a range query as Prometheus does."
            ) from None


def _fell(key: Engine, before: Counters, after: Counters) -> bool:
    return fell(Reading({key: before}), Reading({key: after}))


def _names(keys: Iterable[Engine]) -> str:
    return ", ".join(f"Engine {engine}" for _, engine in sorted(keys))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
