"""The small operations of a step in C++, where a CPU and a compiler are at hand; elsewhere PyTorch's do the same.

Built at the first use in a second or two, and kept in the cache folder under a name made of the source, the compiler
and the processor. AVLAB_NATIVE=0 turns it off. It links against the OpenMP library that torch brings along, so both
share their threads.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from avlab.engine.fetch import cache_folder

SOURCE = Path(__file__).with_name("native.cpp")
FLAGS = (
    *("-O3", "-march=native", "-std=c++17", "-fopenmp", "-shared", "-fPIC"),
    # sums may be reordered, so that they use vectors; infinities and what is not a number keep their meaning
    *("-fno-math-errno", "-fno-trapping-math", "-fassociative-math", "-fno-signed-zeros"),
)
HEAD_SIZES = (64, 128)
BLOCK = 32  # outputs of a packed weight's block
ENDINGS = {"none": 0, "silu": 1, "times": 2, "plus": 3}
_POINTER, _INTEGER, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
_ARGUMENTS = {
    "pack": [_POINTER] * 2 + [_INTEGER] * 2,
    "multiply": [_POINTER] * 5 + [_INTEGER] * 4,
    "rms_norm": [_POINTER] * 3 + [_INTEGER] * 2 + [_FLOAT],
    "rotate": [_POINTER] * 6 + [_INTEGER] * 5,
    "attend": [_POINTER] * 8 + [_INTEGER] * 5,
    "draw": [_POINTER] * 6 + [_INTEGER] * 4,
    "logits": [_POINTER] * 3 + [_INTEGER] * 3,
}
_FLOAT_ARGUMENTS = {
    "log_sum_exp": [_POINTER] * 2 + [_INTEGER] * 2,
    "draw_rows": [_POINTER] * 5 + [_INTEGER] * 2,
    "above": [_POINTER] * 5 + [_INTEGER] * 2,
}


class Native:
    """The operations for one dtype. Tensors are contiguous, on the CPU, of that dtype unless said otherwise."""

    def __init__(self, library: ctypes.PyDLL, dtype: torch.dtype):
        self._call: dict[str, Callable[..., None]] = {}
        suffix = str(dtype).removeprefix("torch.")
        known = _ARGUMENTS | (_FLOAT_ARGUMENTS if dtype == torch.float32 else {})
        for name, arguments in known.items():
            function = getattr(library, f"{name}_{suffix}")
            function.restype, function.argtypes = None, arguments
            self._call[name] = function
        most_rows = getattr(library, f"most_rows_{suffix}")
        most_rows.restype = _INTEGER
        self.most_rows: int = most_rows()

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
        x, other = x.contiguous(), None if other is None else other.contiguous()
        out = x.new_empty(len(x), width)
        self._call["multiply"](
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

    def rotate(
        self, qkv: Tensor, turn: Tensor, slots: Tensor, positions: Tensor, keys: Tensor, values: Tensor
    ):
        """Rotates the queries of qkv [N, heads + 2 KV, D] in place; writes rotated keys, and values, into the cache.

        turn: [N, 1, D/2] complex64; slots, positions: [N] int64; keys, values: [slots, KV, length, D].
        """
        N, heads, D = qkv.shape
        KV, length = keys.shape[1:3]
        self._call["rotate"](
            *(t.data_ptr() for t in (qkv, turn, slots, positions, keys, values)),
            N,
            heads - 2 * KV,
            KV,
            D,
            length,
        )

    def attend(self, qkv: Tensor, keys: Tensor, values: Tensor, batch, out: Tensor) -> None:
        """Attention of the batch's narrow requests, `batch.begins` and `batch.counts`, into their rows of `out`.

        qkv: [N, heads + 2 KV, D] with rotated queries; out: [N, heads · D].
        """
        heads, D = qkv.shape[1:]
        KV, length = keys.shape[1:3]
        tensors = (qkv, keys, values, out, batch.slot_of_row, batch.positions, batch.begins, batch.counts)
        self._call["attend"](
            *(t.data_ptr() for t in tensors), len(batch.begins), heads - 2 * KV, KV, D, length
        )

    def draw(self, logits: Tensor, temperature: Tensor, uniforms: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        """A token and its distribution from each row, as `Draws.draw` defines them.

        logits: [B, Q]; temperature: [B] float32; uniforms: [B] float64 and q: [B, Q] float32, rows at any stride.
        Writes q; returns (columns [B], features [B] float64).
        """
        B, Q = logits.shape
        columns, features = torch.empty(B, dtype=torch.long), torch.empty(B, dtype=torch.float64)
        tensors = (logits, temperature, uniforms, q, features, columns)
        self._call["draw"](*(t.data_ptr() for t in tensors), B, Q, q.stride(0), uniforms.stride(0))
        return columns, features

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

    def above(self, x: Tensor, rows: Tensor, floor: Tensor) -> tuple[Tensor, Tensor]:
        """Entries above their row's floor. x: [N, V] float32; rows, floor: [M] -> (which of the M, column), rising."""
        M, V = len(rows), x.shape[1]
        counts, columns = torch.empty(M, dtype=torch.long), torch.empty(M, V, dtype=torch.int32)
        tensors = (x, rows, floor, counts, columns)
        self._call["above"](*(t.data_ptr() for t in tensors), M, V)
        which = torch.repeat_interleave(torch.arange(M), counts)
        place = torch.arange(len(which)) - (counts.cumsum(0) - counts)[which]
        return which, columns[which, place].long()


@functools.cache
def native_for(dtype: torch.dtype | None, device: torch.device) -> Native | None:
    """The native operations, or None where there is no compiler, no CPU, or another dtype."""
    if device.type != "cpu" or dtype not in (torch.float32, torch.bfloat16):
        return None
    library = _library()
    return None if library is None else Native(library, dtype)


@functools.cache
def _library() -> ctypes.PyDLL | None:
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if os.environ.get("AVLAB_NATIVE") == "0" or compiler is None or platform.system() != "Linux":
        return None
    try:
        processor = _processor()
        version = subprocess.run([compiler, "--version"], capture_output=True, check=True, timeout=20).stdout
        name = hashlib.sha256(b"\0".join([SOURCE.read_bytes(), repr(FLAGS).encode(), version, processor]))
        path = cache_folder() / "native" / f"{name.hexdigest()[:20]}.so"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=path.parent) as folder:
                made = Path(folder) / "native.so"
                command = [compiler, *FLAGS, str(SOURCE), "-o", str(made)]
                subprocess.run(command, capture_output=True, check=True, timeout=300)
                made.replace(path)  # several processes may build at once, with the same result
        # PyDLL: the interpreter stays locked, since handing the lock over would take longer than most calls
        return ctypes.PyDLL(str(path))
    except (OSError, subprocess.SubprocessError):
        return None


def _processor() -> bytes:
    """What -march=native depends on: the processor's model and its extensions."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    wanted = {line for line in lines if line.split("\t")[0].split(" ")[0] in ("model", "flags", "Features")}
    return "\n".join(sorted(wanted)).encode()
