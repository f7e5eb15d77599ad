"""Acceptance by position: of a trace, and from what others publish of theirs."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from avlab.replay.about import TraceError
from avlab.replay.trace import Trace

LARGEST_PROFILE = 10_000_000  # bytes
LONGEST_NAME = 60


def rates_of(trace: Trace) -> list[float | None]:
    """The chance that a slot is accepted given that those before it were, over all anchors; None where none was."""
    left = np.minimum(trace.left(), trace.slots())
    found: list[float | None] = []
    for k in range(trace.about.K):
        reached = (trace.accepted >= k) & (left > k)
        found.append(float((trace.accepted[reached] > k).mean()) if reached.any() else None)
    return found


def of_profile(path: Path) -> tuple[tuple[float, ...], str]:
    """Rates and a name from a speculation_profile.json, as NVIDIA's Model Optimizer writes it (schema 1.0).

    Its conditional_accept_rates are used, or what its marginal_accept_rates say. Raises TraceError.
    """
    from avlab.replay.parametric import conditional

    try:
        if path.stat().st_size > LARGEST_PROFILE:
            raise TraceError(
                f"{path} holds more than {LARGEST_PROFILE:,} bytes: that is no speculation profile."
            )
        plain: Any = json.loads(path.read_bytes())
    except OSError as error:
        raise TraceError(f"The profile {path} cannot be read: {error.strerror or error}.") from None
    except (ValueError, RecursionError):
        raise TraceError(f"{path} is not JSON: give a speculation_profile.json.") from None
    if not isinstance(plain, dict):
        raise TraceError(f"{path} is not a speculation profile: it holds no object.")
    if plain.get("measured") is False:
        raise TraceError(f"{path} is a placeholder: nothing was measured for it yet.")
    if plain.get("verification_method", "longest_prefix") != "longest_prefix":
        raise TraceError(f"{path} was measured under block verification, which has no rates by position.")
    if "conditional_accept_rates" in plain:
        rates = _numbers(path, plain["conditional_accept_rates"])
    elif "marginal_accept_rates" in plain:
        rates = conditional(_numbers(path, plain["marginal_accept_rates"]))
    else:
        raise TraceError(f"{path} holds neither conditional_accept_rates nor marginal_accept_rates.")
    return rates, f"rates of {path.name[:LONGEST_NAME]}"


def _numbers(path: Path, value: Any) -> tuple[float, ...]:
    if not isinstance(value, list) or not all(
        isinstance(each, int | float) and not isinstance(each, bool) for each in value
    ):
        raise TraceError(f"{path}: rates are a list of numbers.")
    return tuple(map(float, value))
