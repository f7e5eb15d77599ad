"""Recorded conversations as training batches."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from avlab.training.generate import KEY_LAYERS


@dataclass(frozen=True, slots=True)
class Piece:
    """Where one conversation lies: shard, first row, rows, first sampled row, temperature, kind."""

    shard: Path
    offset: int
    length: int
    first: int
    temperature: float
    kind: str


@dataclass(slots=True)
class TrainingBatch:
    """a anchors in each of C conversations; see DrafterNetwork.forward for the shapes.

    following: [C, a, K] tokens that really followed the newest one; final: [C, a, K, H] the target's states whose
    head gives their distributions; log_normaliser: [C, a, K]; valid: [C, a, K] bool.
    """

    newest: Tensor
    states: Tensor
    position: Tensor
    keys: list[Tensor]
    values: list[Tensor]
    mask: Tensor
    previous: Tensor
    final: Tensor
    log_normaliser: Tensor
    valid: Tensor


class Recordings:
    """All shards of some folders. One conversation in 50, chosen by its place, is held out, and at least one.

    key_layers: the layers whose keys and values were recorded, as `generate` was told.
    """

    def __init__(
        self,
        folders: list[Path],
        hidden: int,
        kv_heads: int,
        head_dim: int,
        key_layers: tuple[int, ...] = KEY_LAYERS,
    ):
        self.hidden, self.kv_heads, self.head_dim, self.key_layers = hidden, kv_heads, head_dim, key_layers
        self.files: dict[Path, safe_open] = {}
        self.train: list[Piece] = []
        self.held_out: list[Piece] = []
        for folder in folders:
            self.extend(folder)

    def extend(self, folder: Path) -> None:
        """Take in the folder's shards that are not known yet."""
        for path in sorted(folder.glob("shard-*.safetensors")):
            if path in self.files:
                continue
            self.files[path] = file = safe_open(path, framework="pt")
            kinds, offset = file.metadata()["kinds"].split(","), 0
            for i, (n, first, temperature) in enumerate(file.get_tensor("conversation").tolist()):
                piece = Piece(path, offset, n, first, temperature / 1000, kinds[i])
                if n - first > 16:
                    (self.held_out if i % 50 == 49 else self.train).append(piece)
                offset += n
        if self.train and not self.held_out:
            self.held_out.append(self.train.pop())

    @property
    def tokens(self) -> int:
        """How many positions are recorded."""
        return sum(file.get_slice("tokens").get_shape()[0] for file in self.files.values())

    def final_states(self, every: int) -> Iterator[Tensor]:
        """The target's final states, [rows, H] a file, at every so-many-th position that it sampled a token from."""
        for file in self.files.values():
            sampled = file.get_tensor("log_normaliser").isfinite().nonzero().squeeze(1)[::every]
            yield file.get_tensor("states")[sampled, : self.hidden]

    def batch(
        self, pieces: list[Piece], anchors: int, K: int, layers, states, rng: random.Random
    ) -> TrainingBatch:
        """`anchors` random anchors in each piece. layers, states: which recorded keys and states to read."""
        C, H, KV, D = len(pieces), self.hidden, self.kv_heads, self.head_dim
        L = max(p.length for p in pieces)
        keys = [torch.zeros(C, KV, L, D) for _ in layers]
        values = [torch.zeros(C, KV, L, D) for _ in layers]
        anchor = torch.zeros(C, anchors, dtype=torch.long)  # the newest verified row of each anchor
        newest = torch.zeros(C, anchors, dtype=torch.long)
        state = torch.zeros(C, anchors, (1 + states) * H)
        previous = torch.zeros(C, anchors, K, dtype=torch.long)
        final = torch.zeros(C, anchors, K, H)
        normaliser = torch.zeros(C, anchors, K)
        valid = torch.zeros(C, anchors, K, dtype=torch.bool)
        for c, p in enumerate(pieces):
            file, rows = self.files[p.shard], slice(p.offset, p.offset + p.length)
            token = file.get_slice("tokens")[rows].long()
            states_ = file.get_slice("states")[rows].float()
            k, v = file.get_slice("keys")[rows].float(), file.get_slice("values")[rows].float()
            for i, layer in enumerate(layers):
                j = self.key_layers.index(layer)
                keys[i][c, :, : p.length] = k[:, j].view(-1, KV, D).transpose(0, 1)
                values[i][c, :, : p.length] = v[:, j].view(-1, KV, D).transpose(0, 1)
            # row a is verified and a+1 newest; the draft k is judged by the target's distribution at row a+1+k
            choices = range(p.first - 1, p.length - 2)
            chosen = (
                rng.sample(choices, anchors) if len(choices) >= anchors else rng.choices(choices, k=anchors)
            )
            anchor[c] = torch.tensor(chosen)
            judged = anchor[c][:, None] + 1 + torch.arange(K)
            valid[c] = judged < p.length
            judged = judged.clamp_max(p.length - 1)
            newest[c] = token[anchor[c] + 1]
            previous[c] = token[judged]
            state[c] = states_[anchor[c], : (1 + states) * H]
            final[c] = states_[judged][..., :H]
            normaliser[c] = file.get_slice("log_normaliser")[rows][judged]
        mask = torch.zeros(C, anchors, L).masked_fill_(torch.arange(L) > anchor[..., None], float("-inf"))
        valid &= normaliser.isfinite()
        return TrainingBatch(
            newest, state, anchor + 1, keys, values, mask, previous, final, normaliser.nan_to_num(0.0), valid
        )
