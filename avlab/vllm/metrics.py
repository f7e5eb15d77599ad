"""The text of a vLLM server's /metrics: counters by model and engine, and what two readings say of the time between.

Names as documented for 0.8 to 0.33 (docs.vllm.ai, "Production Metrics"), and as `vllm/v1/metrics/loggers.py` and
`vllm/v1/spec_decode/metrics.py` of 0.33.0 make them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields

from prometheus_client.parser import text_string_to_metric_families

from avlab.vllm import VllmError, histograms

Labels = Mapping[str, str]
Engine = tuple[str, str]  # model name, engine number; behind it the source, where several speak

# field: names, the newest first. A counter's text ends in _total; a histogram's in _sum and _count.
COUNTERS: dict[str, tuple[str, ...]] = {
    "prompt_tokens": ("vllm:prompt_tokens_total",),
    "tokens": ("vllm:generation_tokens_total",),
    "preemptions": ("vllm:num_preemptions_total",),
    "finished": ("vllm:request_success_total",),
    "drafts": ("vllm:spec_decode_num_drafts_total",),
    "draft_tokens": ("vllm:spec_decode_num_draft_tokens_total",),
    "accepted": ("vllm:spec_decode_num_accepted_tokens_total",),
    "engine_steps": ("vllm:iteration_tokens_total_count",),
    "first_tokens": ("vllm:time_to_first_token_seconds_count",),
    "first_token_seconds": ("vllm:time_to_first_token_seconds_sum",),
    "later_outputs": ("vllm:inter_token_latency_seconds_count", "vllm:time_per_output_token_seconds_count"),
    "later_seconds": ("vllm:inter_token_latency_seconds_sum", "vllm:time_per_output_token_seconds_sum"),
}
GAUGES: dict[str, tuple[str, ...]] = {
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
    "cache_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
}
BY_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
STARTED = "process_start_time_seconds"
NAMES = {name for table in (COUNTERS, GAUGES) for names in table.values() for name in names}
FROM_RAY = {
    f"ray_{name.replace(':', '_')}": name for name in NAMES | histograms.NAMES | {BY_POSITION}
}  # as Ray Serve's LLMs tell them
READ = NAMES | histograms.NAMES | FROM_RAY.keys() | {BY_POSITION, STARTED}
SOURCES = (  # labels that name another server: of replicas behind one address, or of a federation's copies
    "instance", "pod", "namespace", "node", "cluster", "deployment", "replica", "ReplicaId", "WorkerId", "NodeAddress",
)  # fmt: skip
SPLITS = frozenset({"finished_reason", "position", "le"})  # what vLLM itself splits an engine's numbers by
NOT_A_SOURCE = SPLITS | {
    "model_name",
    "engine",
    "SessionName",
    "Version",
    "Component",
}  # Ray's are of its session
LONGEST_LINE = 4096  # characters; the parser's time grows with the square of a line's labels
LONGEST_SOURCE = 200  # characters of the labels that tell engines of one number apart
MOST_POSITIONS = 1024  # draft positions of one engine
MOST_ENGINES = 512  # of one text: their sums stay whole numbers of 64 bits
MOST_SAMPLES = 50_000  # of vLLM's own, of one text: seconds of reading
LARGEST = 2.0**53  # of a count: whole numbers are exact up to here


class MetricsError(VllmError):
    """Metrics that say nothing of vLLM. The message is one sentence."""


@dataclass(frozen=True)
class Counters:
    """One engine's numbers. All but running, waiting and cache_usage (a share) have counted since it started.

    drafts: request-steps with a draft; draft_tokens: scheduled, not verified; later_outputs: outputs that were not a
    request's first, and later_seconds the time they took. accepted_by_position: () without speculation. latencies: by
    the names in `histograms.HISTOGRAMS`. missing: fields that this server does not tell.
    """

    running: float = 0.0
    waiting: float = 0.0
    cache_usage: float = 0.0
    prompt_tokens: float = 0.0
    tokens: float = 0.0
    preemptions: float = 0.0
    finished: float = 0.0
    drafts: float = 0.0
    draft_tokens: float = 0.0
    accepted: float = 0.0
    accepted_by_position: tuple[float, ...] = ()
    engine_steps: float = 0.0
    first_tokens: float = 0.0
    first_token_seconds: float = 0.0
    later_outputs: float = 0.0
    later_seconds: float = 0.0
    latencies: Mapping[str, histograms.Buckets] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()

    @property
    def speculates(self) -> bool:
        """Whether the engine has counters of drafts."""
        return "drafts" not in self.missing

    @property
    def outputs(self) -> float:
        """Outputs: one for each request and step in which it emitted a token."""
        return self.first_tokens + self.later_outputs


@dataclass(frozen=True)
class Reading:
    """One look at /metrics. started: when the server's process began, None where it does not say, or several do."""

    engines: Mapping[Engine, Counters]
    started: float | None = None


def samples(text: str, names: Collection[str] | None = None) -> Iterator[tuple[str, dict[str, str], float]]:
    """Every sample of an exposition text, or those of `names`: name, labels, value.

    Passes over lines that are no samples or longer than LONGEST_LINE. Each line is parsed alone, so that a faulty one
    costs no other, and a counter keeps the name that it has in the text.
    """
    for line in text.split("\n"):
        line = line.strip()
        if not line or line[0] == "#" or len(line) > LONGEST_LINE:
            continue
        if names is not None and line[0] != "{" and _name(line) not in names:  # {"name", ...} is read as well
            continue
        try:
            found = [sample for family in text_string_to_metric_families(line) for sample in family.samples]
            values = [float(sample.value) for sample in found]
        except (ValueError, IndexError, OverflowError):
            continue
        for sample, value in zip(found, values, strict=True):
            yield sample.name, sample.labels, value


def read(text: str) -> Reading:
    """A reading from /metrics. Raises MetricsError where it has no counters of vLLM, or too many to be a server's."""
    return gathered(samples(text, READ))


def gathered(found: Iterable[tuple[str, Mapping[str, str], float]]) -> Reading:
    """A reading from samples of the names in READ: name, labels, value. Raises MetricsError as `read` does."""
    values: dict[Engine, dict[str, float]] = {}
    positions: dict[Engine, dict[int, float]] = {}
    bounds: dict[Engine, dict[str, dict[float, float]]] = {}
    started: set[float] = set()
    seen: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    for number, (told, labels, value) in enumerate(found):
        if number >= MOST_SAMPLES or len(values) > MOST_ENGINES:
            raise MetricsError(
                f"/metrics has more than {MOST_ENGINES} engines or {MOST_SAMPLES:,} samples of vLLM: give the address "
                "of one server, not of a whole federation."
            )
        name = FROM_RAY.get(told, told)
        if not 0 <= value <= LARGEST:
            continue
        if name == STARTED:
            started.add(value)
        if "model_name" not in labels:
            continue
        same = (name, frozenset(labels.items()))
        if same in seen:  # the same sample once more: a copy, and no part of a sum
            continue
        seen.add(same)
        engine = (labels["model_name"], _engine(labels))
        if name == BY_POSITION:
            position = _position(labels)
            if position is not None:
                counted = positions.setdefault(engine, {})
                counted[position] = counted.get(position, 0.0) + value
        elif name in histograms.NAMES:
            bound = _bound(labels)
            if bound is not None:
                counts = bounds.setdefault(engine, {}).setdefault(name, {})
                counts[bound] = counts.get(bound, 0.0) + value
        elif name in NAMES:
            mine = values.setdefault(engine, {})
            mine[name] = mine.get(name, 0.0) + value  # a counter may be split by further labels
    if not any(name in mine for mine in values.values() for name in COUNTERS["tokens"]):
        raise MetricsError(
            "/metrics has no counters of vLLM: is it another program, or was vLLM started with --disable-log-stats?"
        )
    return Reading(
        {
            engine: _counters(mine, positions.get(engine, {}), bounds.get(engine, {}))
            for engine, mine in values.items()
        },
        started.pop() if len(started) == 1 else None,
    )


def fell(before: Reading, after: Reading) -> bool:
    """Whether the server restarted between two readings: a counter is lower than it was, or its process is another.

    A counter that either of them does not tell says nothing.
    """
    if before.started is not None and after.started is not None and abs(after.started - before.started) > 1:
        return True
    return any(
        getattr(now, name) < getattr(before.engines[engine], name) - 0.5
        for engine, now in after.engines.items()
        if engine in before.engines
        for name in COUNTERS
        if name not in now.missing | before.engines[engine].missing
    )


def between(before: Counters, after: Counters) -> Counters:
    """What happened between two readings of one engine; gauges as they are now. Missing: what either does not tell."""
    missing = before.missing | after.missing
    values = {
        name: 0.0 if name in missing else max(getattr(after, name) - getattr(before, name), 0.0)
        for name in COUNTERS
    }
    old = before.accepted_by_position + (0.0,) * len(after.accepted_by_position)
    by_position = tuple(max(b - a, 0.0) for a, b in zip(old, after.accepted_by_position, strict=False))
    gauges = {name: getattr(after, name) for name in GAUGES}
    latencies = {
        name: histograms.since(before.latencies.get(name, ()), buckets)
        for name, buckets in after.latencies.items()
    }
    return Counters(
        **values, **gauges, accepted_by_position=by_position, latencies=latencies, missing=missing
    )


def total(parts: list[Counters]) -> Counters:
    """Several engines together; the share of the cache in use is the mean. At least one."""
    plain = [
        f.name
        for f in fields(Counters)
        if f.name not in ("accepted_by_position", "latencies", "missing", "cache_usage")
    ]
    sums = {name: sum(getattr(part, name) for part in parts) for name in plain}
    K = max(len(part.accepted_by_position) for part in parts)
    by_position = [
        sum(p.accepted_by_position[k] for p in parts if k < len(p.accepted_by_position)) for k in range(K)
    ]
    return Counters(
        **sums,
        cache_usage=sum(part.cache_usage for part in parts) / len(parts),
        accepted_by_position=tuple(by_position),
        latencies={
            name: histograms.together(part.latencies.get(name, ()) for part in parts)
            for name in histograms.HISTOGRAMS
        },
        missing=frozenset.union(*(part.missing for part in parts)),
    )


def _counters(
    mine: Mapping[str, float], positions: Mapping[int, float], bounds: Mapping[str, Mapping[float, float]]
) -> Counters:
    values, missing = {}, set()
    for each, names in {**COUNTERS, **GAUGES}.items():
        found = next((mine[name] for name in names if name in mine), None)
        values[each] = found or 0.0
        if found is None:
            missing.add(each)
    latencies = {
        each: histograms.of_bounds(next(bounds[name] for name in names if name in bounds))
        for each, names in histograms.HISTOGRAMS.items()
        if any(name in bounds for name in names)
    }
    K = max(positions, default=-1) + 1
    by_position = tuple(positions.get(k, 0.0) for k in range(K))
    return Counters(
        **values, accepted_by_position=by_position, latencies=latencies, missing=frozenset(missing)
    )


def _engine(labels: Labels) -> str:
    """An engine's number, and where it is, if the labels say so: shares of two servers are no sum.

    Every label that vLLM does not split by tells engines apart; those that name servers stand first.
    """
    number = labels.get("engine", "0")
    others = sorted(labels.keys() - NOT_A_SOURCE - set(SOURCES))
    source = "/".join(labels[name] for name in (*SOURCES, *others) if labels.get(name))[:LONGEST_SOURCE]
    return f"{number} at {source}" if source else number


def _bound(labels: Labels) -> float | None:
    """The upper bound of a bucket, None where its label is none."""
    try:
        bound = float(labels.get("le", ""))
    except ValueError:
        return None
    return bound if bound > 0 else None


def _name(line: str) -> str:
    """The name that a sample's line begins with."""
    return line.partition("{")[0].split(maxsplit=1)[0]


def _position(labels: Labels) -> int | None:
    """The draft position of a sample, None where its label is none."""
    text = labels.get("position", "")
    if not (text.isascii() and text.isdigit() and len(text) <= 4):
        return None
    return int(text) if int(text) < MOST_POSITIONS else None
