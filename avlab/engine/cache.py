"""The key/value cache: one row of positions a request, and the grouping of requests that attention runs on."""

import heapq
import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# measured: a further group costs a step what reading some 600 more cached positions costs; drafts at most this wide
GROUP_COST = 600
WIDEST = 32


class KVCache:
    """Keys and values of every layer for `rows` requests of at most `length` positions each.

    The memory is asked for at once but touched only as requests fill it, so what a run really uses grows with its
    traffic. keys[layer], values[layer]: [rows, kv_heads, length, head_dim].
    """

    def __init__(self, layers: int, rows: int, kv_heads: int, length: int, head_dim: int, dtype, device):
        shape = (rows, kv_heads, length, head_dim)
        self.length = length
        self.keys = [_zeros(shape, dtype, device) for _ in range(layers)]
        self.values = [_zeros(shape, dtype, device) for _ in range(layers)]
        self._free = list(range(rows))

    @property
    def free_rows(self) -> int:
        return len(self._free)

    def acquire(self) -> int:
        """The lowest free row: low rows stay together, and attention runs over runs of neighbours."""
        return heapq.heappop(self._free)

    def release(self, row: int) -> None:
        heapq.heappush(self._free, row)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device) -> Tensor:
    """Zeros whose memory the system provides only as it is written to.

    torch.zeros writes all of it at once, and numpy's zeros ask for huge pages, of which one written byte takes 2 MB.
    """
    if torch.device(device).type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    size = math.prod(shape) * dtype.itemsize
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError):
        raise MemoryError(f"no room for {size} bytes of keys or values") from None
    return torch.frombuffer(memory, dtype=dtype).view(shape)


@dataclass(slots=True)
class Group:
    """Neighbouring cache rows [first, last) whose attention is one batched product over G = last - first requests.

    start, stop: the group's rows in the batch. width: rows a request is padded to; length: positions attended to.
    rows: [G * width] the batch row of each padded row (padding points at row 0), back: [stop - start] the padded row of
    each real one; both None where no request is padded. mask: [G, width, length] is added to the scores.
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
    _by_head: Tensor | None = None

    def mask_of(self, kv_heads: int, share: int) -> Tensor:
        """The mask as attention adds it, [G * kv_heads, length, width * share]; the same in every layer of a model."""
        if self._by_head is None:
            G, n, length = self.mask.shape
            wide = self.mask.transpose(1, 2)[:, None, :, :, None].expand(G, kv_heads, length, n, share)
            self._by_head = wide.reshape(G * kv_heads, length, n * share)
        return self._by_head


@dataclass(slots=True)
class Batch:
    """A ragged batch of N rows: request i contributes `counts[i]` consecutive rows, the first at `starts[i]`.

    cache_rows, positions: [N] where each row belongs in the cache, by rising cache row. groups: the requests that
    batched products attend for. begins, counts: first row and rows of each of the others, which are narrow.
    """

    cache_rows: Tensor
    positions: Tensor
    groups: list[Group]
    begins: Tensor
    counts: Tensor

    @classmethod
    def build(
        cls,
        cache_rows: Sequence[int],
        starts: Sequence[int],
        counts: Sequence[int],
        dtype,
        device,
        narrow: int = 0,
    ) -> "Batch":
        """Requests must come by rising cache row and contribute at least one row each.

        narrow: requests of at most so many rows are not grouped.
        """
        in_cache, starts_, counts_ = np.array(cache_rows), np.array(starts), np.array(counts)
        first_row = np.cumsum(counts_) - counts_
        owner = np.repeat(np.arange(len(in_cache)), counts_)
        positions = starts_[owner] + np.arange(len(owner)) - first_row[owner]
        few = counts_ <= narrow
        groups = [
            _group(in_cache[i:j], starts_[i:j], counts_[i:j], int(first_row[i]), dtype, device)
            for i, j in neighbours(
                cache_rows, [s + n for s, n in zip(starts, counts, strict=True)], counts, narrow
            )
        ]
        rows = (in_cache[owner], positions, first_row[few], counts_[few])
        row_of, at, begins, narrow_counts = (torch.from_numpy(each).to(device) for each in rows)
        return cls(row_of, at, groups, begins, narrow_counts)


def neighbours(
    cache_rows: Sequence[int], lengths: Sequence[int], counts: Sequence[int], narrow: int = 0
) -> list[tuple[int, int]]:
    """Runs [i, j) of requests to attend together: adjacent cache rows, as long as padding costs less than a group does.

    Prefill stays alone, since every request of a group is padded to the group's widest. Requests of at most
    `narrow` rows are left out.
    """
    runs, i = [], 0
    while i < len(cache_rows):
        if counts[i] <= narrow:
            i += 1
            continue
        j, longest = i + 1, lengths[i]
        while (
            j < len(cache_rows)
            and cache_rows[j] == cache_rows[j - 1] + 1
            and narrow < counts[j]
            and max(counts[i], counts[j]) <= WIDEST
        ):
            wider = max(longest, lengths[j])
            if wider * (j + 1 - i) - longest * (j - i) - lengths[j] > GROUP_COST:
                break
            j, longest = j + 1, wider
        runs.append((i, j))
        i = j
    return runs


def _group(cache_rows, starts, counts, row: int, dtype, device) -> Group:
    G, width, length = len(cache_rows), int(counts.max()), int((starts + counts).max())
    inside = np.arange(width) < counts[:, None]  # [G, width] which padded rows are real
    query = np.minimum(starts[:, None] + np.arange(width), (starts + counts - 1)[:, None])
    mask = torch.zeros(G, width, length, dtype=dtype)
    mask.masked_fill_(torch.from_numpy(np.arange(length) > query[:, :, None]), -math.inf)
    rows = back = None
    if width > 1 and not inside.all():
        offset = row + np.cumsum(counts) - counts
        rows = torch.from_numpy(np.where(inside, offset[:, None] + np.arange(width), 0).ravel()).to(device)
        back = torch.from_numpy(np.flatnonzero(inside)).to(device)
    first, stop = int(cache_rows[0]), row + int(counts.sum())
    return Group(first, first + G, length, width, row, stop, rows, back, mask.to(device))
