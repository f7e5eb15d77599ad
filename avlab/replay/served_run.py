"""A run that kept every raw draft and verified them all, as a trace: from the folder that `avlab export` writes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from avlab.replay.about import SERVED, About, TraceError
from avlab.replay.served import filled
from avlab.replay.trace import Trace

COPYING = ("ngram", "suffix")  # drafters without logits
SAMPLING = ("temperature", "top_p", "top_k")


def kept_drafts(folder: Path) -> bool:
    """Whether an exported run holds raw drafts. Raises TraceError."""
    try:
        return pq.read_metadata(folder / "drafts.parquet").num_rows > 0
    except (OSError, pa.ArrowException) as error:
        raise TraceError(
            f"The run cannot be read ({str(error).splitlines()[0]}): export it, and look."
        ) from None


def of_export(folder: Path) -> tuple[Trace, int]:
    """The trace, and how many requests were left out: drafts of theirs are missing. Raises TraceError.

    folder: of our own making, in Parquet.
    """
    try:
        runs, requests, drafts = (
            pq.read_table(folder / f"{name}.parquet") for name in ("runs", "requests", "drafts")
        )
        run = runs.to_pylist()[0]
        settings = json.loads(run["config"])
    except (OSError, pa.ArrowException, KeyError, IndexError, ValueError) as error:
        raise TraceError(
            f"The run cannot be read ({str(error).splitlines()[0]}): export it, and look."
        ) from None
    if not drafts.num_rows:
        raise TraceError("The run kept no raw drafts: serve it with --drafts all and a policy as fixed:7.")
    if not drafts["admitted"].combine_chunks().true_count == drafts.num_rows:
        raise TraceError(
            "The run did not verify every draft: serve it with a policy as fixed:7, and --drafts all."
        )
    if settings.get("drafts") not in (None, "all"):
        raise TraceError("The run kept a sample of its drafts, not all: serve it with --drafts all.")
    drafter = str(run["drafter"] or "none")
    if drafter.partition(":")[0] in COPYING:
        raise TraceError(
            f"The run's drafter, {drafter}, may find nothing to draft, which raw drafts do not show: record a trace of "
            "it with `avlab trace record`."
        )
    rows = requests.to_pylist()
    samplings = {tuple(row[name] for name in SAMPLING) for row in rows}
    if len(samplings) != 1:
        raise TraceError(f"The run's requests have {len(samplings)} samplings; a trace has one.")
    temperature, top_p, top_k = samplings.pop()
    K, names = int(run["K"]), tuple(run["features"] or ())
    if not K or not names:
        raise TraceError("The run recorded no features of its drafts: there is nothing to decide by.")
    by_request = _by_request(drafts, K, len(names))
    texts = [row for row in rows if row["finish"] in ("end", "length") and row["output_tokens"] >= 2]
    kept, parts = [], []
    for row in sorted(texts, key=lambda row: row["request"]):
        part = _text(by_request.get(row["request"]), row["output_tokens"] - 1, K, len(names))
        if part is not None:
            kept.append(row)
            parts.append(part)
    if not parts:
        raise TraceError("No request of the run has all its drafts: let it serve longer, with --drafts all.")
    accepted, features, visited = (np.concatenate(each) for each in zip(*parts, strict=True))
    output = np.array([row["output_tokens"] for row in kept])
    seed = int(settings.get("seed", 0))
    about = About(
        K, names, run["target"], drafter, seed, temperature, top_p, top_k, SERVED,
        f"served by {run['kind']}, {visited.mean():.0%} of anchors visited",
    )  # fmt: skip
    trace = Trace(
        about=about,
        kind=np.array([row["kind"] or "unknown" for row in kept], dtype=object),
        prompt_tokens=np.array([row["prompt_tokens"] for row in kept]),
        output_tokens=output,
        limit=np.full(len(kept), output.max()),  # a run does not tell what else a text might have had
        first=np.cumsum(output - 1) - (output - 1),
        accepted=accepted,
        features=features,
        acceptance=np.full((len(accepted), K), np.nan, dtype=np.float32),
    )
    return filled(trace, visited, seed), len(texts) - len(kept)


def _by_request(drafts: pa.Table, K: int, F: int) -> dict[int, list[tuple[int, np.ndarray]]]:
    """Of each request its steps in order: draft tokens accepted, and features [K, F]."""
    drafts = drafts.sort_by([("request", "ascending"), ("step", "ascending"), ("position", "ascending")])
    request, step, position = (drafts[name].to_numpy() for name in ("request", "step", "position"))
    label = drafts["label"].fill_null(False).to_numpy()
    column = drafts["features"].combine_chunks()
    if not len(column.flatten()) == len(request) * F:
        raise TraceError("The run's drafts do not fit what it says of itself: export it again.")
    values = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, F)
    begins = np.flatnonzero((np.diff(request, prepend=-1) != 0) | (np.diff(step, prepend=-1) != 0))
    found: dict[int, list[tuple[int, np.ndarray]]] = {}
    for begin, end in zip(begins, [*begins[1:], len(request)], strict=True):
        features = np.full((K, F), np.nan, dtype=np.float32)
        features[: end - begin] = values[begin:end]
        features[end - begin :] = values[end - 1]  # where a text had room for fewer, the last slot stands in
        if end - begin > K or (position[begin:end] != np.arange(end - begin)).any():
            raise TraceError("The run's drafts have slots that are missing or doubled: export it again.")
        accepted = int(label[begin:end].cumprod().sum())
        found.setdefault(int(request[begin]), []).append((accepted, features))
    return found


def _text(
    steps: list[tuple[int, np.ndarray]] | None, anchors: int, K: int, F: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """accepted, features and which were visited, of a text's anchors; None where steps are missing.

    A step without room for a draft leaves no row: there may be one, at the text's last anchor.
    """
    accepted, visited = np.zeros(anchors, dtype=np.int64), np.zeros(anchors, dtype=bool)
    features: Any = np.full((anchors, K, F), np.nan, dtype=np.float32)
    at = 0
    for count, values in steps or ():
        if at >= anchors:
            return None
        accepted[at], features[at], visited[at] = min(count, anchors - at), values, True
        at += count + 1
    return (accepted, features, visited) if steps and anchors - 1 <= at <= anchors + 1 else None
