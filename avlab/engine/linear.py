"""Matrix products with weights laid out once for the processor they run on.

A decode step is thousands of small products, and for a few rows the time of each is that of reading its weight. The
native products (`native/products.h`) read packed blocks at the rate of the memory; oneDNN, which serves the sizes and
the processors that they are not for, at about half of it (576 x 1536 bfloat16 on two cores with AVX-512 BF16, in us:
one row 38 against 94, 8 rows 51 against 89, 64 rows 271 against 318). Elsewhere the plain operations do the same.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from avlab.engine.native import ANY_ROWS, Packed, native_for

# the overloads themselves: finding one by its arguments costs more than a small product's dispatch
PACKS = torch.backends.mkldnn.is_available()
PACKS_BFLOAT16 = PACKS and torch.ops.mkldnn._is_mkldnn_bf16_supported()  # not on a processor with AVX2 alone
UNARY: Any = torch.ops.mkldnn._linear_pointwise.default if PACKS else None
BINARY: Any = torch.ops.mkldnn._linear_pointwise.binary if PACKS else None
# Rows that bfloat16 products by oneDNN are padded to. It builds a primitive of some 12 ms and 1.8 MB for every new
# number of rows (measured on an Intel with AMX), and adaptive verification has another number every step.
PADDED = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
ONEDNN = {"none": "none", "silu": "swish", "times": "mul", "plus": "add"}
PLAIN: dict[str, Any] = {
    "none": lambda y, other: y,
    "silu": lambda y, other: F.silu(y),
    "times": lambda y, other: y * other,
    "plus": lambda y, other: y + other,
}


class Linear:
    """y = x Wᵀ + b, with the three endings a Llama block needs. x: [N, in]; W: [out, in]; b: [out] or None."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        self.out_features, self.in_features = weight.shape
        self.bias, self.weight = bias, weight.contiguous()
        self.native, self.most_rows = native_for(weight.dtype, weight.device), 0
        packs = PACKS_BFLOAT16 if weight.dtype == torch.bfloat16 else PACKS
        if self.native and self.in_features % 2 == 0:
            self.most_rows, self.blocks = self.native.most_rows, self.native.pack(self.weight)
        self.packed = weight.device.type == "cpu" and packs and self.most_rows < ANY_ROWS
        if self.most_rows >= ANY_ROWS:  # no other copy is kept
            del self.weight
        elif self.packed:
            self.weight = torch.ops.mkldnn._reorder_linear_weight(self.weight, 32)

    def padded(self, rows: int) -> int:
        """How many rows a product of so many computes: the next of `PADDED`, beyond them a multiple of the last.

        Native products and those of float32 compute as many as they are given.
        """
        if not self.packed or self.weight.dtype != torch.bfloat16 or rows <= self.most_rows:
            return rows
        return next((size for size in PADDED if size >= rows), -(-rows // PADDED[-1]) * PADDED[-1])

    @property
    def native_weight(self) -> Packed:
        """Weight and bias for native operations. Only where native products serve."""
        return Packed(self.blocks, self.bias)

    def __call__(self, x: Tensor) -> Tensor:
        return self._finished(x, "none", None)

    def float32(self, x: Tensor) -> Tensor:
        """x Wᵀ as float32, where the native product serves without rounding to the dtype of x between."""
        if self.native and self.bias is None and len(x) <= self.most_rows:
            return self.native.logits(x.contiguous(), self.blocks, self.out_features)
        return self(x).float()

    def silu(self, x: Tensor) -> Tensor:
        """silu(x Wᵀ + b)."""
        return self._finished(x, "silu", None)

    def times(self, x: Tensor, factor: Tensor) -> Tensor:
        """(x Wᵀ + b) · factor; factor: [N, out]."""
        return self._finished(x, "times", factor)

    def plus(self, x: Tensor, residual: Tensor) -> Tensor:
        """x Wᵀ + b + residual; residual: [N, out]."""
        return self._finished(x, "plus", residual)

    def _finished(self, x: Tensor, ending: str, other: Tensor | None) -> Tensor:
        if self.native and len(x) <= self.most_rows:
            return self.native.multiply(x, self.blocks, self.out_features, self.bias, ending, other)
        if self.packed:
            rows, more = len(x), self.padded(len(x)) - len(x)
            if more:
                x, other = F.pad(x, (0, 0, 0, more)), None if other is None else F.pad(other, (0, 0, 0, more))
            if other is None:
                return UNARY(x, self.weight, self.bias, ONEDNN[ending], [], "")[:rows]
            return BINARY(x, other, self.weight, self.bias, ONEDNN[ending])[:rows]
        y = F.linear(x, self.weight, self.bias)
        return PLAIN[ending](y, other)
