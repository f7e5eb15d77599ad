"""Compares products by matrix tiles with plain ones. As a program, given the library's path, it prints the verdict."""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict

import torch
from torch import Tensor

from avlab.engine.native import Native
from avlab.engine.native.tiles import Tiles

Multiply = Callable[[Tensor, Tensor, int, "Tensor | None", str, "Tensor | None"], Tensor]
SHAPES = ((50, 32), (576, 576), (576, 1536))  # outputs and inputs of the weights that are compared
ROWS = (1, 2, 15, 16, 17, 31, 32, 33, 48, 100)
TIMED = (1, 2, 4, 8, 16, 32, 64)  # rows
REPEATS = 30


def difference(plain: Multiply, tiled: Multiply, pack: Callable[[Tensor], Tensor]) -> str:
    """Where the two ways to multiply differ by more than the order of sums explains, as a phrase; "" where nowhere.

    plain, tiled: as `Native.multiply`; pack: as `Native.pack`.
    """
    generator = torch.Generator().manual_seed(0)

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(torch.bfloat16)

    for outputs, inputs in SHAPES:
        weight, bias = pack(some(outputs, inputs)), some(outputs)
        for rows in ROWS:
            x, other = some(rows, inputs), some(rows, outputs)
            for ending in ("none", "silu", "times", "plus"):
                one, two = (
                    way(x, weight, outputs, bias, ending, None if ending in ("none", "silu") else other)
                    for way in (plain, tiled)
                )
                if not torch.allclose(one.float(), two.float(), rtol=2**-6, atol=inputs**0.5 * 2**-8):
                    return f"{rows} rows by {outputs} x {inputs}"
    return ""


def least_rows(plain: Multiply, tiled: Multiply, pack: Callable[[Tensor], Tensor]) -> int | None:
    """From how many rows on tiles are faster, by the least of some timings; None where they never are."""
    outputs, inputs = 1536, 576
    weight, least = pack(torch.randn(outputs, inputs).to(torch.bfloat16)), None
    for rows in reversed(TIMED):
        x, best = torch.randn(rows, inputs).to(torch.bfloat16), [float("inf")] * 2
        for _ in range(REPEATS):
            for i, way in enumerate((plain, tiled)):
                began = time.perf_counter()
                way(x, weight, outputs, None, "none", None)
                best[i] = min(best[i], time.perf_counter() - began)
        if best[1] >= best[0]:
            break
        least = rows
    return least


def judged(plain: Multiply, tiled: Multiply, pack: Callable[[Tensor], Tensor]) -> Tiles:
    """The verdict on `tiled`: that it equals `plain`, and from how many rows on it is faster."""
    if found := difference(plain, tiled, pack):
        return Tiles(None, f"AMX products differ from plain ones ({found})")
    least = least_rows(plain, tiled, pack)
    return Tiles(least, "" if least else "AMX products are slower than plain ones here")


def _main() -> None:
    native = Native(sys.argv[1], torch.bfloat16)

    def through(least: int | None) -> Multiply:
        def multiply(*arguments) -> Tensor:
            native.use_tiles(least)
            return native.multiply(*arguments)

        return multiply

    print(json.dumps(asdict(judged(through(None), through(1), native.pack))))


if __name__ == "__main__":
    _main()
