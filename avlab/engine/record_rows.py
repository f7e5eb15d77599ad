"""`python -m avlab.engine.record_rows` writes what the Sampling bias page shows of the real model without a worker."""

import json
from pathlib import Path

from avlab.config import RunConfig
from avlab.engine.audit.audit import Audit
from avlab.engine.audit.build import load
from avlab.engine.audit.rules import parse
from avlab.teaching.real_rows import FILE, OTHERS, shortened

PROMPTS = (
    "What is the capital of France?",
    "Write a short story about a lighthouse.",
    "Name one famous scientist.",
    "Write a Python function that adds two numbers.",
    "Give me one word that describes the sea.",
    "Is seven a prime number?",
)


def record(path: Path = FILE) -> None:
    """Rows of the default target and the shipped drafter behind each prompt, at temperature 1."""
    target, drafter, text = load(RunConfig.make(), K=1)
    found = []
    for prompt in PROMPTS:
        audit = Audit(target, drafter, text.encode([{"role": "user", "content": prompt}]), parse("none"))
        ids, p, q = shortened(audit.one, audit.draft_row())
        names = [*(text.piece(token).replace("\n", "⏎").strip() or "␣" for token in ids), OTHERS]
        found.append(
            {"prompt": prompt, "names": names, "target": p.round(6).tolist(), "draft": q.round(6).tolist()}
        )
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record()
    print(f"Recorded {len(PROMPTS)} prompts in {FILE}.")
