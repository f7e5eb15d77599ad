"""What the target is asked when training data are made: its own questions, and the workloads' training prompts."""

import random
from collections.abc import Iterator

from avlab.engine.text import Text
from avlab.training.generate import LENGTH, Conversation
from avlab.workloads import kinds, prompts

SELF = "self"  # the kind of conversations in which the target asks itself
SELF_SHARE = 0.5
TEMPERATURES = ((1.0, 0.6), (0.6, 0.25), (0.0, 0.15))  # of answers, and how often


MARK = "\u2063"  # an invisible separator, which no template contains


def headers(text: Text, end: int) -> tuple[list[int], list[int]]:
    """The chat template up to where the user speaks, and from the end of the question to where the answer begins."""
    before, after = text.prompt([{"role": "user", "content": MARK}]).split(MARK)
    tokens = text.tokenizer.encode(after, add_special_tokens=False).ids
    opening = text.tokenizer.encode(before, add_special_tokens=False).ids
    return opening, tokens[tokens.index(end) + 1 :] if end in tokens else tokens


def conversations(text: Text, opening: list[int], seed: int) -> Iterator[Conversation]:
    """An endless mixture, half the target's own questions, half training prompts of all workload kinds."""
    rng = random.Random(seed)
    names = list(kinds())
    pools = {kind: prompts(kind, split="training") for kind in names}
    while True:
        if rng.random() < SELF_SHARE:
            temperature, limit = rng.choice((1.0, 1.0, 0.8)), rng.choice((180, 180, 180, 400))
            yield Conversation(opening[:], temperature, SELF, len(opening), len(opening) + 100, True, limit)
            continue
        kind = rng.choice(names)
        prompt = rng.choice(pools[kind])
        tokens = text.encode(prompt.messages)
        if len(tokens) > LENGTH - 150:
            continue
        temperature = rng.choices([t for t, _ in TEMPERATURES], [w for _, w in TEMPERATURES])[0]
        limit = min(LENGTH - 1, len(tokens) + prompt.max_new_tokens)
        yield Conversation(tokens, temperature, kind, len(tokens), limit)
