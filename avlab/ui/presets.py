"""Settings to begin with: what each shows, and the values that differ from the defaults.

Those of replays state emulated ratios over the best fixed length, of `avlab replay frontier`, with 95 % intervals.
"""

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

REPLAY_PRESETS = (
    Preset(
        "Adaptive wins",
        "B300, greedy text, 16 requests. Drafts are nearly sure or hopeless, all are made at once, and a token more "
        "costs little: 1.07 × [1.04, 1.10] the best fixed length, emulated. Watch verified drafts per request vary; "
        "set the policy to fixed:7, then fixed:2, and see tokens/s fall.",
        {"trace": "greedy"},
    ),
    Preset(
        "Adaptive loses",
        "RTX PRO 6000 with an EAGLE-3 head, 16 requests. Seven drafts are made one after another and paid before any "
        "is trimmed: 0.89 × [0.88, 0.89] of fixed:3, emulated. Watch the draft's share of a step; set the policy to "
        "adaptive+depth, which reaches 1.00.",
        {"machine": "rtx-pro-6000-llama-3.1-8b"},
    ),
    Preset(
        "High load",
        "The same GPU with 128 requests. Even four drafts a request are too many: adaptive+depth makes one or none, "
        "1.03 × [1.02, 1.05] of fixed:1, emulated. Watch the depth follow the load.",
        {"machine": "rtx-pro-6000-llama-3.1-8b", "policy": "adaptive+depth", "arrival": "closed:128"},
    ),
)
