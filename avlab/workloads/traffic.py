"""What the serving loop asks: which requests have arrived by now?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from . import drift, files, mixture
from .arrivals import Arrivals, Moment, open_arrivals
from .base import SPLITS, Prompt, WorkloadError
from .registry import kinds
from .stream import KindStream, Stream

DEFAULT_ARRIVAL = "closed:16"


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt that has arrived. `index` counts from 0; `arrival` is in seconds since the run began;
    `max_new_tokens` is the most tokens to generate, in tokens of the target."""

    index: int
    prompt: Prompt
    arrival: float
    max_new_tokens: int

    @property
    def kind(self) -> str:
        return self.prompt.kind


class Workload:
    """A stream of prompts and the pattern in which they arrive. notes: what of a file is not served, as sentences."""

    def __init__(
        self,
        name: str,
        stream: Stream,
        arrivals: Arrivals,
        max_new_tokens: int | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.name, self.stream, self.arrivals = name, stream, arrivals
        self.max_new_tokens = max_new_tokens
        self.notes = notes
        self._count = 0

    @property
    def exhausted(self) -> bool:
        """True when no further request will come."""
        return self.stream.exhausted or self.arrivals.exhausted

    def due(self, moment: Moment) -> list[Request]:
        """The requests that have arrived since the last call, in the order of their arrival."""
        requests = []
        for arrival in self.arrivals.due(moment):
            if self.stream.exhausted:
                break
            prompt = self.stream.take(moment._replace(seconds=arrival))
            requests.append(
                Request(self._count, prompt, arrival, self.max_new_tokens or prompt.max_new_tokens)
            )
            self._count += 1
        return requests

    def wait(self, moment: Moment) -> float | None:
        """Seconds an idle loop can sleep before it asks again; None when no request will come."""
        return None if self.exhausted else self.arrivals.wait(moment)


def known_workloads() -> dict[str, str]:
    """What `open_workload` understands: name or form, and what it is."""
    return {
        **{name: kind.description for name, kind in kinds().items()},
        "mixed": "every kind, equally often",
        "mixture:KIND=WEIGHT,...": "some kinds, as often as their weights say",
        "drift:KIND,KIND@60s": "one kind, then the next, after so many s, steps or requests",
        "file:PATH": "your own prompts, one JSON object a line, with their arrival times if they have any",
    }


def open_workload(
    spec: str,
    arrivals: str | None = None,
    *,
    seed: int = 0,
    split: str = "held-out",
    max_new_tokens: int | None = None,
    repeat: bool = False,
    strict: bool = False,
) -> Workload:
    """The workload that `spec` names, arriving as the pattern `arrivals` says.

    `known_workloads()` lists the forms of `spec`, `arrivals.PATTERNS` those of `arrivals`. Without a pattern
    a file with arrival times is replayed, and anything else is "closed:16". `split` says which side of the
    built-in prompts is used. `max_new_tokens` replaces the kinds' suggestions, and fills in where a file has
    no limit of its own. `repeat` starts a file again at its end. `strict` refuses a file with an entry that cannot be
    served as it asks. Raises WorkloadError.
    """
    if split not in SPLITS:
        raise WorkloadError(f"there is no split named {split!r}; the known ones are {', '.join(SPLITS)}.")
    if max_new_tokens is not None and max_new_tokens < 1:
        raise WorkloadError(
            f"a limit of {max_new_tokens} new tokens leaves nothing to generate; give 1 or more."
        )
    name, _, argument = spec.strip().partition(":")
    times = None
    if name == "file":
        found = files.read_prompts(argument, max_new_tokens or files.DEFAULT_MAX_NEW_TOKENS, strict)
        entries = found.entries
        if all(entry.arrival is not None for entry in entries):
            entries = sorted(entries, key=lambda entry: entry.arrival or 0.0)
            times = [entry.arrival or 0.0 for entry in entries]
        stream: Stream = files.FileStream([entry.prompt for entry in entries], repeat)
        pattern = arrivals or (DEFAULT_ARRIVAL if times is None else "replay")
        return Workload(spec, stream, open_arrivals(pattern, seed, times), notes=found.notes)
    stream = open_stream(spec, list(kinds()), lambda kind: KindStream(kind, split, seed), seed)
    return Workload(spec, stream, open_arrivals(arrivals or DEFAULT_ARRIVAL, seed), max_new_tokens)


def open_stream(spec: str, names: Sequence[str], open_named: Callable[[str], Stream], seed: int) -> Stream:
    """The stream that `spec` names: a kind, mixed, a mixture or a drift. names: of the kinds that open_named opens.

    Raises WorkloadError.
    """
    spec = spec.strip()
    name, colon, argument = spec.partition(":")

    def open_kind(kind: str) -> Stream:
        if kind not in names:
            raise _unknown(kind, names)
        return open_named(kind)

    def open_stage(stage: str) -> Stream:
        return open_mixed() if stage == "mixed" else open_kind(stage)

    def open_mixed() -> Stream:
        return mixture.parse(",".join(names), open_kind, seed)

    forms: dict[str, Callable[[], Stream]] = {
        "mixture": lambda: mixture.parse(argument, open_kind, seed),
        "drift": lambda: drift.parse(argument, open_stage),
    }
    return forms[name]() if colon and name in forms else open_stage(spec)


def _unknown(name: str, names: Sequence[str]) -> WorkloadError:
    forms = [form for form in known_workloads() if form not in kinds()]
    return WorkloadError(
        f"there is no workload named {name!r}; the known ones are {', '.join([*names, *forms])}."
    )
