"""Matrix products with weights laid out once for the processor they run on.

On a CPU oneDNN multiplies a weight that it packed beforehand up to twice as fast as a plain one at the sizes that
decoding uses, and it can finish a product with an activation or an addition in the same pass. For a few rows the time
is that of reading the weight, and the native product reads at twice oneDNN's rate (measured: 576 x 1536 bfloat16, one
or two rows, two threads: 50 us against 110). Elsewhere the plain operations do the same.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from avlab.engine.native import MOST_ROWS, native_for

# the overloads themselves: finding one by its arguments costs more than a small product's dispatch
PACKS = torch.backends.mkldnn.is_available()
PACKS_BFLOAT16 = PACKS and torch.ops.mkldnn._is_mkldnn_bf16_supported()  # not on a processor with AVX2 alone
UNARY: Any = torch.ops.mkldnn._linear_pointwise.default if PACKS else None
BINARY: Any = torch.ops.mkldnn._linear_pointwise.binary if PACKS else None


class Linear:
    """y = x Wᵀ + b, with the three endings a Llama block needs. x: [N, in]; W: [out, in]; b: [out] or None."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        self.out_features, self.in_features = weight.shape
        self.weight, self.bias = weight.contiguous(), bias
        self.native = native_for(weight.dtype, weight.device)
        packs = PACKS_BFLOAT16 if weight.dtype == torch.bfloat16 else PACKS
        self.packed: Tensor | None = None
        if weight.device.type == "cpu" and packs:
            self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight, 32)

    def __call__(self, x: Tensor) -> Tensor:
        if self.native and len(x) <= MOST_ROWS:
            return self.native.multiply(x, self.weight, self.bias)
        if self.packed is not None:
            return UNARY(x, self.packed, self.bias, "none", [], "")
        return F.linear(x, self.weight, self.bias)

    def silu(self, x: Tensor) -> Tensor:
        """silu(x Wᵀ + b)."""
        if self.native and len(x) <= MOST_ROWS:
            return self.native.multiply(x, self.weight, self.bias, "silu")
        if self.packed is not None:
            return UNARY(x, self.packed, self.bias, "swish", [], "")
        return F.silu(F.linear(x, self.weight, self.bias))

    def times(self, x: Tensor, factor: Tensor) -> Tensor:
        """(x Wᵀ + b) · factor; factor: [N, out]."""
        if self.native and len(x) <= MOST_ROWS:
            return self.native.multiply(x, self.weight, self.bias, "times", factor)
        if self.packed is not None:
            return BINARY(x, factor, self.packed, self.bias, "mul")
        return F.linear(x, self.weight, self.bias) * factor

    def plus(self, x: Tensor, residual: Tensor) -> Tensor:
        """x Wᵀ + b + residual; residual: [N, out]."""
        if self.native and len(x) <= MOST_ROWS:
            return self.native.multiply(x, self.weight, self.bias, "plus", residual)
        if self.packed is not None:
            return BINARY(x, residual, self.packed, self.bias, "add")
        return F.linear(x, self.weight, self.bias) + residual
