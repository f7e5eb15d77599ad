"""Step costs from elsewhere as a machine: the lab's cost files, and the tables of SGLang and TensorRT-LLM.

Each is JSON. What a file does not say (drafting apart from the pass, sizes that are captured) the machine says that it
does not know.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from avlab.machines.description import LARGEST_FILE, LARGEST_SIZE, MOST_SAMPLES, MachineError
from avlab.speculation.costs import MOST_MS

MOST_DIGITS = 6  # of a number in a machine's file


@dataclass(frozen=True, slots=True)
class Imported:
    """Samples of drafts (requests, depth, ms) and of the target's pass (tokens, ms). by_depth: whether a shallower
    draft is cheaper. engine: whose table it is. missing: what it does not say, as sentences."""

    draft: list[tuple[int, int, float]]
    verify: list[tuple[int, float]]
    by_depth: bool
    engine: str
    missing: tuple[str, ...] = ()


def read_table(path: Path) -> Imported:
    """Step costs from a file of any known form. Raises MachineError with one sentence."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise MachineError(
                f"{path} holds more than {LARGEST_FILE:,} bytes: a table of step costs is small."
            )
        plain = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MachineError(f"The table {path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise MachineError(f"{path} is no JSON ({error}).") from None
    if not isinstance(plain, dict):
        raise MachineError(f"{path} is no table of step costs: it holds no JSON object.")
    for needs, make in FORMS:
        if needs <= plain.keys():
            try:
                return make(plain)
            except ValueError as problem:
                raise MachineError(f"{path} is no table of step costs: {problem}.") from None
    forms = "; or ".join(", ".join(sorted(needs)) for needs, _ in FORMS)
    raise MachineError(f"{path} is no table of step costs that is known here: one has {forms}.")


def _own(plain: Mapping[str, object]) -> Imported:
    """The lab's own: draft [requests, depth, ms], verify [tokens, ms]."""
    draft = [(_size(r), _size(d), _ms(ms)) for r, d, ms in _rows(plain, "draft", 3)]
    verify = [(_size(t), _cost(ms)) for t, ms in _rows(plain, "verify", 2)]
    missing = () if draft else ("The table has no drafts: they cost nothing here.",)
    return Imported(draft or [(1, 1, 0.0)], verify, True, "avlab", missing)


def _diagonal(plain: Mapping[str, object]) -> Imported:
    """SGLang's steps a second by tokens of the step, drafting included."""
    tokens, rates = _numbers(plain, "sample_batch_tokens"), _numbers(plain, "sample_steps_per_sec")
    if len(tokens) != len(rates):
        raise ValueError(f"{len(tokens)} sizes have {len(rates)} rates")
    if any(rate <= 0 for rate in rates):
        raise ValueError("a rate is not above 0")
    _measured(rates)
    verify = [(_size(t), _cost(1e3 / rate)) for t, rate in zip(tokens, rates, strict=True)]
    return Imported([(1, 1, 0.0)], verify, False, "SGLang", (DRAFT_IN_STEP,))


def _additive(plain: Mapping[str, object]) -> Imported:
    """SGLang's bias + alpha(requests) + theta(tokens), seconds."""
    bias = _numbers({"bias_seconds": [plain["bias_seconds"]]}, "bias_seconds")[0]
    parts = {}
    for sizes, costs in (("bs_probes", "alpha_seconds"), ("m_probes", "theta_seconds")):
        at, seconds = _numbers(plain, sizes), _numbers(plain, costs)
        if len(at) != len(seconds):
            raise ValueError(f"{sizes} has {len(at)} sizes and {costs} {len(seconds)} costs")
        parts[sizes] = list(zip(at, seconds, strict=True))
    draft = [(_size(r), 1, _ms(1e3 * each)) for r, each in parts["bs_probes"]]
    verify = [(_size(t), _cost(1e3 * (bias + each))) for t, each in parts["m_probes"]]
    return Imported(draft, verify, False, "SGLang", (BY_REQUESTS_IS_DRAFT,))


def _whole_step(plain: Mapping[str, object]) -> Imported:
    """TensorRT-LLM's milliseconds of a step by tokens given to the target."""
    tokens, costs = _numbers(plain, "token_counts"), _numbers(plain, "step_time_ms")
    if len(tokens) != len(costs):
        raise ValueError(f"token_counts has {len(tokens)} sizes and step_time_ms {len(costs)} costs")
    _measured(costs)
    verify = [(_size(t), _cost(ms)) for t, ms in zip(tokens, costs, strict=True)]
    return Imported([(1, 1, 0.0)], verify, False, "TensorRT-LLM", (DRAFT_IN_STEP,))


def _measured(costs: Sequence[float]) -> None:
    """Raises ValueError for the placeholder with which both engines start: every size costs the same there."""
    if len(set(costs)) < 2:
        raise ValueError("it is flat, a placeholder that nobody has measured")


DRAFT_IN_STEP = (
    "Drafting is part of every step of this table, so a step without drafts looks as dear as one with them."
)
BY_REQUESTS_IS_DRAFT = "What a step takes by requests counts as drafting: the table does not tell them apart."
FORMS: tuple[tuple[frozenset[str], Callable[[Mapping[str, object]], Imported]], ...] = (
    (frozenset({"draft", "verify"}), _own),
    (frozenset({"bias_seconds", "bs_probes", "alpha_seconds", "m_probes", "theta_seconds"}), _additive),
    (frozenset({"sample_batch_tokens", "sample_steps_per_sec"}), _diagonal),
    (frozenset({"token_counts", "step_time_ms"}), _whole_step),
)


def _rows(plain: Mapping[str, object], name: str, width: int) -> list[list[float]]:
    rows = plain[name]
    if not isinstance(rows, list) or len(rows) > MOST_SAMPLES:
        raise ValueError(f"{name} is no list of at most {MOST_SAMPLES:,} rows")
    for row in rows:
        if not isinstance(row, list) or len(row) != width:
            raise ValueError(f"a row of {name} does not hold {width} numbers")
    return [[_number(each, name) for each in row] for row in rows]


def _numbers(plain: Mapping[str, object], name: str) -> list[float]:
    values = plain[name]
    if not isinstance(values, list) or not 1 <= len(values) <= MOST_SAMPLES:
        raise ValueError(f"{name} is no list of 1 to {MOST_SAMPLES:,} numbers")
    return [_number(value, name) for value in values]


def _number(value: object, name: str) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or abs(value) > 1e15
        or not math.isfinite(value)
    ):
        raise ValueError(f"{name} holds {str(value)[:40]!r}, which is no number")
    return float(value)


def _size(value: float) -> int:
    if value != int(value) or not 0 <= value <= LARGEST_SIZE:
        raise ValueError(f"a size is {value:g}, not a whole number from 0 to {LARGEST_SIZE:,}")
    return int(value)


def _ms(value: float) -> float:
    if not 0 <= value <= MOST_MS:
        raise ValueError(f"a cost is {value:g} ms, not 0 to {MOST_MS:,.0f}")
    return value


def _cost(value: float) -> float:
    if not 0 < value <= MOST_MS:
        raise ValueError(f"a cost is {value:g} ms, not above 0 and at most {MOST_MS:,.0f}")
    return value


def text_of(
    table: Imported,
    title: str,
    model: str,
    source: str,
    gpu: str = "unknown",
    gpus: int = 1,
    trust: str = "imported",
    captured: int = 0,
    step_ms: float = 0.0,
    row_ms: float = 0.0,
    prompt_saves_ms: float = 0.0,
    prefill_tokens: int = 2048,
    most_requests: int | None = None,
) -> str:
    """The file of a machine with these costs. most_requests: None for the most that was timed, at least 1,024 where
    drafts do not depend on requests."""
    most = most_requests or max(
        max(r for r, *_ in table.draft), 1024 if not any(ms for *_, ms in table.draft) else 1
    )
    tokens = max(max(t for t, _ in table.verify), 1)
    lines = [f"# {sentence}" for sentence in table.missing]
    for name, value in {
        "title": title,
        "model": model,
        "gpu": gpu,
        "gpus": gpus,
        "engine": table.engine,
        "source": source,
        "licence": "the reader's own",
        "trust": trust,
        "captured": captured,
        "most_requests": most,
        "most_tokens": tokens,
        "step_ms": round(step_ms, MOST_DIGITS),
        "row_ms": round(row_ms, MOST_DIGITS),
        "prompt_saves_ms": round(prompt_saves_ms, MOST_DIGITS),
        "prefill_tokens": prefill_tokens,
    }.items():
        # a string of JSON is one of TOML where only control characters are escaped
        lines.append(f"{name} = {json.dumps(value, ensure_ascii=False)}")
    by_depth = json.dumps(table.by_depth)
    lines += [
        "",
        "[draft]",
        f"by_depth = {by_depth}",
        "samples = [  # requests, depth, ms",
        *_lines(table.draft),
        "]",
    ]
    lines += ["", "[verify]", "samples = [  # tokens in the target's pass, ms", *_lines(table.verify), "]"]
    return "\n".join(lines) + "\n"


def _lines(samples: Sequence[tuple[float, ...]]) -> list[str]:
    each = ["[" + ", ".join(map(str, sizes)) + f", {round(ms, MOST_DIGITS)!r}]" for *sizes, ms in samples]
    return ["    " + ", ".join(each[i : i + 8]) + "," for i in range(0, len(each), 8)]
