"""`python -m avlab.bias.audit.record_rows` writes what the Sampling bias page shows of the model without a worker."""

import json
from pathlib import Path

from avlab.bias.audit.tasks import rows_at
from avlab.bias.real_rows import FILE
from avlab.config import RunConfig
from avlab.speculation.sampling import MODELS_OWN

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
    found = list(rows_at(RunConfig.make(MODELS_OWN._asdict()), PROMPTS))
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record()
    print(f"Recorded {len(PROMPTS)} prompts in {FILE}.")
