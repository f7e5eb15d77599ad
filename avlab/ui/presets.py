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
        "Card's sampling",
        "Temperature 0.2, top-p 0.9, as the shipped target's card recommends: drafts are nearly sure, or hopeless.",
        {"temperature": 0.2, "top_p": 0.9},
    ),
    Preset(
        "Temperature 1",
        "The model's own distribution, nothing cut: acceptance is near chance, and estimates hardly rank drafts.",
        {"temperature": 1.0, "top_p": 1.0},
    ),
    Preset(
        "Greedy",
        "Temperature 0: a draft token is accepted exactly if it is the target's likeliest.",
        {"temperature": 0.0},
    ),
)
