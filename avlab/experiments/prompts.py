"""The time of prompts, evened out between the blocks of an A/B in switchback blocks.

A prompt is computed when a request happens to end, whichever arm is in force: its time is chance for the arm, and in a
block of a second it is most of the chance there is. What requests bring with them over time, prompt tokens for every
output token, is the traffic's and the same for all arms. So a block is relieved of the time of its own prompts, and
charged for what the traffic brings on average instead:

    even seconds = seconds − price × prompt tokens + price × share × output tokens

with price in seconds a prompt token, and share in prompt tokens an output token, both over all arms together. This is
adjustment by a covariate that the arms do not change (as CUPED: Deng, Xu, Kohavi & Walker, WSDM 2013). The ratio it
measures is that of throughputs with the same prompts to compute.

For a test that is watched, a round's price and share come from the rounds before it (`known_before`): given those, two
equal arms may still be exchanged within the round, which changes the sign of its log ratio and nothing else. Isolated
blocks begin with prompts of their own, the same for each arm, and are left as they are.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, NamedTuple

MOST = 0.9  # of a block's time that its own prompts can take, whatever the price


class Prompts(NamedTuple):
    """price: seconds a prompt token; share: prompt tokens an output token. Both are 0 where nothing is known."""

    price: float = 0.0
    share: float = 0.0

    @property
    def seconds_a_token(self) -> float:
        """Seconds of prompts for an output token."""
        return self.price * self.share

    def own_seconds(self, block: Mapping[str, Any]) -> float:
        """Seconds that a block's own prompts took."""
        return min(self.price * block["prompt_tokens"], MOST * block["seconds"])

    def even_seconds(self, block: Mapping[str, Any]) -> float:
        """A block's seconds with the traffic's mean of prompts in place of its own."""
        return block["seconds"] - self.own_seconds(block) + self.seconds_a_token * block["tokens"]


UNKNOWN = Prompts()


class _Sums:
    """What blocks say of prompts, summed up."""

    def __init__(self) -> None:
        self.extra = self.priced = self.prompt_tokens = self.tokens = 0.0

    def add(self, block: Mapping[str, Any]) -> None:
        """The price comes from blocks with steps of both kinds: what those with a prompt took more than the others."""
        self.prompt_tokens += block["prompt_tokens"]
        self.tokens += block["tokens"]
        plain_steps = block["steps"] - block["prompt_steps"]
        if plain_steps and block["prompt_tokens"]:
            plain = (block["seconds"] - block["prompt_seconds"]) / plain_steps
            self.extra += block["prompt_seconds"] - block["prompt_steps"] * plain
            self.priced += block["prompt_tokens"]

    def prompts(self) -> Prompts:
        if not (self.priced and self.tokens):
            return UNKNOWN
        return Prompts(max(self.extra / self.priced, 0.0), self.prompt_tokens / self.tokens)


def known(blocks: Iterable[Mapping[str, Any]]) -> Prompts:
    """The price and share over all these blocks (rows of `store.queries.block_rates`)."""
    sums = _Sums()
    for block in blocks:
        sums.add(block)
    return sums.prompts()


def known_before(blocks: Iterable[Mapping[str, Any]]) -> dict[int, Prompts]:
    """By round, the price and share over the blocks of earlier rounds; the first round knows nothing."""
    sums, answer = _Sums(), {}
    for number, mine in groupby(
        sorted(blocks, key=lambda block: block["round"]), lambda block: block["round"]
    ):
        answer[number] = sums.prompts()
        for block in mine:
            sums.add(block)
    return answer


def evened(blocks: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The blocks with tokens_per_s and interactivity as they would be with the mean of prompts over all of them."""
    blocks = list(blocks)
    prompts = known(blocks)
    answer = []
    for block in blocks:
        faster = block["seconds"] / prompts.even_seconds(block)
        rates = {name: block[name] and block[name] * faster for name in ("tokens_per_s", "interactivity")}
        answer.append({**block, **rates})
    return answer


def apart(entry: Mapping[str, Any], prompts: Prompts, even: bool) -> dict[str, Any]:
    """An arm's ledger (`store.queries.arm_ledger`) with the time of prompts as a line of its own, prompt_ms: taken out
    of verification, or out of the rest where the engine does not tell verification. even: the line then holds the
    traffic's mean, the same for every arm, and total_ms with it; else the arm's own.
    """
    own = min(1e3 * prompts.price * entry["prompt_tokens"], MOST * entry["total_ms"])
    mean = 1e6 * prompts.seconds_a_token if even else own
    where = "other_ms" if entry["verify_ms"] is None else "verify_ms"
    total = entry["total_ms"] - own + mean
    return {"prompt_ms": mean, **entry, where: entry[where] - own, "total_ms": total}
