"""An EAGLE-3 head: one decoder layer over the target's tapped states, autoregressive over its own outputs and cache.

A folder is the one that vLLM loads as `"method": "eagle3"`. Arithmetic and names are those of its `llama_eagle3.py`:
row i takes the embedding of token i + 1 and the fused states of position i, and predicts token i + 2; behind the
verified text its own output stands in the place of the states (EAGLE-3, arXiv 2503.01840).
"""

from pathlib import Path

import torch
from torch import Tensor

from avlab.engine.branches import Branches, forward, text_of
from avlab.engine.cache import KVCache
from avlab.engine.checkpoint import Weights
from avlab.engine.checkpoint_files import CONFIG, CheckpointError, read_json
from avlab.engine.drafters.along import ReadText
from avlab.engine.drafters.base import DrafterContext, DrafterKind, DraftInput, features_given, register
from avlab.engine.drafters.draws import Draws
from avlab.engine.drafters.eagle3_folder import (
    draft_vocabulary,
    head_config,
    holds,
    read_head,
    size,
    tapped_layers,
)
from avlab.engine.drafts import Drafts
from avlab.engine.linear import Linear
from avlab.engine.model_config import ModelConfig
from avlab.engine.target import Layer, Target, interleave, rms_norm, rotary_frequencies
from avlab.speculation.features import DEFAULT_FEATURES

LAYER = "midlayer"


class FusingLayer(Layer):
    """A decoder layer whose rows are [N, 2 H]: the embedding of a token, and the state that it continues."""

    def __init__(self, weights: Weights, config: ModelConfig):
        c = self.config = config
        H, Q, KV = c.hidden, c.heads * c.head_dim, c.kv_heads * c.head_dim

        def take(name: str, rows: int, columns: int) -> Tensor:
            return weights.take(f"{LAYER}.{name}.weight", rows, columns)

        q, k = take("self_attn.q_proj", Q, 2 * H), take("self_attn.k_proj", KV, 2 * H)
        v = take("self_attn.v_proj", KV, 2 * H)
        self.qkv = Linear(torch.cat([interleave(q, c.heads), interleave(k, c.kv_heads), v]))
        self.out = Linear(take("self_attn.o_proj", H, Q))
        self.gate, self.up = (Linear(take(f"mlp.{name}_proj", c.intermediate, H)) for name in ("gate", "up"))
        self.down = Linear(take("mlp.down_proj", H, c.intermediate))
        self.attention_norm = weights.take(f"{LAYER}.input_layernorm.weight", H)
        self.state_norm = weights.take(f"{LAYER}.hidden_norm.weight", H)
        self.mlp_norm = weights.take(f"{LAYER}.post_attention_layernorm.weight", H)

    def projections(self, x: Tensor) -> Tensor:
        c, H = self.config, self.config.hidden
        token, state = x[:, :H].contiguous(), x[:, H:].contiguous()
        token = rms_norm(token, self.attention_norm, c.norm_epsilon, self.native)
        state = rms_norm(state, self.state_norm, c.norm_epsilon, self.native)
        return self.qkv(torch.cat([token, state], 1)).view(len(x), c.heads + 2 * c.kv_heads, c.head_dim)

    def residual(self, x: Tensor) -> Tensor:
        return x[:, self.config.hidden :].contiguous()


class Eagle3Drafter:
    """One pass of the layer a position; the first also takes in what was verified since the last draft."""

    name = "eagle3"

    def __init__(
        self,
        folder: Path,
        target: Target,
        requests: int,
        K: int,
        features: tuple[str, ...] = DEFAULT_FEATURES,
    ):
        """requests: served at once. features: those wanted beside what policies read.

        Raises CheckpointError where the head does not fit the target.
        """
        self.features, self.target, self.K = features_given(features), target, K
        raw = read_json(folder / CONFIG)
        config = self.config = head_config(folder, raw, target.config)
        self.state_layers = tapped_layers(folder, raw, target.config.layers)
        weights = read_head(folder)
        H, V, S = config.hidden, target.config.vocabulary, len(self.state_layers)
        Q = size(folder, raw, "draft_vocab_size", V)
        self.vocabulary = draft_vocabulary(folder, weights, Q, V)
        for name, tensor in weights.items():
            if tensor.is_floating_point():
                weights[name] = tensor.to(target.device, target.dtype)
        self.fuse = Linear(weights.take("fc.weight", H, S * H))
        self.layer = FusingLayer(weights, config)
        self.layer.native = target.native
        self.norm = weights.take("norm.weight", H)
        own_head = weights.maybe("lm_head.weight", Q, H)
        if own_head is None and self.vocabulary is not None:
            raise CheckpointError(f"{folder} has no lm_head.weight for its draft vocabulary: fetch it again.")
        self.head = target.head if own_head is None else Linear(own_head)
        own = weights.maybe("embed_tokens.weight", V, H)
        self.embedding = target.embedding if own is None else own
        weights.check_all_taken()
        self.turns = rotary_frequencies(config, target.length).to(target.device)
        self.cache = KVCache(
            1, requests, config.kv_heads, target.length, config.head_dim, target.dtype, target.device
        )
        self.known = [0] * requests  # rows of each request whose keys and values are right
        self.pending: list[list[Tensor]] = [
            [] for _ in range(requests)
        ]  # fused states of those behind, [n, H]

    def take_in(self, cache_rows: list[int], starts: list[int], states: list[Tensor]) -> None:
        fused = self.fused(torch.cat(states)).split([len(each) for each in states])
        for row, start, each in zip(cache_rows, starts, fused, strict=True):
            if start == 0:
                self.forget(row)
            self.pending[row].append(each)

    @torch.inference_mode()
    def propose(self, inputs: DraftInput, depth: int) -> Drafts:
        held, device = inputs.cache_rows, self.target.device
        for row, start, state in zip(held, inputs.starts, inputs.states, strict=True):
            if not self.pending[row]:  # nobody has told; timing begins so
                self.pending[row] = [self.fused(state[None])]
                self.known[row] = start - 1
        new = [torch.cat(self.pending[row]) for row in held]
        counts, begins = [len(each) for each in new], [self.known[row] for row in held]
        follow = [h[b + 1 : b + 1 + n] for h, b, n in zip(inputs.history, begins, counts, strict=True)]
        tokens = torch.tensor([token for some in follow for token in some], device=device)
        x = self._pass(tokens, torch.cat(new), held, begins, counts)
        x = x[torch.tensor(counts, device=device).cumsum(0) - 1]
        draws, drawn = Draws(inputs.temperature, inputs.uniforms, self.features), []
        for k in range(depth):
            column = draws.draw(self.logits(x))
            drawn.append(column if self.vocabulary is None else self.vocabulary.ids[column])
            if k + 1 < depth:
                at = [start + k for start in inputs.starts]
                x = self._pass(drawn[-1], x, held, at, [1] * len(held))
        for row, start in zip(held, inputs.starts, strict=True):
            self.known[row], self.pending[row] = (
                start,
                [],
            )  # what was drafted beyond is written again once it is known
        return draws.drafts(torch.stack(drawn, 1), self.vocabulary)

    def _pass(
        self, tokens: Tensor, states: Tensor, held: list[int], starts: list[int], counts: list[int]
    ) -> Tensor:
        """Rows of tokens [N] and the states that they continue, [N, H], through the layer: [N, H]."""
        batch = self.target.batch(held, starts, counts)
        x = torch.cat([self.embedding[tokens], states], 1)
        turn = self.turns[batch.positions].unsqueeze(1)
        return self.layer(x, turn, self.cache.keys[0], self.cache.values[0], batch)

    def fused(self, states: Tensor) -> Tensor:
        """[N, S * H] with the final state first, which the head does not read -> [N, H]."""
        return self.fuse(states[:, self.config.hidden :].contiguous())

    def logits(self, x: Tensor) -> Tensor:
        """[N, H] -> [N, Q] float32."""
        return self.head.float32(rms_norm(x, self.norm, self.config.norm_epsilon, self.target.native))

    def assume_read(self, cache_row: int, tokens: int) -> None:
        self.known[cache_row], self.pending[cache_row] = tokens, []

    def forget(self, cache_row: int) -> None:
        self.known[cache_row], self.pending[cache_row] = 0, []

    def follow(self, text: ReadText) -> "Eagle3Text":
        return Eagle3Text(self, text)


class Eagle3Text:
    """The head along a text: it reads the whole text once, and each anchor branches off it."""

    def __init__(self, drafter: Eagle3Drafter, text: ReadText):
        self.drafter = drafter
        n = len(text.states)
        self.outputs = drafter._pass(text.tokens[1 : n + 1], drafter.fused(text.states), [0], [0], [n])
        drafter.forget(0)  # the row was a request's
        self.keys = text_of(drafter.cache, 0, [0])

    def begin(self, at: Tensor) -> "Eagle3Slots":
        return Eagle3Slots(self.drafter, self.keys, self.outputs[at - 1], at)


class Eagle3Slots:
    """Its drafts at anchors of a text. A draft's state, [R, H + ...]: its last output, then its own keys and values."""

    def __init__(
        self, drafter: Eagle3Drafter, keys: list[tuple[Tensor, Tensor]], outputs: Tensor, at: Tensor
    ):
        self.drafter, self.keys, self.outputs, self.at = drafter, keys, outputs, at

    def next(self, k: int, owner: Tensor, previous: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        drafter, c = self.drafter, self.drafter.config
        if state is None:  # the newest token is the text's: its row was read with it
            x = self.outputs[owner]
            return x, drafter.logits(x)
        own = state[:, c.hidden :].reshape(len(owner), 1, 2, c.kv_heads, k - 1, c.head_dim) if k > 1 else None
        branches = Branches(self.at[owner], torch.ones_like(owner), k - 1)
        x = torch.cat([drafter.embedding[previous], state[:, : c.hidden]], 1)
        x, own = forward([drafter.layer], self.keys, drafter.turns, x, branches, own)
        return torch.cat([x, own.flatten(1)], 1), drafter.logits(x)

    def own_features(self, k: int, owner: Tensor, state: Tensor) -> Tensor | None:
        return None


def make(context: DrafterContext) -> Eagle3Drafter:
    """The head of a folder. Raises CheckpointError."""
    return Eagle3Drafter(context.folder, context.target, context.requests, context.K, context.features)


register(DrafterKind("eagle3", "an EAGLE-3 head", CONFIG, make, holds=holds))
