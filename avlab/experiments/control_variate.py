"""Control variates: less chance in the throughput of a block, and in the ratio of two arms.

*Accepted drafts.* How many drafts are accepted is chance even when the drafts are known: their number has the mean that
the acceptance probabilities say, sum over positions of the products of min(1, p/q), and what it differs by has the mean
0 given everything before, under every policy. So a block's tokens are counted without that difference, where the engine
tells it (`BlockRate.expected`): nothing is fitted, so the tests of `statistics` hold as before, looks after every round
included.

*Prompts.*

A prompt is computed when a request happens to end, whichever arm is in force: its time is chance for the arm, and in a
block of a second it is most of the chance there is. What is not chance is how many prompt tokens requests bring for
every output token: that is the traffic's, and over time the same for all arms. So a block's seconds are adjusted to the
prompt tokens that the traffic brings on average (CUPED: Deng, Xu, Kohavi & Walker, WSDM 2013):

    adjusted seconds = seconds - price * (prompt tokens - share * output tokens)

with price in seconds a prompt token, and share in prompt tokens an output token, both over all arms together. No arm
changes the control variate's expectation, so the ratio is that of throughputs with the same prompts to compute; a wrong
price leaves its mean and adds noise. Prompt tokens that an engine computes again for requests it had preempted count
like all others.

For a test that is watched, a round's price and share come from its own blocks and those of the rounds before, whatever
their arms (`fitted_by_round`): two equal arms may then still be exchanged within the round, which changes the sign of
its log ratio and nothing else. Of two arms that differ the log ratio moves a little while share and price are learnt,
so the interval's promise is exact for equal arms and close for others. Isolated blocks begin with prompts of their own,
the same for each arm, and are not adjusted.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from itertools import groupby

from avlab.experiments.answers import Ledger
from avlab.store.experiment_rows import BlockRate, ServedLedger

MOST = 0.9  # of a block's time that its own prompts can take, whatever the price


@dataclass(frozen=True, slots=True)
class PromptCosts:
    """price: seconds a prompt token; share: prompt tokens an output token. Both are 0 where no price is known: then
    nothing is adjusted.
    """

    price: float = 0.0
    share: float = 0.0

    @property
    def seconds_a_token(self) -> float:
        """Seconds of prompts for an output token."""
        return self.price * self.share

    def own_seconds(self, block: BlockRate) -> float:
        """Seconds that a block's own prompts took."""
        return min(self.price * block.prompt_tokens, MOST * block.seconds)

    def adjusted_seconds(self, block: BlockRate) -> float:
        """A block's seconds with the traffic's mean of prompts in place of its own; 0 for a block without time."""
        if not block.seconds:
            return 0.0
        return block.seconds - self.own_seconds(block) + self.seconds_a_token * block.expected


UNKNOWN = PromptCosts()


class _Sums:
    """What blocks say of prompts, summed up."""

    def __init__(self) -> None:
        self.extra = self.priced = self.prompt_tokens = self.tokens = 0.0

    def add(self, block: BlockRate) -> None:
        """The price comes from blocks with steps of both kinds: what those with a prompt took more than the others."""
        self.prompt_tokens += block.prompt_tokens
        self.tokens += block.expected
        plain_steps = block.steps - block.prompt_steps
        if plain_steps and block.prompt_tokens:
            plain = (block.seconds - block.prompt_seconds) / plain_steps
            self.extra += block.prompt_seconds - block.prompt_steps * plain
            self.priced += block.prompt_tokens

    def costs(self) -> PromptCosts:
        if self.extra <= 0 or not self.tokens:
            return UNKNOWN
        return PromptCosts(self.extra / self.priced, self.prompt_tokens / self.tokens)


def fitted(blocks: Iterable[BlockRate]) -> PromptCosts:
    """The price and share over all these blocks."""
    sums = _Sums()
    for block in blocks:
        sums.add(block)
    return sums.costs()


def fitted_by_round(blocks: Iterable[BlockRate]) -> dict[int, PromptCosts]:
    """By round, the price and share over its blocks and those of earlier rounds."""
    sums, answer = _Sums(), {}
    for number, mine in groupby(sorted(blocks, key=_round), _round):
        for block in mine:
            sums.add(block)
        answer[number] = sums.costs()
    return answer


def _round(block: BlockRate) -> int:
    return block.round


def adjusted(blocks: Iterable[BlockRate]) -> list[BlockRate]:
    """The blocks with tokens_per_s as it would be with the mean of prompts over all of them, and with the drafts
    accepted that were to be expected. What one user got is left
    as it was: a request's time begins behind its own prompt, and holds those of others.
    """
    blocks = list(blocks)
    costs = fitted(blocks)
    return [
        replace(block, tokens_per_s=block.tokens_per_s and block.expected / costs.adjusted_seconds(block))
        for block in blocks
    ]


def own_ms(costs: PromptCosts, blocks: Iterable[BlockRate]) -> float:
    """Milliseconds of these blocks' own prompts for 1,000 output tokens."""
    blocks = list(blocks)
    tokens = sum(block.tokens for block in blocks)
    return 1e6 * sum(map(costs.own_seconds, blocks)) / tokens if tokens else 0.0


def with_prompts(entry: ServedLedger, own_ms: float, mean_ms: float) -> Ledger:
    """An arm's ledger with the time of prompts as a line of its own.

    own_ms: of the arm's own prompts, for 1,000 output tokens; it is taken out of verification as far as that reaches,
    and else out of the rest. mean_ms: what the line and total_ms hold instead; own_ms itself where nothing is adjusted.
    """
    verify_ms = entry.verify_ms
    of_verification = 0.0 if verify_ms is None else min(own_ms, verify_ms)
    changed = {
        "verify_ms": verify_ms if verify_ms is None else verify_ms - of_verification,
        "other_ms": entry.other_ms - (own_ms - of_verification),
        "total_ms": entry.total_ms - own_ms + mean_ms,
        "prompt_ms": mean_ms,
        "served_tokens_per_s": entry.tokens / entry.seconds if entry.seconds else None,
    }
    return Ledger(**(asdict(entry) | changed))
