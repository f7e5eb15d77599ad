"""Settings to begin with: what each shows, and the values that differ from the defaults."""

from typing import Any, NamedTuple


class Preset(NamedTuple):
    name: str
    shows: str
    values: dict[str, Any]


PRESETS = (
    Preset("First look", "16 concurrent requests of every kind, adaptive: watch the estimator learn.", {}),
    Preset(
        "High load",
        "64 concurrent requests: verifying a draft token costs time, so the budget matters.",
        {"arrival": "closed:64"},
    ),
    Preset(
        "Drifting traffic",
        "Code and essays in turn, a minute each: watch the coefficients follow.",
        {"workload": "drift:code,essays@60s"},
    ),
    Preset(
        "Greedy",
        "Temperature 0: a draft token is accepted exactly if it is the target's likeliest.",
        {"temperature": 0.0},
    ),
)
