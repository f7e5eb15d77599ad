"""Answers of experiments with the parts that a test gives; all else is empty or 0."""

from dataclasses import fields

from avlab.experiments.answers import ABAnswer, ArmSeen, Ledger, Point, PromptAdjustment
from avlab.store.experiment_rows import RecordedPlan


def ledger(**lines):
    return Ledger(**{field.name: 0.0 for field in fields(Ledger)} | lines)


def recorded_plan(arms=("fixed:5", "none"), baseline="fixed:5", rounds=40, concurrency=16, **more):
    return RecordedPlan(list(arms), baseline, rounds, concurrency, time=0.0, step=0, **more)


def seen(**known):
    return ArmSeen(**{"tokens_per_s": None, "ledger": None} | known)


def ab_answer(**parts):
    nothing = {"plan": recorded_plan(), "seconds_a_round": None, "prompts": PromptAdjustment(0.0, 0.0, False)}
    nothing |= {
        "run_id": "",
        "state": "finished",
        "workload": "chat",
        "sampling": "temperature 1",
        "rounds": 0,
    }
    nothing |= {"arms": {}, "best_fixed": None, "slo": None}
    nothing |= {name: [] for name in ("dropped", "results", "adaptive", "verdicts", "why")}
    return ABAnswer(**nothing | parts)


def point(arm, load, tokens, users, p95=10.0, **more):
    ends = {f"{name}_{end}": None for name in ("tokens_per_s", "interactivity") for end in ("low", "high")}
    rest = {"repeats": 1, "ledger": ledger(tokens_per_step=2.5), "p50_tpot_ms": 8.0, "p50_ttft_ms": None}
    known = {"arm": arm, "load": load, "tokens_per_s": tokens, "interactivity": users, "p95_tpot_ms": p95}
    return Point(**ends | rest | known | {"dominated": False} | more)
