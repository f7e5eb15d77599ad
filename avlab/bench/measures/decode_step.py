"""How much of the target's decode step is not its matrix products."""

import itertools
import time

import numpy as np

from avlab.bench.base import Bar, Context, Measure, Result, Table
from avlab.bench.rounds import spread
from avlab.speculation.sampling import MODELS_OWN

REQUESTS, CACHED = 16, 256
BAR = Bar("decode-step", "decode step of the target over its bare matrix products", "×", 1.4, "<=")


def measure(context: Context) -> Result:
    """Alternates one pass, its bare products and one whole step of the engine, 16 requests at context 256."""
    import torch

    from avlab.bench.lab import Lab
    from avlab.engine.linear import Linear

    lab = Lab(context)
    target, engine = lab.built.target, lab.engine
    tokens = torch.randint(target.config.vocabulary, (REQUESTS,))
    cached = min(CACHED, target.length - 128)
    linears = [
        value for layer in target.layers for value in vars(layer).values() if isinstance(value, Linear)
    ]
    linears.append(target.head)
    inputs = {
        width: torch.randn(REQUESTS, width, dtype=target.dtype)
        for width in {each.in_features for each in linears}
    }
    lab.prompts = itertools.repeat(([5] * cached, "none"))
    lab.begin(REQUESTS, sampling=MODELS_OWN)

    @torch.inference_mode()
    def one_pass() -> None:
        places = range(REQUESTS), [cached] * REQUESTS, [1] * REQUESTS
        batch = target.batch(*places)
        target.logits(target.forward(tokens, batch, engine.cache)[0])

    @torch.inference_mode()
    def products() -> None:
        for linear in linears:
            linear(inputs[linear.in_features])

    def whole_step() -> bool:
        report = engine.step()
        return report.emitting == REQUESTS and not report.prompt_tokens

    repeats = context.pick(30, 100)
    took = np.full((repeats, 3), np.nan)
    for i in range(-3, repeats):  # the first three warm up
        lab.fill()
        for j, run in enumerate((one_pass, products, whole_step)):
            began = time.perf_counter()
            counts = run() is not False  # a step in which a request ended or began is another step
            if counts and i >= 0:
                took[i, j] = (time.perf_counter() - began) * 1e3
        context.progress("decode steps", max(i + 1, 0), repeats)
    ratio, whole = took[:, 0] / took[:, 1], took[:, 2] / took[:, 1]
    whole, step_ms = whole[np.isfinite(whole)], float(np.nanmedian(took[:, 2]))
    rows = [
        ["bare matrix products, LM head counted", round(float(np.median(took[:, 1])), 2), ""],
        ["the target's pass", round(float(np.median(took[:, 0])), 2), spread(ratio)],
        ["the engine's step: pass, sampling at temperature 1, bookkeeping", round(step_ms, 2), spread(whole)],
    ]
    table = Table(
        f"One decode step, {REQUESTS} requests, context {cached}", ["what", "ms", "over products"], rows
    )
    return Result({BAR.name: float(np.median(ratio))}, [table])


MEASURES = (Measure("decode-step", "the target's decode step", (BAR,), measure, 10),)
