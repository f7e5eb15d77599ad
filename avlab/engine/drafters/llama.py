"""A small Llama of the target's vocabulary as a draft model: autoregressive, with a cache of its own."""

from pathlib import Path

import torch

from avlab.engine.checkpoint import CheckpointError
from avlab.engine.drafters.base import DrafterContext, DrafterKind, DraftInput, features_given, register
from avlab.engine.drafters.draws import Draws
from avlab.engine.drafts import Drafts
from avlab.engine.target import Target
from avlab.speculation.features import DEFAULT_FEATURES


class LlamaDrafter:
    """One pass of the draft model a position; the first also takes in what was emitted since the last step."""

    name = "llama"
    state_layers: tuple[int, ...] = ()

    def __init__(
        self,
        folder: Path,
        target: Target,
        requests: int,
        K: int,
        features: tuple[str, ...] = DEFAULT_FEATURES,
    ):
        """requests: served at once. features: those wanted beside what policies read.

        Raises CheckpointError where the model does not fit the target.
        """
        self.features = features_given(features)
        self.model, self.K = Target(folder, target.dtype, target.device, target.length), K
        if self.model.config.vocabulary != target.config.vocabulary:
            raise CheckpointError(
                f"The draft model in {folder} has a vocabulary of {self.model.config.vocabulary} tokens, the target "
                f"one of {target.config.vocabulary}: a draft model must share the target's tokenizer."
            )
        if self.model.length < target.length:
            raise CheckpointError(
                f"The draft model in {folder} holds {self.model.length} positions, the target {target.length}: "
                f"lower --max-model-len to {self.model.length}."
            )
        self.cache = self.model.new_cache(requests)
        self.known = [0] * requests  # tokens of each cache row's request whose keys and values are right

    @torch.inference_mode()
    def propose(self, inputs: DraftInput, depth: int) -> Drafts:
        model, held, device = self.model, inputs.cache_rows, self.model.device
        new = [h[self.known[s] :] for s, h in zip(held, inputs.history, strict=True)]
        counts = [len(n) for n in new]
        batch = model.batch(held, [self.known[s] for s in held], counts)
        rows = torch.tensor([t for n in new for t in n], device=device)
        states, _ = model.forward(rows, batch, self.cache)
        states = states[torch.tensor(counts, device=device).cumsum(0) - 1]
        draws, tokens = Draws(inputs.temperature, inputs.uniforms, self.features), []
        for k in range(depth):
            tokens.append(draws.draw(model.logits(states)))
            if k + 1 < depth:
                at = [len(h) + k for h in inputs.history]
                batch = model.batch(held, at, [1] * len(held))
                states, _ = model.forward(tokens[-1], batch, self.cache)
        for s, h in zip(held, inputs.history, strict=True):
            self.known[s] = len(h)  # what was drafted beyond is written again once it is known
        return draws.drafts(torch.stack(tokens, 1), None)

    def assume_read(self, cache_row: int, tokens: int) -> None:
        self.known[cache_row] = tokens

    def forget(self, cache_row: int) -> None:
        self.known[cache_row] = 0


def make(context: DrafterContext) -> LlamaDrafter:
    """The draft model of a folder. Raises CheckpointError."""
    return LlamaDrafter(context.folder, context.target, context.requests, context.K, context.features)


register(DrafterKind("llama", "a small Llama of the target's vocabulary", "config.json", make))
