"""Results of other load generators as points of a frontier: `vllm bench serve`, guidellm and AIPerf.

Fields as their own code writes them:
- vLLM 0.32, `vllm/benchmarks/serve.py`: one JSON object a file with `max_concurrency`, `output_throughput` (tokens/s),
  `median_tpot_ms` (else `mean_tpot_ms`), `completed`.
- guidellm 0.2 to 0.7, its report (`--output-path x.json`): `benchmarks`, each with `metrics` as
  `output_tokens_per_second.successful.mean` and `inter_token_latency_ms.successful.median`, and the strategy with its
  `streams` in `config.strategy`, `scheduler.strategy` or `args.strategy`.
- AIPerf, `profile_export_aiperf.json`: `output_token_throughput.avg`, `output_token_throughput_per_user.p50` (else
  avg), and the concurrency in `input_config.loadgen.concurrency`, in a later version under
  `input_config.phases`.

Everything else in a file is passed over. A result without a closed loop's concurrency is no point.
"""

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from avlab.experiments.published import COLUMNS

MOST_BYTES = 256 << 20  # of a file: with --save-detailed every request of a benchmark is in it
MOST_LOAD, MOST_RATE = 1 << 20, 1e9  # requests under way; tokens/s
MOST_POINTS = 10_000


class ForeignResultError(ValueError):
    """A file that holds no such result. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class ForeignPoint:
    """A point of somebody else's frontier. load: requests under way. tokens_per_s: all together; interactivity: of one
    user. tool: which generator says so.
    """

    arm: str
    load: int
    tokens_per_s: float
    interactivity: float
    tool: str


def read_result(path: Path, arm: str) -> list[ForeignPoint]:
    """The points of a file, under the name of an arm. Raises ForeignResultError."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ForeignResultError(
                f"{path} holds more than {MOST_BYTES >> 20} MB: save the summary without its requests."
            )
        text = path.read_text(encoding="utf-8")
        rows = [json.loads(text)]
    except OSError as error:
        raise ForeignResultError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        rows = _lines(text) if not isinstance(error, UnicodeDecodeError) else []
        if not rows:
            raise ForeignResultError(
                f"{path} is no JSON: give the result file of a load generator."
            ) from None
    try:
        found = [point for row in rows for point in _points(row, arm)]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        what = str(error) if isinstance(error, ValueError) else "a field is of another kind"
        raise ForeignResultError(f"{path} cannot be a point of a frontier: {what}.") from None
    if not found:
        raise ForeignResultError(f"{path} is no result of vllm bench serve, guidellm or AIPerf.")
    if len(found) > MOST_POINTS:
        raise ForeignResultError(f"{path} holds more than {MOST_POINTS:,} results.")
    return found


def _lines(text: str) -> list[Any]:
    """JSON lines, as `vllm bench serve --append-result` writes them; [] where they are none."""
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return []


def _points(row: Any, arm: str) -> Iterator[ForeignPoint]:
    if not isinstance(row, Mapping):
        return
    if "output_throughput" in row:
        per_token = row.get("median_tpot_ms") or row.get("mean_tpot_ms")
        yield _point(
            arm, row.get("max_concurrency"), row["output_throughput"], _over(per_token), "vllm bench serve"
        )
    elif isinstance(row.get("benchmarks"), list):
        for each in row["benchmarks"]:
            metrics = each["metrics"]
            latency = metrics["inter_token_latency_ms"]["successful"]
            yield _point(
                arm,
                _streams(each),
                metrics["output_tokens_per_second"]["successful"]["mean"],
                _over(latency.get("median") or latency.get("mean")),
                "guidellm",
            )
    elif "output_token_throughput" in row:
        user = row.get("output_token_throughput_per_user") or {}
        yield _point(
            arm,
            _loadgen(row.get("input_config") or {}),
            row["output_token_throughput"]["avg"],
            user.get("p50") or user.get("avg"),
            "AIPerf",
        )


def _streams(benchmark: Mapping[str, Any]) -> Any:
    """A guidellm benchmark's requests under way."""
    for part in ("config", "scheduler", "args"):
        strategy = (benchmark.get(part) or {}).get("strategy") or {}
        kind = str(strategy.get("type_") or strategy.get("type") or "")
        if kind == "synchronous":
            return 1
        if strategy.get("streams"):
            return strategy["streams"]
        if kind:
            raise ValueError(f"it was measured by {kind} arrivals, not with so many requests under way")
    return None


def _loadgen(config: Mapping[str, Any]) -> Any:
    """AIPerf's requests under way."""
    if concurrency := (config.get("loadgen") or {}).get("concurrency"):
        return concurrency
    phases = config.get("phases")
    known = phases.values() if isinstance(phases, Mapping) else phases if isinstance(phases, list) else ()
    return next(
        (each["concurrency"] for each in known if isinstance(each, Mapping) and each.get("concurrency")), None
    )


def _over(milliseconds: Any) -> float | None:
    return 1e3 / _number(milliseconds, "milliseconds a token") if milliseconds else None


def _point(arm: str, load: Any, rate: Any, user: Any, tool: str) -> ForeignPoint:
    """Raises ValueError for values that cannot be."""
    if load is None:
        raise ValueError("it does not say how many requests were under way")
    if isinstance(load, bool) or not isinstance(load, int) or not 1 <= load <= MOST_LOAD:
        raise ValueError(f"its concurrency is {str(load)[:40]}, not a whole number from 1")
    if user is None:
        raise ValueError("it does not say how fast one user's tokens came: were its answers streamed?")
    return ForeignPoint(arm, load, _number(rate, "tokens/s"), _number(user, "tokens/s for one user"), tool)


def _number(value: Any, name: str) -> float:
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not known or not 0 < value <= MOST_RATE:
        raise ValueError(f"{name} is {str(value)[:40]}, not a number above 0")
    return float(value)


def as_csv(points: Sequence[ForeignPoint]) -> str:
    """The CSV that the Frontier page lays over a frontier of ours, its tools in comments.

    Of an arm and a load that stand there several times, the median result is kept, by tokens/s. Raises
    ForeignResultError without the arm none, by which the page scales.
    """
    by_cell: dict[tuple[str, int], list[ForeignPoint]] = {}
    for point in points:
        by_cell.setdefault((point.arm, point.load), []).append(point)
    if not any(arm == "none" for arm, _ in by_cell):
        raise ForeignResultError(
            "No result is of the arm none, by which the page lays them on a frontier of ours: measure without "
            "speculation, too, and give it as --arm none=FILE."
        )
    text = io.StringIO()
    for tool in sorted({point.tool for point in points}):
        text.write(f"# foreign: measured by {tool}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for (arm, load), each in sorted(by_cell.items()):
        middle = sorted(each, key=lambda point: point.tokens_per_s)[len(each) // 2]
        writer.writerow((arm, load, f"{middle.interactivity:.6g}", f"{middle.tokens_per_s:.6g}"))
    return text.getvalue()
