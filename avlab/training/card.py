"""The shipped drafter's card: what it is made of, what it was trained on, what it cost, how often it is right."""

import json
from pathlib import Path

TEXT = """# SmolLM2-135M block drafter

A parallel block drafter in the manner of DSpark and DFlash for SmolLM2-135M-Instruct (Apache-2.0; the copied layers
are derived from it). Made by `make train-drafter`; this page is written by the same command.

| | |
| --- | --- |
| drafts | K = {K} positions in one pass, then a recurrence over the drawn tokens |
| layers | {layers}, each started from a copy of the target's layer {key_layers} and reading the keys and values the target cached for it |
| input | the newest token's embedding, the target's final state and the inputs of its layers {state_layers} at the last verified position |
| Markov head | recurrent, rank {markov_rank}; its token input is a projection of the target's embedding, so any target token may come first |
| output head | the target's rows of the {draft_vocabulary:,} tokens to which it gives most mass on the training data, plus the Markov head's; other tokens have probability zero, and sampling stays exact |
| confidence head | on the final state and the Markov state; trained on 1 - total variation |
| weights | {megabytes:.1f} MB: int8 matrices with one scale a row, float32 vectors |

**Data.** {recorded_tokens:,} tokens that the target wrote itself in {dtype}: half of it answers to questions it asked
itself (the chat template up to the user's turn, temperature 1 or 0.8), half answers to the training prompts of the seven
workload kinds (temperature 1, 0.6 and 0). Prompts on the held-out side, chosen by the hash of their text, were never
used. Keys, values and states were recorded as the target computed them.

**Loss.** Cross-entropy to the target's distribution for the first 15 % of the updates, then 0.1 cross-entropy + 0.9 total
variation; binary cross-entropy of the confidence head on 1 - total variation throughout. Positions weigh exp(-k/4).

**Schedule.** {updates:,} updates of 256 anchors with {K} positions and, every other update, of 592 anchors with 3.
AdamW, learning rates 6e-4 (copied weights) and 2e-3 (new ones), cosine to zero. {cost}

## Acceptance

Conditional acceptance by position as served (a slot counts if everything before it was accepted) with every draft
verified, on prompts that training has not seen.

{table}

**Depth.** Rows are causal inside the block: a draft of depth d < {K} is the first d positions of the full one, token for
token under the same noise, so the columns up to d are its acceptance too. Tokens a step at depth d on
{own}, temperature 1: {by_depth}.
"""


def tokens_by_depth(acceptance: list[float]) -> list[float]:
    """Expected tokens a step when d positions are drafted and verified, d from 1: 1 + the survivals up to d."""
    totals, survival, total = [], 1.0, 1.0
    for rate in acceptance:
        survival *= rate
        total += survival
        totals.append(total)
    return totals


def write_card(folder: Path, columns: list[str], rows: list[list], cost: str) -> None:
    """Write README.md beside a drafter. rows: as the benchmark's drafter measure gives them, own chat first.

    A row is prompts, temperature, request-steps, tokens a step, then acceptance by position. cost: a sentence.
    """
    card = json.loads((folder / "drafter.json").read_text(encoding="utf-8"))
    shape, first = card["shape"], next(row for row in rows if row[1] == 1.0)
    lines = ["| " + " | ".join(columns) + " |", "| " + " | ".join("---" for _ in columns) + " |"]
    lines += ["| " + " | ".join(str(value) for value in row) + " |" for row in rows]
    depths = tokens_by_depth([float(value) for value in first[4:]])
    text = TEXT.format(
        **{name: value for name, value in shape.items() if not isinstance(value, list | tuple)},
        layers=len(shape["key_layers"]),
        key_layers=", ".join(map(str, shape["key_layers"])),
        state_layers=" and ".join(map(str, shape["state_layers"])),
        megabytes=(folder / "drafter.safetensors").stat().st_size / 1e6,
        recorded_tokens=card["recorded_tokens"],
        updates=card["updates"],
        dtype=card["dtype"],
        cost=cost,
        table="\n".join(lines),
        own=first[0],
        by_depth=", ".join(f"{total:.2f} at {d}" for d, total in enumerate(depths, 1)),
    )
    (folder / "README.md").write_text(text, encoding="utf-8")
