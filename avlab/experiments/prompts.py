"""The time of prompts, evened out between the blocks of an A/B in switchback blocks.

A prompt is computed when a request happens to end, whichever arm is in force: its time is chance for the arm, and in a
block of a second it is most of the chance there is. What is not chance is how many prompt tokens requests bring for
every output token: that is the traffic's, and over time the same for all arms. So a block is relieved of the time of
its own prompts, and charged for what the traffic brings on average instead:

    even seconds = seconds - price * prompt tokens + price * share * output tokens

with price in seconds a prompt token, and share in prompt tokens an output token, both over all arms together. This is
adjustment by a covariate whose expectation no arm changes (as CUPED: Deng, Xu, Kohavi & Walker, WSDM 2013). The ratio
it measures is that of throughputs with the same prompts to compute; a wrong price leaves its mean and adds noise.
Prompt tokens that an engine computes again for requests it had preempted count as prompts like all others.

For a test that is watched, a round's price and share come from its own blocks and those of the rounds before, whatever
their arms (`known_by`): two equal arms may then still be exchanged within the round, which changes the sign of its log
ratio and nothing else. Of two arms that differ the log ratio moves a little while share and price are learnt, so the
interval's promise is exact for equal arms and close for others. Isolated blocks begin with prompts of their own, the
same for each arm, and are left as they are.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, NamedTuple

MOST = 0.9  # of a block's time that its own prompts can take, whatever the price


class Prompts(NamedTuple):
    """price: seconds a prompt token; share: prompt tokens an output token. Both are 0 where no price is known: then
    nothing is evened out.
    """

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
        """A block's seconds with the traffic's mean of prompts in place of its own; 0 for a block without time."""
        if not block["seconds"]:
            return 0.0
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
        if self.extra <= 0 or not self.tokens:
            return UNKNOWN
        return Prompts(self.extra / self.priced, self.prompt_tokens / self.tokens)


def known(blocks: Iterable[Mapping[str, Any]]) -> Prompts:
    """The price and share over all these blocks (rows of `avlab.store.queries.block_rates`)."""
    sums = _Sums()
    for block in blocks:
        sums.add(block)
    return sums.prompts()


def known_by(blocks: Iterable[Mapping[str, Any]]) -> dict[int, Prompts]:
    """By round, the price and share over its blocks and those of earlier rounds."""
    sums, answer = _Sums(), {}
    for number, mine in groupby(sorted(blocks, key=_round), _round):
        for block in mine:
            sums.add(block)
        answer[number] = sums.prompts()
    return answer


def _round(block: Mapping[str, Any]) -> int:
    return block["round"]


def evened(blocks: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The blocks with tokens_per_s as it would be with the mean of prompts over all of them. What one user got is left
    as it was: a request's time begins behind its own prompt, and holds those of others.
    """
    blocks = list(blocks)
    prompts = known(blocks)
    return [
        {**block, "tokens_per_s": block["tokens_per_s"] and block["tokens"] / prompts.even_seconds(block)}
        for block in blocks
    ]


def own_ms(prompts: Prompts, blocks: Iterable[Mapping[str, Any]]) -> float:
    """Milliseconds of these blocks' own prompts for 1,000 output tokens."""
    blocks = list(blocks)
    tokens = sum(block["tokens"] for block in blocks)
    return 1e6 * sum(map(prompts.own_seconds, blocks)) / tokens if tokens else 0.0


def with_prompts(entry: Mapping[str, Any], own_ms: float, mean_ms: float) -> dict[str, Any]:
    """An arm's ledger (`avlab.store.queries.arm_ledger`) with the time of prompts as a line of its own, prompt_ms.

    own_ms: of the arm's own prompts, for 1,000 output tokens; it is taken out of verification as far as that reaches,
    and else out of the rest. mean_ms: what the line and total_ms hold instead; own_ms itself where nothing is evened.
    served_tokens_per_s is throughput as it was served, by the tokens and seconds of the entry.
    """
    verify_ms = entry["verify_ms"]
    of_verification = 0.0 if verify_ms is None else min(own_ms, verify_ms)
    return {
        **entry,
        "prompt_ms": mean_ms,
        "verify_ms": verify_ms if verify_ms is None else verify_ms - of_verification,
        "other_ms": entry["other_ms"] - (own_ms - of_verification),
        "total_ms": entry["total_ms"] - own_ms + mean_ms,
        "served_tokens_per_s": entry["tokens"] / entry["seconds"] if entry["seconds"] else None,
    }
