"""A run that kept no drafts in order, as a parametric trace: from the sums that a vLLM server's record holds.

The worker extension sums, by position and bin of the maximum's log-odds, how many verified slots there were and how
many of them were accepted. A trace drawn from these sums has the run's rates by position, its AUC and its reliability,
bin by bin, and the lengths of its requests. What the sums do not hold it does not have: its slots are independent,
those of a step as well as those of a request.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from avlab.replay.about import PARAMETRIC, About, TraceError
from avlab.replay.declared import LONGEST_NAME, MOST_K
from avlab.replay.trace import MOST_TOKENS, Trace
from avlab.speculation.calibration import BINS, bin_edges

LEAST = 30  # verified slots of a position: fewer tell no rate, chosen here
TEXTS, TOKENS, PROMPT_TOKENS = 200, 256, 256  # where the run does not tell its requests' lengths
MOST_ANCHORS = 1_000_000
FEATURE = "max_log_odds"


def of_record(folder: Path, seed: int = 0) -> Trace:
    """The trace of a run in an export's folder, of our own making, in Parquet. Raises TraceError."""
    try:
        run = pq.read_table(folder / "runs.parquet").to_pylist()[0]
        steps = pq.read_table(
            folder / "steps.parquet", columns=["block", "scheduled", "admitted", "accepted"]
        )
        sums = pq.read_table(folder / "calibration.parquet")
        requests = pq.read_table(folder / "requests.parquet").to_pylist()
        settings = json.loads(run["config"])
    except (OSError, pa.ArrowException, KeyError, IndexError, ValueError) as error:
        raise TraceError(
            f"The run cannot be read ({str(error).splitlines()[0]}): export it, and look."
        ) from None
    K, whole = int(run["K"] or 0), _verified_blocks(steps.to_pylist())
    if not 0 < K <= MOST_K or not whole:
        raise TraceError(
            "The run has no stretch in which every draft was verified: hold verification at all drafts "
            "(avlab window), or serve without adaptive verification."
        )
    counts = np.zeros((K, BINS, 2))
    for row in sums.to_pylist():
        position, number = int(row["position"]), int(row["bin"])
        if row["source"] == "raw" and row["block"] in whole and 0 <= position < K and 0 <= number < BINS:
            counts[position, number] += row["count"], row["positives"]
    if counts[0].sum() == 0:
        raise TraceError(
            "The run holds no sums of its drafts' log-odds: record a vLLM server with the worker extension and "
            "adaptive verification, or give its rates to avlab trace parametric."
        )
    lengths = np.array(
        [
            (row["prompt_tokens"], row["output_tokens"])
            for row in requests
            if row["finish"] in ("end", "length")
            and 1 <= (row["prompt_tokens"] or 0) <= MOST_TOKENS
            and 2 <= (row["output_tokens"] or 0) <= MOST_TOKENS
        ]
        or [(PROMPT_TOKENS, TOKENS)] * TEXTS
    )
    note = f"rates, ranking and reliability of a run of {run['kind']}, {int(counts[0, :, 0].sum()):,} drafts"
    target = str(run["target"] or "unknown")[:LONGEST_NAME]
    drafter = str(run["drafter"] or "none")[:LONGEST_NAME]
    return drawn(counts, lengths, target, drafter, int(settings.get("seed") or 0) + seed, note)


def _verified_blocks(steps: list[dict[str, Any]]) -> set[int]:
    """The blocks in which as many drafts were verified as were scheduled, and some were."""
    told: dict[int, list[int]] = {}
    for step in steps:
        scheduled, admitted = step["scheduled"], step["admitted"]
        known = scheduled is not None and admitted is not None
        both = told.setdefault(step["block"], [0, 0])
        both[0] += sum(scheduled) if known else 1
        both[1] += sum(admitted) if known else 0
    return {block for block, (scheduled, admitted) in told.items() if scheduled and scheduled == admitted}


def drawn(counts: np.ndarray, lengths: np.ndarray, target: str, drafter: str, seed: int, note: str) -> Trace:
    """A trace of slots drawn from sums. counts: [K, BINS, 2] verified and accepted slots; lengths: [T, 2] prompt and
    output tokens of each text. Raises TraceError where a position has too few slots, from that position on."""
    seen = counts[:, :, 0].sum(axis=1)
    K = int((seen >= LEAST).cumprod().sum())
    if not K:
        raise TraceError(
            f"The run verified {int(seen[0]):,} drafts at their first position: let it serve {LEAST} or more."
        )
    rng, (prompt, output) = np.random.default_rng([seed, 7]), lengths.T.astype(np.int64)
    A = int((output - 1).sum())
    if A > MOST_ANCHORS:
        keep = int(np.searchsorted(np.cumsum(output - 1), MOST_ANCHORS))
        prompt, output = prompt[:keep], output[:keep]
        A = int((output - 1).sum())
    first = np.cumsum(output - 1) - (output - 1)
    edges = bin_edges()
    features, chance = np.zeros((A, K, 1), dtype=np.float32), np.zeros((A, K), dtype=np.float32)
    for k in range(K):
        number = rng.choice(BINS, A, p=counts[k, :, 0] / seen[k])
        features[:, k, 0] = edges[number] + rng.random(A) * (edges[1] - edges[0])
        chance[:, k] = counts[k, number, 1] / counts[k, number, 0]
    left = np.repeat(first + output - 1, output - 1) - np.arange(A)
    accepted = np.minimum((rng.random((A, K)) < chance).cumprod(axis=1).sum(axis=1), left)
    about = About(K, (FEATURE,), target, drafter, seed, 1.0, 1.0, 0, origin=PARAMETRIC, note=note)
    return Trace(
        about=about,
        kind=np.array(["parametric"] * len(output), dtype=object),
        prompt_tokens=prompt,
        output_tokens=output,
        limit=np.full(len(output), output.max()),
        first=first,
        accepted=accepted,
        features=features,
        acceptance=chance,
    )
