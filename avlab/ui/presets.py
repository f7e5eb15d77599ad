"""Settings to begin with: what each shows, and the values that differ from the defaults."""

from typing import Any, NamedTuple


class Preset(NamedTuple):
    name: str
    shows: str
    values: dict[str, Any]


PRESETS = (
    Preset("First look", "16 requests of every kind, adaptive: the estimator learns while you watch.", {}),
    Preset(
        "High load",
        "64 requests at once: verifying a draft token costs time, so the budget matters.",
        {"arrival": "closed:64"},
    ),
    Preset(
        "Drifting traffic",
        "Code for a minute, essays for a minute, in turn: watch the coefficients follow.",
        {"workload": "drift:code,essays@60s"},
    ),
    Preset(
        "Greedy",
        "Temperature 0: every draft token is right or wrong, nothing is drawn.",
        {"temperature": 0.0},
    ),
)
