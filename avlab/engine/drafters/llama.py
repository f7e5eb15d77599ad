"""A small Llama of the target's vocabulary as a draft model: autoregressive, with a cache of its own."""

from pathlib import Path

import torch
from torch import Tensor

from avlab.engine.branches import Branches, forward, text_of
from avlab.engine.checkpoint_files import CheckpointError
from avlab.engine.drafters.along import ReadText
from avlab.engine.drafters.base import DrafterContext, DrafterKind, DraftInput, features_given, register
from avlab.engine.drafters.draws import Draws
from avlab.engine.drafts import Drafts
from avlab.engine.target import Target
from avlab.engine.tokenizers_compared import tokenizer_differences
from avlab.speculation.features import DEFAULT_FEATURES


class LlamaDrafter:
    """One pass of the draft model a position; the first also takes in what was emitted since the last step."""

    name = "llama"
    state_layers: tuple[int, ...] = ()
    vocabulary = None

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

    def follow(self, text: ReadText) -> "LlamaText":
        return LlamaText(self, text)


class LlamaText:
    """The draft model along a text: it reads the whole text once, and each anchor branches off it."""

    def __init__(self, drafter: LlamaDrafter, text: ReadText):
        self.model, tokens = drafter.model, text.tokens[:-1]
        batch = self.model.batch([0], [0], [len(tokens)])
        self.states, _ = self.model.forward(tokens, batch, drafter.cache)
        drafter.known[0] = 0  # the row was a request's
        self.keys = text_of(drafter.cache, 0, range(self.model.config.layers))

    def begin(self, at: Tensor) -> "LlamaSlots":
        return LlamaSlots(self.model, self.keys, self.states[at], at)


class LlamaSlots:
    """Its drafts at anchors of a text; a draft's state are its own keys and values."""

    def __init__(self, model: Target, keys: list[tuple[Tensor, Tensor]], states: Tensor, at: Tensor):
        self.model, self.keys, self.states, self.at = model, keys, states, at

    def next(self, k: int, owner: Tensor, previous: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        model, c = self.model, self.model.config
        if state is None:  # the newest token is the text's: it was read with it
            none = self.states.new_empty(len(owner), c.layers, 2, c.kv_heads, 0, c.head_dim)
            return none, model.logits(self.states[owner])
        branches = Branches(self.at[owner] + 1, torch.ones_like(owner), k - 1)
        x, own = forward(model.layers, self.keys, model.turns, model.embedding[previous], branches, state)
        return own, model.logits(model.normed(x))

    def own_features(self, k: int, owner: Tensor, state: Tensor) -> Tensor | None:
        return None


def make(context: DrafterContext) -> LlamaDrafter:
    """The draft model of a folder. Raises CheckpointError."""
    return LlamaDrafter(context.folder, context.target, context.requests, context.K, context.features)


register(
    DrafterKind(
        "llama",
        "a small Llama of the target's vocabulary",
        "config.json",
        make,
        against=tokenizer_differences,
    )
)
