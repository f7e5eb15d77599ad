"""The target model: a Llama forward pass over a ragged batch, written for few operations a layer."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from avlab.engine.cache import Batch, Group, KVCache
from avlab.engine.checkpoint import Weights, read_weights
from avlab.engine.checkpoint_files import CheckpointError
from avlab.engine.linear import Linear
from avlab.engine.model_config import ModelConfig, read_config
from avlab.engine.native import ANY_ROWS, HEAD_SIZES, Layers, Native, native_for
from avlab.engine.sampler import LogitRows

NARROW = 8  # rows a request up to which native attention in float32 beats two batched products (measured)


def rotary_frequencies(config: ModelConfig, length: int) -> Tensor:
    """Unit complex numbers exp(i · position · frequency), [length, head_dim / 2] complex64.

    Scaled as config.json asks: not at all, `linear`, or `llama3` (Llama 3.1's wavelength-dependent stretch).
    """
    half = torch.arange(0, config.head_dim, 2, dtype=torch.float64)
    frequency = config.rope_theta ** (-half / config.head_dim)
    scaling = dict(config.rope_scaling)
    if "low_freq_factor" in scaling:
        old = scaling["original_max_position_embeddings"]
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        turns = (
            old * frequency / (2 * math.pi)
        )  # full turns within the context the model was first trained for
        keep = ((turns - low) / (high - low)).clamp(0, 1)
        frequency = keep * frequency + (1 - keep) * frequency / scaling["factor"]
    elif scaling:
        frequency = frequency / scaling["factor"]
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
    return torch.polar(torch.ones_like(angle), angle).to(torch.complex64)


def interleave(weight: Tensor, heads: int) -> Tensor:
    """Rows of a query or key projection reordered so that a rotary pair (i, i + head_dim/2) becomes neighbours.

    Attention scores do not change, since queries and keys are reordered alike; rotation becomes one complex product.
    """
    rest = weight.shape[1:]
    return weight.view(heads, 2, -1, *rest).transpose(1, 2).reshape(-1, *rest)


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """Rotary embedding of interleaved heads. x: [N, heads, head_dim]; turn: [N, 1, head_dim / 2] complex."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turn).flatten(2).to(x.dtype)


def rms_norm(x: Tensor, weight: Tensor, epsilon: float, native: Native | None = None) -> Tensor:
    """x / rms(x) · weight, row by row. x: [N, hidden]."""
    if native:
        return native.rms_norm(x, weight, epsilon)
    return F.rms_norm(x, x.shape[1:], weight, epsilon)


class Layer:
    """One decoder layer: attention over the cache, then the gated MLP."""

    native: Native | None = None

    def __init__(self, weights: Weights, prefix: str, config: ModelConfig):
        """From a checkpoint's tensors: projections joined, and reordered for rotation."""
        c = self.config = config
        H, Q, KV = c.hidden, c.heads * c.head_dim, c.kv_heads * c.head_dim

        def take(name: str, rows: int, columns: int, heads: int = 0) -> tuple[Tensor, Tensor | None]:
            weight = weights.take(f"{prefix}.{name}.weight", rows, columns)
            biased = c.attention_bias if name.startswith("self_attn") else c.mlp_bias
            bias = weights.take(f"{prefix}.{name}.bias", rows) if biased else None
            if heads:
                weight, bias = interleave(weight, heads), None if bias is None else interleave(bias, heads)
            return weight, bias

        q, k = take("self_attn.q_proj", Q, H, c.heads), take("self_attn.k_proj", KV, H, c.kv_heads)
        v = take("self_attn.v_proj", KV, H)
        bias = None if q[1] is None or k[1] is None or v[1] is None else torch.cat([q[1], k[1], v[1]])
        self.qkv = Linear(torch.cat([q[0], k[0], v[0]]), bias)
        self.out = Linear(*take("self_attn.o_proj", H, Q))
        self.gate = Linear(*take("mlp.gate_proj", c.intermediate, H))
        self.up = Linear(*take("mlp.up_proj", c.intermediate, H))
        self.down = Linear(*take("mlp.down_proj", H, c.intermediate))
        self.attention_norm = weights.take(f"{prefix}.input_layernorm.weight", H)
        self.mlp_norm = weights.take(f"{prefix}.post_attention_layernorm.weight", H)

    @classmethod
    def of_parts(cls, weights: Weights, prefix: str, config: ModelConfig) -> "Layer":
        """From tensors already joined and reordered, as a trained drafter stores them."""
        layer = cls.__new__(cls)
        c = layer.config = config
        H, I, Q = c.hidden, c.intermediate, c.heads * c.head_dim
        shapes = {
            "qkv": (Q + 2 * c.kv_heads * c.head_dim, H),
            "out": (H, Q),
            "gate": (I, H),
            "up": (I, H),
            "down": (H, I),
        }
        for name, shape in shapes.items():
            setattr(layer, name, Linear(weights.take(f"{prefix}.{name}.weight", *shape)))
        layer.attention_norm = weights.take(f"{prefix}.attention_norm", H)
        layer.mlp_norm = weights.take(f"{prefix}.mlp_norm", H)
        return layer

    def __call__(self, x: Tensor, turn: Tensor, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
        """x: [N, hidden] -> [N, hidden]. Writes this step's keys and values into the cache, then attends to it."""
        mixed = self._attention(self.projections(x), turn, keys, values, batch)
        return self.mlp(self.out.plus(mixed, self.residual(x)))

    def projections(self, x: Tensor) -> Tensor:
        """Queries, keys and values of rows before rotation: [N, hidden] -> [N, heads + 2 KV, D]."""
        c = self.config
        h = rms_norm(x, self.attention_norm, c.norm_epsilon, self.native)
        return self.qkv(h).view(len(x), c.heads + 2 * c.kv_heads, c.head_dim)

    def residual(self, x: Tensor) -> Tensor:
        """What attention is added to, of rows [N, hidden]."""
        return x

    def mlp(self, x: Tensor) -> Tensor:
        """The gated MLP with its norm and residual. x: [N, hidden] -> [N, hidden]."""
        h = rms_norm(x, self.mlp_norm, self.config.norm_epsilon, self.native)
        return self.down.plus(self.up.times(h, self.gate.silu(h)), x)

    @property
    def most_rows(self) -> int:
        """How many rows the native products of all its weights serve."""
        return min(each.most_rows for each in (self.qkv, self.out, self.gate, self.up, self.down))

    def tensors(self) -> list[Tensor | None]:
        """The weights in the order of `Layer` in layers.h. Only where native products serve."""
        found: list[Tensor | None] = [self.attention_norm]
        for linear in (self.qkv, self.out):
            found += [linear.blocks, linear.bias]
        found.append(self.mlp_norm)
        for linear in (self.gate, self.up, self.down):
            found += [linear.blocks, linear.bias]
        return found

    def _attention(self, qkv: Tensor, turn: Tensor, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
        """qkv: [N, heads + 2 KV, D] -> [N, heads · D]."""
        H, KV = self.config.heads, self.config.kv_heads
        if self.native:
            self.native.rotate(qkv, turn, batch.cache_rows, batch.positions, keys, values)
            q = qkv[:, :H]
        else:
            qk = rotate(qkv[:, : H + KV], turn)
            keys[batch.cache_rows, :, batch.positions] = qk[:, H:]
            values[batch.cache_rows, :, batch.positions] = qkv[:, H + KV :]
            q = qk[:, :H]
        if len(batch.groups) == 1 and not len(batch.begins):
            return attend(q, keys, values, batch.groups[0])
        out = qkv.new_empty(len(qkv), H * qkv.shape[2])
        if len(batch.begins):
            assert self.native is not None  # a batch has narrow requests only where its target asked for them
            self.native.attend(qkv, keys, values, batch, out)
        for group in batch.groups:
            out[group.start : group.stop] = attend(q, keys, values, group)
        return out


class Stack:
    """Layers that follow each other over one cache; where native operations serve, rows pass them in one call.

    layers: n of them; keys, values: each layer's part of the cache, as in `KVCache`.
    """

    def __init__(self, layers: list[Layer], keys: list[Tensor], values: list[Tensor]):
        self.layers, self.keys, self.values = layers, keys, values
        self.native = layers[0].native if layers else None
        self.most_rows = min((layer.most_rows for layer in layers), default=0)
        if self.native and self.most_rows:
            rows = [layer.tensors() + [k, v] for layer, k, v in zip(layers, keys, values, strict=True)]
            pointers = [[0 if t is None else t.data_ptr() for t in row] for row in rows]
            KV, length, D = keys[0].shape[1:]
            self.native_layers = Layers(
                pointers=torch.tensor(pointers, dtype=torch.long),
                heads=layers[0].out.in_features // D,
                kv_heads=KV,
                head_dim=D,
                length=length,
                intermediate=layers[0].gate.out_features,
                norm_epsilon=layers[0].config.norm_epsilon,
            )

    def __call__(self, x: Tensor, turn: Tensor, batch: Batch) -> Tensor:
        """x: [N, hidden], which may be overwritten -> [N, hidden]."""
        if self.native and len(x) <= self.most_rows and not batch.groups:
            self.native.forward(self.native_layers, x, turn, batch)
            return x
        for layer, keys, values in zip(self.layers, self.keys, self.values, strict=True):
            x = layer(x, turn, keys, values, batch)
        return x


def attend(q: Tensor, keys: Tensor, values: Tensor, group: Group) -> Tensor:
    """Attention of one group of cache rows as two batched products. q: [N, heads, D] -> [rows of the group, heads * D].

    The query heads that share a key head are folded into the row dimension, so each key is read once.
    """
    _, H, D = q.shape
    KV, G, n, length = keys.shape[1], group.last - group.first, group.width, group.length
    share = H // KV
    q = q[group.start : group.stop] if group.rows is None else q[group.rows]
    q = q.view(G, n, KV, share, D).transpose(1, 2).reshape(G * KV, n * share, D)
    k = keys[group.first : group.last, :, :length].flatten(0, 1)  # [G * KV, length, D]
    v = values[group.first : group.last, :, :length].flatten(0, 1)
    # keys times queries, not queries times keys: bfloat16 products read rows as they lie up to three times faster
    scores = torch.baddbmm(group.mask_of(KV, share), k, q.transpose(1, 2), alpha=D**-0.5)
    mixed = torch.bmm(scores.transpose(1, 2).softmax(-1), v)  # [G * KV, n * share, D]
    mixed = mixed.view(G, KV, n, share, D).transpose(1, 2).reshape(G * n, H * D)
    return mixed if group.back is None else mixed[group.back]


class Target:
    """A Llama-architecture model read from a Hugging Face folder.

    The forward pass works on a ragged `Batch` against a `KVCache`. Final logits are always float32.
    """

    def __init__(
        self, folder: Path, dtype: torch.dtype, device: torch.device | str = "cpu", length: int = 2048
    ):
        device = torch.device(device)
        self.config = config = read_config(folder)
        weights = read_weights(folder, dtype, device)
        self.folder, self.dtype, self.device = folder, dtype, device
        V, H = config.vocabulary, config.hidden
        self.embedding = weights.take("model.embed_tokens.weight", V, H)
        self.layers = [Layer(weights, f"model.layers.{i}", config) for i in range(config.layers)]
        self.final_norm = weights.take("model.norm.weight", H)
        head = self._head_of(weights)
        weights.check_all_taken()
        self.head, self._head_rows = Linear(head), head
        self.length = min(length, config.max_positions)
        self.turns = rotary_frequencies(config, self.length).to(device)
        self.native = native_for(dtype, device) if config.head_dim in HEAD_SIZES else None
        for layer in self.layers:
            layer.native = self.native
        # where all products are native so is all attention: the rows of prompts pass the layers in the same call
        whole = self.native and self.layers[0].most_rows >= ANY_ROWS
        self.narrow = ANY_ROWS if whole else NARROW if self.native else 0
        self._known: dict[tuple[KVCache, tuple[int, ...]], list[tuple[int, Stack]]] = {}

    def _head_of(self, weights: Weights) -> Tensor:
        """The output head, [V, hidden]: the embedding where the two are tied. Raises CheckpointError."""
        V, H, name = self.config.vocabulary, self.config.hidden, "lm_head.weight"
        if not self.config.tied_embeddings:
            return weights.take(name, V, H)
        own = weights.maybe(name, V, H)
        if own is not None and not torch.equal(own, self.embedding):
            raise CheckpointError(
                f"{self.folder} says that head and embedding are one (tie_word_embeddings), and holds an {name} that "
                "differs from model.embed_tokens.weight: set tie_word_embeddings to false in config.json, or remove "
                "the tensor, whichever its maker meant."
            )
        return self.embedding

    def padded(self, rows: int) -> int:
        """How many rows a pass of so many computes."""
        return self.layers[0].qkv.padded(rows)

    def new_cache(self, rows: int) -> KVCache:
        c = self.config
        return KVCache(c.layers, rows, c.kv_heads, self.length, c.head_dim, self.dtype, self.device)

    def batch(self, cache_rows: Sequence[int], starts: Sequence[int], counts: Sequence[int]) -> Batch:
        """A ragged batch for this target's passes; see `Batch.build`."""
        return Batch.build(cache_rows, starts, counts, self.dtype, self.device, self.narrow)

    def forward(
        self, tokens: Tensor, batch: Batch, cache: KVCache, taps: tuple[int, ...] = ()
    ) -> tuple[Tensor, list[Tensor]]:
        """tokens: [N] -> (final normalised states [N, hidden], the inputs of the layers named in `taps`)."""
        x = self.embedding[tokens]
        turn = self.turns[batch.positions].unsqueeze(1)  # [N, 1, D/2]
        tapped = {}
        for first, stack in self._stacks(cache, taps):
            if first in taps:
                tapped[first] = x.clone()
            x = stack(x, turn, batch)
        return self.normed(x), list(tapped.values())

    def normed(self, x: Tensor) -> Tensor:
        """Rows behind the last layer as final states, [N, hidden]."""
        return rms_norm(x, self.final_norm, self.config.norm_epsilon, self.native)

    def _stacks(self, cache: KVCache, taps: tuple[int, ...]) -> list[tuple[int, Stack]]:
        """The layers over a cache, cut before those named in `taps`: each piece with the number of its first layer."""
        if (cache, taps) not in self._known:
            self._known.clear()  # one cache and one drafter are in use at a time
            cuts = sorted({0, *taps, len(self.layers)})
            self._known[cache, taps] = [
                (i, Stack(self.layers[i:j], cache.keys[i:j], cache.values[i:j]))
                for i, j in itertools.pairwise(cuts)
            ]
        return self._known[cache, taps]

    def head_rows(self, ids: Tensor) -> Tensor:
        """Rows of the output head for these tokens, [Q, hidden]: what a drafter's head shares with the target."""
        return self._head_rows[ids]

    def logits(self, states: Tensor) -> Tensor:
        """[N, hidden] -> [N, V] float32."""
        return self.head.float32(states)

    def logit_rows(self, states: Tensor) -> LogitRows:
        """The same, [N, hidden], for the sampler."""
        return LogitRows(self.logits(states))


class ServedTarget(Protocol):
    """What a step asks of a target: `Target` computes it, an audit looks up what equal prefixes share."""

    config: ModelConfig
    dtype: torch.dtype
    device: torch.device
    length: int

    def new_cache(self, rows: int) -> KVCache:
        """A cache for so many requests."""
        ...

    def batch(self, cache_rows: Sequence[int], starts: Sequence[int], counts: Sequence[int]) -> Batch:
        """As `Target.batch`."""
        ...

    def forward(
        self, tokens: Tensor, batch: Batch, cache: KVCache, taps: tuple[int, ...] = ()
    ) -> tuple[Tensor, list[Tensor]]:
        """As `Target.forward`."""
        ...

    def logit_rows(self, states: Tensor) -> LogitRows:
        """As `Target.logit_rows`."""
        ...
