"""The small operations of a step in C++, where a CPU and a compiler are at hand; elsewhere PyTorch's do the same.

Built at the first use in a second or two, and kept in the cache folder under a name made of the source, the compiler
and the processor. AVLAB_NATIVE=0 turns it off. It links against the OpenMP library that torch brings along, so both
share their threads.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from avlab.engine.cache import Batch
from avlab.engine.native.building import built
from avlab.engine.native.tiles import Tiles, verdict_of

HEAD_SIZES = (64, 128)
BLOCK = 32  # outputs of a packed weight's block
ANY_ROWS = 2**63 - 1  # native products serve any number of rows
ENDINGS = {"none": 0, "silu": 1, "times": 2, "plus": 3}
_POINTER, _INTEGER, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
_ARGUMENTS = {
    "pack": [_POINTER] * 2 + [_INTEGER] * 2,
    "multiply": [_POINTER] * 5 + [_INTEGER] * 4,
    "rms_norm": [_POINTER] * 3 + [_INTEGER] * 2 + [_FLOAT],
    "rotate": [_POINTER] * 6 + [_INTEGER] * 5,
    "attend": [_POINTER] * 8 + [_INTEGER] * 5,
    "forward": [_POINTER, _INTEGER, _POINTER, _POINTER, _INTEGER, _INTEGER, _FLOAT],
    "draw": [_POINTER] * 7 + [_INTEGER] * 4,
    "recur": [_POINTER],
    "logits": [_POINTER] * 3 + [_INTEGER] * 3,
}
_FLOAT_ARGUMENTS = {
    "log_sum_exp": [_POINTER] * 2 + [_INTEGER] * 2,
    "draw_rows": [_POINTER] * 5 + [_INTEGER] * 2,
    "nucleus": [_POINTER] * 5 + [_FLOAT] * 2 + [_POINTER] * 3 + [_INTEGER] * 2,
}
_BFLOAT16_ARGUMENTS = {"use_tiles": [_INTEGER], "multiply_in_software_tiles": [_POINTER] * 5 + [_INTEGER] * 4}
_LONG = ("forward", "recur")  # calls during which other Python threads run


class _Places(ctypes.Structure):
    """`Places` of layers.h."""

    _fields_ = [
        *((name, _POINTER) for name in ("turns", "cache_rows", "positions", "begins", "counts")),
        *((name, _INTEGER) for name in ("rows", "runs", "heads", "kv_heads", "D", "length")),
    ]


class _Recurrence(ctypes.Structure):
    """`Recurrence` of recurrence.h."""

    _fields_ = [
        *(
            (name, _POINTER)
            for name in ("base", "drive", "token_drive", "carry", "carry_bias", "out", "out_bias")
        ),
        *((name, _POINTER) for name in ("ids", "newest", "temperatures", "uniforms")),
        *((name, _POINTER) for name in ("q", "weights", "features", "columns", "states")),
        *((name, _INTEGER) for name in ("B", "K", "Q", "M", "uniform_stride")),
    ]


class Packed(NamedTuple):
    """A weight as `Native.pack` lays it out, and its bias."""

    blocks: Tensor
    bias: Tensor | None


@dataclass(frozen=True, slots=True, eq=False)
class Layers:
    """Decoder layers over their part of the cache, for one call of `Native.forward`.

    pointers: [layers, 14] int64, addresses in the order of `Layer` in layers.h; whoever makes it keeps the tensors.
    length: positions of a cache row.
    """

    pointers: Tensor
    heads: int
    kv_heads: int
    head_dim: int
    length: int
    intermediate: int
    norm_epsilon: float


class Native:
    """The operations for one dtype. Tensors are contiguous, on the CPU, of that dtype unless said otherwise."""

    def __init__(self, path: str, dtype: torch.dtype, judge: Callable[[str], Tiles] | None = None):
        """path: of the built library; judge: who says whether a processor's matrix tiles serve, else they do not."""
        # PyDLL keeps the interpreter locked: to hand the lock over would take longer than most calls
        library, unlocking = ctypes.PyDLL(path), ctypes.CDLL(path)
        self._call: dict[str, Callable[..., None]] = {}
        suffix = str(dtype).removeprefix("torch.")
        known = _ARGUMENTS | (_FLOAT_ARGUMENTS if dtype == torch.float32 else _BFLOAT16_ARGUMENTS)
        for name, arguments in known.items():
            function = getattr(unlocking if name in _LONG else library, f"{name}_{suffix}")
            function.restype, function.argtypes = None, arguments
            self._call[name] = function

        def ask(question: str) -> int:
            function = getattr(library, f"{question}_{suffix}")
            function.restype = _INTEGER
            return function()

        self.tiles = Tiles(None)
        if dtype == torch.bfloat16 and ask("has_tiles"):
            self.tiles = Tiles(None, "the system does not let AMX be used")
            if ask("may_use_tiles") and judge:
                self.tiles = judge(path)
            self.use_tiles(self.tiles.least_rows)
        self.most_rows: int = ask("most_rows")  # of `multiply`; above, oneDNN is faster

    def use_tiles(self, least_rows: int | None) -> None:
        """Products of bfloat16 with so many rows and more use matrix tiles from now on; None: none do."""
        self._call["use_tiles"](least_rows or ANY_ROWS)

    @property
    def products(self) -> str:
        """Which matrix products serve, as a phrase."""
        least, note = self.tiles.least_rows, f" ({self.tiles.note})" if self.tiles.note else ""
        if least:
            return "AMX" if least == 1 else f"AMX from {least} rows on, AVX-512 BF16 below"
        if self.most_rows >= ANY_ROWS:
            return "AVX-512 BF16" + note
        return (f"native up to {self.most_rows} rows, oneDNN above" if self.most_rows else "oneDNN") + note

    def pack(self, weight: Tensor) -> Tensor:
        """A weight [out, in] as `multiply` reads it, padded with zeros to whole blocks of outputs."""
        out, inputs = weight.shape
        packed = weight.new_zeros(-(-out // BLOCK) * BLOCK * inputs)
        self._call["pack"](weight.data_ptr(), packed.data_ptr(), out, inputs)
        return packed

    def multiply(
        self,
        x: Tensor,
        weight: Tensor,
        width: int,
        bias: Tensor | None,
        ending: str = "none",
        other: Tensor | None = None,
    ) -> Tensor:
        """x Wᵀ + bias, finished as one of `ENDINGS` says.

        x: [N, in], N at most `most_rows`; weight: packed, of `width` outputs; other: [N, width], which it is
        multiplied with or which is added.
        """
        return self._multiplied("multiply", x, weight, width, bias, ending, other)

    def multiply_in_software_tiles(
        self,
        x: Tensor,
        weight: Tensor,
        width: int,
        bias: Tensor | None,
        ending: str = "none",
        other: Tensor | None = None,
    ) -> Tensor:
        """As `multiply`, as tiles would compute it, in plain loops: for tests. Inputs must fill tiles of 32."""
        return self._multiplied("multiply_in_software_tiles", x, weight, width, bias, ending, other)

    def _multiplied(
        self, name: str, x: Tensor, weight: Tensor, width: int, bias, ending: str, other
    ) -> Tensor:
        x, other = x.contiguous(), None if other is None else other.contiguous()
        out = x.new_empty(len(x), width)
        self._call[name](
            x.data_ptr(),
            weight.data_ptr(),
            None if bias is None else bias.data_ptr(),
            None if other is None else other.data_ptr(),
            out.data_ptr(),
            len(x),
            width,
            x.shape[1],
            ENDINGS[ending],
        )
        return out

    def logits(self, x: Tensor, weight: Tensor, width: int) -> Tensor:
        """x Wᵀ as float32, unrounded. x: [N, in]; weight: packed -> [N, width]."""
        out = torch.empty(len(x), width)
        self._call["logits"](x.data_ptr(), weight.data_ptr(), out.data_ptr(), len(x), width, x.shape[1])
        return out

    def rms_norm(self, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        """x / rms(x) · weight. x: [N, H] -> [N, H]."""
        out = torch.empty_like(x)
        self._call["rms_norm"](x.data_ptr(), weight.data_ptr(), out.data_ptr(), *x.shape, epsilon)
        return out

    def forward(self, layers: Layers, x: Tensor, turn: Tensor, batch: Batch) -> None:
        """Layers one after another, in place, for a batch of narrow requests. x: [N, hidden]; turn: as for `rotate`."""
        tensors = (turn, batch.cache_rows, batch.positions, batch.begins, batch.counts)
        sizes = layers.heads, layers.kv_heads, layers.head_dim, layers.length
        places = _Places(*(t.data_ptr() for t in tensors), len(x), len(batch.begins), *sizes)
        self._call["forward"](
            layers.pointers.data_ptr(), len(layers.pointers), x.data_ptr(), ctypes.addressof(places),
            x.shape[1], layers.intermediate, layers.norm_epsilon,
        )  # fmt: skip

    def rotate(
        self, qkv: Tensor, turn: Tensor, cache_rows: Tensor, positions: Tensor, keys: Tensor, values: Tensor
    ):
        """Rotates the queries of qkv [N, heads + 2 KV, D] in place; writes rotated keys, and values, into the cache.

        turn: [N, 1, D/2] complex64; cache_rows, positions: [N] int64; keys, values: [cache rows, KV, length, D].
        """
        N, heads, D = qkv.shape
        KV, length = keys.shape[1:3]
        self._call["rotate"](
            *(t.data_ptr() for t in (qkv, turn, cache_rows, positions, keys, values)),
            N,
            heads - 2 * KV,
            KV,
            D,
            length,
        )

    def attend(self, qkv: Tensor, keys: Tensor, values: Tensor, batch: Batch, out: Tensor) -> None:
        """Attention of the batch's narrow requests, `batch.begins` and `batch.counts`, into their rows of `out`.

        qkv: [N, heads + 2 KV, D] with rotated queries; out: [N, heads · D].
        """
        heads, D = qkv.shape[1:]
        KV, length = keys.shape[1:3]
        tensors = (qkv, keys, values, out, batch.cache_rows, batch.positions, batch.begins, batch.counts)
        self._call["attend"](
            *(t.data_ptr() for t in tensors), len(batch.begins), heads - 2 * KV, KV, D, length
        )

    def draw(
        self, logits: Tensor, temperature: Tensor, uniforms: Tensor, q: Tensor, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """A token and its distribution from each row, as `Draws.draw` defines them.

        logits: [B, Q]; temperature: [B] float32; uniforms: [B] float64 and q: [B, Q] float32, rows at any stride;
        weights: as q, rows at the same stride. Writes q, and weights where they are given; returns (columns [B],
        features [B] float64).
        """
        B, Q = logits.shape
        columns, features = torch.empty(B, dtype=torch.long), torch.empty(B, dtype=torch.float64)
        tensors = (logits, temperature, uniforms, q, weights, features, columns)
        pointers = (None if t is None else t.data_ptr() for t in tensors)
        self._call["draw"](*pointers, B, Q, q.stride(0), uniforms.stride(0))
        return columns, features

    def recur(
        self,
        base: Tensor,
        drive: Tensor,
        token_drive: Tensor,
        carry: Packed,
        out: Packed,
        ids: Tensor,
        newest: Tensor,
        temperature: Tensor,
        uniforms: Tensor,
        weights: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All positions of a block drafter's recurrence, as `BlockDrafter.position` and `Draws.draw` define them.

        base: [K, B, Q]; drive: [K, B, M]; token_drive: [V, M]; ids: [Q]; newest: [B]; temperature: [B] float32;
        uniforms: [B, K] float64 -> (columns [B, K], q [B, K, Q] float32, features [B, K] float64, states [K, B, M]).
        weights: [B, K, Q] float32, written where they are given.
        """
        K, B, Q = base.shape
        q, features = torch.empty(B, K, Q), torch.empty(B, K, dtype=torch.float64)
        columns, states = torch.empty(B, K, dtype=torch.long), torch.empty_like(drive)
        layers = (token_drive, carry.blocks, carry.bias, out.blocks, out.bias)
        inputs = (base, drive, *layers, ids, newest, temperature, uniforms)
        tensors = (*inputs, q, weights, features, columns, states)
        pointers = (None if t is None else t.data_ptr() for t in tensors)
        order = _Recurrence(*pointers, B, K, Q, drive.shape[2], uniforms.stride(0))
        self._call["recur"](ctypes.addressof(order))
        return columns, q, features, states

    def log_sum_exp(self, x: Tensor) -> Tensor:
        """log Σ exp(x) by row. x: [N, V] float32 -> [N]."""
        out = torch.empty(len(x))
        self._call["log_sum_exp"](x.data_ptr(), out.data_ptr(), *x.shape)
        return out

    def draw_rows(self, x: Tensor, rows: Tensor, normaliser: Tensor, uniforms: Tensor) -> Tensor:
        """A column of each named row by inverse transform of exp(x - normaliser).

        x: [N, V] float32; rows: [M]; normaliser: [N]; uniforms: [M] float64 -> [M].
        """
        columns = torch.empty_like(rows)
        tensors = (x, rows, normaliser, uniforms, columns)
        self._call["draw_rows"](*(t.data_ptr() for t in tensors), len(rows), x.shape[1])
        return columns

    def nucleus(
        self,
        x: Tensor,
        rows: Tensor,
        normaliser: Tensor,
        top_k: Tensor,
        top_p: Tensor,
        first: float,
        last: float,
    ) -> tuple[Tensor, Tensor]:
        """`avlab.engine.sampler.nucleus`, with the logarithms of its first and last bound.

        x: [N, V] float32; rows, top_k: [M] int64; normaliser: [N] float32; top_p: [M] float32.
        """
        M, V = len(rows), x.shape[1]
        counts, columns = torch.empty(M, dtype=torch.long), torch.empty(M, V, dtype=torch.int32)
        masses = torch.empty(M, V)
        before, after = (x, rows, normaliser, top_k, top_p), (counts, columns, masses)
        self._call["nucleus"](
            *(t.data_ptr() for t in before), first, last, *(t.data_ptr() for t in after), M, V
        )
        most = int(counts.max())
        kept = torch.arange(most) < counts[:, None]
        return torch.where(kept, columns[:, :most].long(), 0), torch.where(kept, masses[:, :most], 0.0)


@functools.cache
def native_for(dtype: torch.dtype | None, device: torch.device) -> Native | None:
    """The native operations, or None where `why_not` has a reason."""
    return None if why_not(dtype, device) or dtype is None else Native(built()[0], dtype, verdict_of)


def why_not(dtype: torch.dtype | None, device: torch.device) -> str:
    """Why PyTorch's operations serve instead, as a phrase; "" where the native ones do."""
    if device.type != "cpu":
        return f"the device is {device.type}"
    if dtype not in (torch.float32, torch.bfloat16):
        return f"the dtype is {str(dtype).removeprefix('torch.')}"
    return built()[1]


def products(dtype: torch.dtype | None, device: torch.device) -> str:
    """Which matrix products serve, as a phrase."""
    native = native_for(dtype, device)
    return native.products if native else "PyTorch's"
