"""Many drafts that branch off one text, in one pass of a model's layers.

A branch begins somewhere in a text that the model has read: its rows read the text's keys up to there and each other's.
All branches of a text go through the layers together, as one product of many rows; only attention tells them apart.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from avlab.engine.cache import KVCache
from avlab.engine.target import Layer, rotate


class Branches:
    """Rows of B branches, side by side by branch. Position and what each may read are the same in every layer."""

    def __init__(self, base: Tensor, counts: Tensor, earlier: int = 0):
        """base: [B] how many of the text's positions each reads. counts: [B] its new rows, at least one.

        earlier: rows of its own that each has already; the new ones follow, at position base + earlier.
        """
        B, self.earlier, self.read = len(base), earlier, int(base.max())
        self.width = int(counts.max())
        self.owner = torch.arange(B).repeat_interleave(counts)  # [N]
        row = torch.arange(len(self.owner)) - (counts.cumsum(0) - counts)[self.owner]
        self.place = (
            self.owner * self.width + row
        )  # [N] among the rows of all branches, each as wide as the widest
        self.positions = base[self.owner] + earlier + row
        text = torch.arange(self.read) >= base[self.owner, None]
        own = torch.arange(earlier + self.width) > (row + earlier)[:, None]
        self.hidden = torch.zeros(len(self.owner), self.read + earlier + self.width)
        self.hidden.masked_fill_(torch.cat([text, own], 1), -math.inf)  # [N, read + own], added to the scores
        self.branches = B


def forward(
    layers: Sequence[Layer],
    text: Sequence[tuple[Tensor, Tensor]],
    turns: Tensor,
    x: Tensor,
    branches: Branches,
    own: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Rows x [N, H] of the branches through layers -> ([N, H], their own keys and values).

    text: the text's keys and values for each layer, [KV, L, D]. turns: [positions, D / 2], of the target. own: what the
    pass before gave, [B, layers, 2, KV, earlier, D]; given back with the new rows behind.
    """
    turn, mask = turns[branches.positions].unsqueeze(1), branches.hidden.to(x.dtype)
    kept = []
    for i, (layer, (keys, values)) in enumerate(zip(layers, text, strict=True)):
        c = layer.config
        qkv = layer.projections(x)
        qkv[:, : c.heads + c.kv_heads] = rotate(qkv[:, : c.heads + c.kv_heads], turn)
        new = qkv.new_zeros(branches.branches * branches.width, 2 * c.kv_heads, c.head_dim)
        new[branches.place] = qkv[:, c.heads :]
        mine = new.view(branches.branches, branches.width, 2, c.kv_heads, c.head_dim).permute(0, 2, 3, 1, 4)
        mine = mine.contiguous() if own is None else torch.cat([own[:, i], mine], 3)
        kept.append(mine)
        mixed = _attend(qkv[:, : c.heads], keys, values, mine, branches, mask)
        x = layer.mlp(layer.out.plus(mixed, layer.residual(x)))
    return x, torch.stack(kept, 1)


def _attend(q: Tensor, keys: Tensor, values: Tensor, own: Tensor, branches: Branches, mask: Tensor) -> Tensor:
    """q: [N, heads, D]; keys, values: [KV, L, D] of the text; own: [B, 2, KV, C, D] -> [N, heads * D]."""
    N, (KV, _, D), B, L = len(q), keys.shape, branches.branches, branches.read
    share, n = q.shape[1] // KV, branches.width
    folded = q.view(N, KV, share, D).transpose(0, 1).reshape(KV, N * share, D)
    read = torch.bmm(folded, keys[:, :L].transpose(1, 2)).view(KV, N, share, L)
    wide = q.new_zeros(B * n, KV, share, D)
    wide[branches.place] = q.view(N, KV, share, D)
    wide = wide.view(B, n, KV, share, D).transpose(1, 2).reshape(B * KV, n * share, D)
    among = torch.bmm(wide, own[:, 0].flatten(0, 1).transpose(1, 2))  # [B * KV, n * share, C]
    among = among.view(B, KV, n, share, -1).transpose(1, 2).flatten(0, 1)[branches.place]  # [N, KV, share, C]
    scores = torch.cat([read, among.transpose(0, 1)], 3).mul_(D**-0.5).add_(mask[:, None])
    shares = scores.softmax(3)
    mixed = torch.bmm(shares[..., :L].reshape(KV, -1, L), values[:, :L]).view(KV, N, share, D).transpose(0, 1)
    theirs = q.new_zeros(B * n, KV, share, own.shape[3])
    theirs[branches.place] = shares[..., L:].transpose(0, 1)
    theirs = theirs.view(B, n, KV, share, -1).transpose(1, 2).reshape(B * KV, n * share, -1)
    theirs = torch.bmm(theirs, own[:, 1].flatten(0, 1)).view(B, KV, n, share, D).transpose(1, 2)
    return (mixed + theirs.flatten(0, 1)[branches.place]).reshape(N, -1)


def text_of(cache: KVCache, row: int, layers: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    """The keys and values of a text in a cache row, for `forward`."""
    return [(cache.keys[i][row], cache.values[i][row]) for i in layers]
