"""A drafter without logits as the engine's step sees it in an audit: its draft behind the prompt is looked up once."""

from collections.abc import Iterable
from typing import Protocol

import torch
from torch import Tensor

from avlab.bias.audit.rules import AuditError
from avlab.bias.audit.shared_target import SharedTarget
from avlab.engine.drafters.base import Drafter, DraftInput
from avlab.engine.drafters.lookup import Lookup, drafts
from avlab.engine.drafts import Drafts


class Copying(Lookup, Drafter, Protocol):
    """A drafter without logits, as `Drafter` and `Lookup` describe it."""


class CopyingDrafter:
    """The drafter itself where the engine asks; and its draft behind the prompt alone, which is always the same."""

    def __init__(self, drafter: Copying, shared: SharedTarget, prompt: list[int]):
        """Raises AuditError where it finds fewer than K tokens behind the prompt: there would be little to trim."""
        self.drafter, self.shared, self.prompt = drafter, shared, prompt
        self.name, self.K, self.state_layers = drafter.name, drafter.K, drafter.state_layers
        self.features, self.vocabulary = drafter.features, None
        drafter.assume_read(-1, 0)  # a row of no request: nothing is kept of it
        self.copied = drafter.look_up(-1, prompt, drafter.K)
        drafter.forget(-1)
        if len(self.copied.tokens) < self.K:
            raise AuditError(
                f"The drafter {self.name} finds {len(self.copied.tokens)} tokens behind this prompt, and the audit "
                f"drafts {self.K}: give a prompt that ends as an earlier part of it does, or let shorter matches count "
                "(ngram:prompt_lookup_min=1, suffix:suffix_decoding_max_spec_factor=4)."
            )

    def propose(self, inputs: DraftInput, depth: int, first: Tensor | None = None) -> Drafts:
        """As the drafter does; without a history, behind the prompt. first: not read, as nothing is drawn."""
        if inputs.history:
            return self.drafter.propose(inputs, depth)
        return drafts([self.copied] * len(inputs.newest), self.K, inputs.newest)

    def firsts(self) -> Iterable[Tensor]:
        """What can be drafted first: one token."""
        return (torch.zeros(1, dtype=torch.long),)

    def assume_read(self, cache_row: int, tokens: int) -> None:
        self.drafter.assume_read(cache_row, tokens)

    def forget(self, cache_row: int) -> None:
        self.drafter.forget(cache_row)
