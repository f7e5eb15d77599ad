"""The key/value cache: one row of positions a request, and the grouping of requests that attention runs on."""

import heapq
import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

GROUP = 8  # requests that share one batched product; measured at 64 requests with lengths 40 to 1,000


class KVCache:
    """Keys and values of every layer for `slots` requests of at most `length` positions each.

    The memory is asked for at once but touched only as requests fill it, so what a run really uses grows with its
    traffic. keys[layer], values[layer]: [slots, kv_heads, length, head_dim].
    """

    def __init__(self, layers: int, slots: int, kv_heads: int, length: int, head_dim: int, dtype, device):
        shape = (slots, kv_heads, length, head_dim)
        self.length = length
        self.keys = [_zeros(shape, dtype, device) for _ in range(layers)]
        self.values = [_zeros(shape, dtype, device) for _ in range(layers)]
        self._free = list(range(slots))

    @property
    def free_slots(self) -> int:
        return len(self._free)

    def acquire(self) -> int:
        """The lowest free slot: low slots stay together, and attention runs over runs of neighbours."""
        return heapq.heappop(self._free)

    def release(self, slot: int) -> None:
        heapq.heappush(self._free, slot)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device) -> Tensor:
    """Zeros whose memory the system provides only as it is written to.

    torch.zeros writes all of it at once, and numpy's zeros ask for huge pages, of which one written byte takes 2 MB.
    """
    if torch.device(device).type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.frombuffer(mmap.mmap(-1, math.prod(shape) * dtype.itemsize), dtype=dtype).view(shape)


@dataclass(slots=True)
class Group:
    """Neighbouring slots whose attention is one batched product.

    rows: [G, n] index into the batch's rows (padding points at row 0), or None where the rows are already
    consecutive with n = 1. back: [rows of the group] flat index into the padded [G * n]. mask: [G, n, length] added to
    the scores, or None.
    """

    first: int
    last: int
    length: int
    width: int
    start: int
    stop: int
    rows: Tensor | None
    back: Tensor | None
    mask: Tensor


@dataclass(slots=True)
class Batch:
    """A ragged batch: request i contributes `counts[i]` consecutive rows, the first of them at position `starts[i]`.

    slots_of_rows, positions: [N] for the N rows in the order of the requests (which is the order of their slots).
    """

    slots: list[int]
    starts: list[int]
    counts: list[int]
    slot_of_row: Tensor
    positions: Tensor
    groups: list[Group]

    @classmethod
    def build(
        cls, slots: Sequence[int], starts: Sequence[int], counts: Sequence[int], dtype, device
    ) -> "Batch":
        """Requests must come in rising slot order and contribute at least one row each."""
        positions = torch.cat([torch.arange(s, s + n) for s, n in zip(starts, counts, strict=True)])
        slot_of_row = torch.repeat_interleave(torch.tensor(slots), torch.tensor(counts))
        groups, i, row = [], 0, 0
        while i < len(slots):
            j = i + 1
            while (
                j < len(slots)
                and j - i < GROUP
                and slots[j] == slots[j - 1] + 1
                and max(counts[i : j + 1]) <= 2 * GROUP
            ):
                j += 1
            groups.append(_group(slots[i:j], starts[i:j], counts[i:j], row, dtype, device))
            row += sum(counts[i:j])
            i = j
        return cls(
            list(slots), list(starts), list(counts), slot_of_row.to(device), positions.to(device), groups
        )


def _group(slots, starts, counts, row, dtype, device) -> Group:
    width, length = max(counts), max(s + n for s, n in zip(starts, counts, strict=True))
    starts_, counts_ = torch.tensor(starts), torch.tensor(counts)
    query = starts_[:, None] + torch.arange(width).clamp(
        max=width
    )  # [G, n] position of each padded query row
    query = torch.minimum(query, (starts_ + counts_ - 1)[:, None])
    hidden = torch.arange(length) > query[:, :, None]  # [G, n, length]
    mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, float("-inf"))
    rows = back = None
    if width > 1 and len(slots) > 1:
        offset = row + torch.cumsum(counts_, 0) - counts_
        inside = torch.arange(width) < counts_[:, None]
        rows = torch.where(inside, offset[:, None] + torch.arange(width), 0).to(device)
        back = inside.flatten().nonzero().squeeze(1).to(device)
    return Group(slots[0], slots[-1] + 1, length, width, row, row + sum(counts), rows, back, mask.to(device))
