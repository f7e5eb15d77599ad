"""`speculation_profile.json`: acceptance by position as it travels with a draft checkpoint.

Schema 1.0 of NVIDIA/Model-Optimizer, `examples/specdec_bench/specdec_bench/speculation_profile.py`:
conditional_accept_rates[i] is the chance that draft i + 1 is accepted if the first i were (Dynamo),
marginal_accept_rates[i] that the first i + 1 all are (vLLM's synthetic acceptance), mean_accept_length is 1 + their
sum.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SCHEMA = "1.0"
MOST_BYTES, MOST_K = 1 << 20, 1024
TOLERANCE = 0.02  # of the mean accept length against its marginals, theirs
CHAIN = ("eagle", "draft_model", "mtp")  # whose shorter drafts are prefixes of longer ones


class ProfileError(ValueError):
    """A file that holds no measured acceptance, or a run that has none. The message is one sentence."""


def read_profile(path: Path) -> tuple[float, ...]:
    """The conditional acceptance of each position. Raises ProfileError, also for a stub that nobody measured, one of
    equal rates at every position, and one whose parts contradict each other.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ProfileError(f"{path} holds more than {MOST_BYTES >> 20} MB: a profile is small.")
        told = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfileError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise ProfileError(f"{path} is no JSON.") from None
    if not isinstance(told, Mapping) or "conditional_accept_rates" not in told:
        raise ProfileError(f"{path} is no speculation profile: it lacks conditional_accept_rates.")
    if str(told.get("schema_version", "")).split(".")[0] != "1":
        raise ProfileError(
            f"{path} is of schema {str(told.get('schema_version'))[:20]!r}; 1.0 is known here."
        )
    if told.get("measured") is not True:
        raise ProfileError(f"{path} is a stub that nobody has measured.")
    if told.get("verification_method") not in (None, "longest_prefix"):
        raise ProfileError(f"{path} is of block verification, which by-position rates do not describe.")
    rates = _rates(told["conditional_accept_rates"], path, "conditional_accept_rates")
    if len(rates) > 1 and len(set(rates)) == 1:
        raise ProfileError(f"{path} has one rate at every position: it looks made up, not measured.")
    if told.get("marginal_accept_rates") is not None:
        marginals = _rates(told["marginal_accept_rates"], path, "marginal_accept_rates")
        if len(marginals) != len(rates) or any(
            abs(ours - theirs) > TOLERANCE for ours, theirs in zip(_marginals(rates), marginals, strict=True)
        ):
            raise ProfileError(f"The conditional and the marginal rates of {path} contradict each other.")
    return rates


def profile(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The profile of a run, from its summary. Raises ProfileError where its acceptance is not known by position."""
    K, positions = int(summary["K"] or 0), list(summary["positions"])
    if not K or not positions:
        raise ProfileError("The run has no drafts.")
    conditional = [row["conditional_acceptance"] for row in positions]
    if any(rate is None for rate in conditional) or len(conditional) < K:
        raise ProfileError(
            "The run does not tell conditional acceptance at every position: verification must be known to be fixed, "
            "or each position labelled at least once."
        )
    rates = [min(max(float(rate), 0.0), 1.0) for rate in conditional[:K]]
    marginals = _marginals(rates)
    mean = round(1 + sum(marginals), 6)
    drafter = str(summary["drafter"] or "")
    chain = any(name in drafter.lower() for name in CHAIN)
    return {
        "schema_version": SCHEMA,
        "measured": True,
        "method": None,
        "draft_checkpoint": {"id": _name(drafter)},
        "target_model": {"id": _name(str(summary["target"] or ""))},
        "num_speculative_tokens": K,
        "block_size": None,
        "max_supported_k": K,
        "verification_method": "longest_prefix",
        "conditional_accept_rates": [round(rate, 6) for rate in rates],
        "marginal_accept_rates": [round(rate, 6) for rate in marginals],
        "mean_accept_length": mean,
        "accept_length_model": "chain_analytic" if chain else "measured_per_k",
        "accept_length_by_k": {str(K): mean},
        "acceptance_length_histogram": None,
        "per_category": None,
        "measurement_conditions": {
            "engine": f"avlab, worker {summary['kind']}",
            "workload": summary["workload"],
            "labelled": [row["labelled"] for row in positions[:K]],
        },
        "validation": {
            "mean_consistency": {
                "implied_mean_accept_length": mean,
                "reported_mean_accept_length": mean,
                "abs_delta": 0.0,
                "tolerance": TOLERANCE,
                "passed": True,
            },
            "marginal_monotonicity": {"passed": True, "violations": []},
        },
    }


def _marginals(rates: Sequence[float]) -> list[float]:
    return [math.prod(rates[: k + 1]) for k in range(len(rates))]


def _rates(values: Any, path: Path, name: str) -> tuple[float, ...]:
    if not isinstance(values, list) or not 1 <= len(values) <= MOST_K:
        raise ProfileError(f"{name} of {path} is no list of 1 to {MOST_K} rates.")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ProfileError(f"{name} of {path} holds {str(value)[:40]}, which is no rate from 0 to 1.")
    return tuple(map(float, values))


def _name(path: str) -> str:
    """A checkpoint's own name: no folder of this machine belongs in a file that is handed on."""
    parts = [part for part in path.replace("\\", "/").split("/") if part]
    return (
        "/".join(parts[-2:]) if len(parts) == 2 and not path.startswith("/") else (parts[-1] if parts else "")
    )
