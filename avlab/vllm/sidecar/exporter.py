"""A folder of telemetry files, as Prometheus's client library asks for metrics: read anew for every scrape."""

import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from avlab.vllm.ring import RingError, RingFile, State, ring_files
from avlab.vllm.sidecar import metrics as m
from avlab.vllm.sidecar.recent import Recent
from avlab.vllm.telemetry import ERROR_BOUNDS, UNTRIMMED

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
BY_POSITION = {
    "scheduled": m.SCHEDULED,
    "admitted": m.ADMITTED,
    "accepted": m.ACCEPTED,
    "labelled": m.LABELLED,
}
PLAIN = {
    m.STEPS: "steps", m.TOKENS: "tokens", m.REQUESTS: "requests", m.DRAFTING: "drafting_steps", m.EMPTY: "empty_steps",
    m.HELD: "held_steps", m.EXPLORED: "explored", m.PREDICTED_STEPS: "predicted_steps", m.EXPECTED: "expected_accepted",
}  # fmt: skip


class Samples:
    """Families by metric, in the order of `METRICS`, as samples come."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def add(self, metric: m.Metric, values: Sequence[str], number: float) -> None:
        """A sample of a counter or a gauge. values: of all its labels."""
        family = self._family(metric)
        assert not isinstance(family, HistogramMetricFamily)
        family.add_metric(list(values), number)

    def add_histogram(
        self, metric: m.Metric, values: Sequence[str], counts: Sequence[int], sum: float
    ) -> None:
        """counts: between the bounds of `ERROR_BOUNDS`, the last above them."""
        buckets, total = [], 0
        for bound, count in zip((*ERROR_BOUNDS, math.inf), counts, strict=True):
            total += count
            buckets.append(("+Inf" if math.isinf(bound) else str(float(bound)), total))
        family = self._family(metric)
        assert isinstance(family, HistogramMetricFamily)
        # the library writes a sum only where no bound is negative; this one is of signed errors
        family.add_metric(list(values), buckets, None)  # type: ignore[arg-type]
        labels = dict(zip(metric.all_labels, values, strict=True))
        family.add_sample(f"{metric.name}_count", labels, total)
        family.add_sample(f"{metric.name}_sum", labels, sum)

    def families(self) -> Iterator[Family]:
        return iter(self._families.values())

    def _family(self, metric: m.Metric) -> Family:
        if metric.name not in self._families:
            kinds = {
                "counter": CounterMetricFamily,
                "gauge": GaugeMetricFamily,
                "histogram": HistogramMetricFamily,
            }
            self._families[metric.name] = kinds[metric.kind](
                metric.name, metric.says, labels=metric.all_labels
            )
        return self._families[metric.name]


class Exporter(Collector):
    """The metrics of a folder's files. place: that folder, or one file of it."""

    def __init__(self, place: Path):
        self._place, self._lock = place, threading.Lock()
        self._recent: dict[tuple[Path, str], Recent] = {}
        self._last: dict[Path, tuple[str, ...]] = {}  # labels of engines that were seen
        self.said: set[str] = set()  # what could not be read

    def collect(self) -> Iterable[Family]:
        """All metrics now. A file that cannot be read is down, and the others are told."""
        samples = Samples()
        with self._lock:
            try:
                paths = ring_files(self._place)
            except RingError as error:
                self.said.add(str(error))
                paths = []
            for path in sorted({*paths, *self._last}):
                try:
                    file = RingFile(path)
                    try:
                        self._tell(samples, file)
                    finally:
                        file.close()
                except RingError as error:
                    self.said.add(str(error))
                    if path in self._last:
                        samples.add(m.UP, self._last[path], 0)
        return samples.families()

    def _tell(self, samples: Samples, file: RingFile) -> None:
        state = file.state()
        calibration = file.calibration(state)
        engine = (state.model, state.engine)
        self._last[file.path] = engine
        about = state.about
        samples.add(m.UP, engine, state.lives)
        samples.add(m.AGE, engine, state.age)
        samples.add(m.RECORDING, engine, bool(about["steps"]))
        interval = str(about.get("refit_interval", ""))[:20]
        samples.add(m.INFO, (*engine, about["source"], state.vllm, str(about["K"]), interval), 1)
        _totals(samples, engine, state.totals)
        self._coefficients(samples, engine, file, state)
        for source, cells in calibration.items():
            self._calibrated(samples, engine, file.path, source, cells)

    def _coefficients(self, samples: Samples, engine: tuple[str, str], file: RingFile, state: State) -> None:
        step, refit = file.last_step(state), file.last_refit(state)
        if step:
            samples.add(m.BUDGET, engine, step["budget"])
            samples.add(m.OFFERED, engine, sum(step["scheduled"]))
            samples.add(m.RUNNING, engine, step["requests"])
            samples.add(m.LENGTH, engine, step["verify"] if step["verify"] >= 0 else UNTRIMMED)
        if refit:
            number, _, _, slope, intercepts, *_ = refit
            samples.add(m.REFITS, engine, number)
            samples.add(m.SLOPE, engine, slope)
            for k, intercept in enumerate(intercepts):
                samples.add(m.INTERCEPT, (*engine, str(k)), intercept)

    def _calibrated(
        self,
        samples: Samples,
        engine: tuple[str, str],
        path: Path,
        source: str,
        cells: Sequence[Sequence[float]],
    ) -> None:
        by_position: dict[int, list[float]] = {}
        for position, _, *values in cells:
            sums = by_position.setdefault(int(position), [0.0] * 3)
            for i in range(3):
                sums[i] += values[i]
        for k, sums in sorted(by_position.items()):
            for metric, number in zip(
                (m.ESTIMATED, m.ESTIMATED_ACCEPTED, m.ESTIMATED_SUM), sums, strict=True
            ):
                samples.add(metric, (*engine, source, str(k)), number)
        found = self._recent.setdefault((path, source), Recent()).scores(cells)
        if found.count:
            samples.add(m.ECE, (*engine, source), found.ece)
            samples.add(m.ECE_FLOOR, (*engine, source), found.ece_floor)


def _totals(samples: Samples, engine: tuple[str, str], totals: Mapping[str, Any]) -> None:
    """Sums since the worker started. Raises RingError where one is missing."""
    try:
        for metric, name in PLAIN.items():
            samples.add(metric, engine, totals[name])
        samples.add(m.PREDICTED, engine, totals["predicted_ms"] / 1e3)
        samples.add(m.MEASURED, engine, totals["measured_ms"] / 1e3)
        for name, metric in BY_POSITION.items():
            for k, number in enumerate(totals["by_position"][name]):
                samples.add(metric, (*engine, str(k)), number)
        samples.add_histogram(m.ERROR, engine, totals["errors"], totals["error_sum"])
    except (KeyError, TypeError, ValueError) as error:
        raise RingError(
            f"The telemetry of engine {engine[1]} lacks sums ({error}): use the same avlab there."
        ) from None
