"""Replay against the engine: tokens a step of the same prompts under the same rules, served and replayed."""

import json
from dataclasses import replace
from statistics import NormalDist

from avlab.bench.base import Bar, Context, Measure, NotMeasured, Result, Table
from avlab.bench.served_texts import (
    ClosedLoop,
    Texts,
    difference,
    pooled,
    prompts_of,
    recorded_again,
    served_by_engine,
)

ARMS = ("fixed:1", "fixed:3", "fixed:7", "adaptive", "adaptive+depth")
PROMPTS = {16: 140, 4: 70, 1: 28}  # by requests: all of the shipped trace, and fewer where serving is slow
TOKENS = 64  # of a text, at most: an interval is by text, so many short ones say more
TRACE = "reasoning"
DRAWS = 2  # further sets of texts of the same prompts
CONFIDENCE = 0.99  # joint, of all cells
BARS = (
    Bar("replay-apart", "replay and engine, tokens a step: farthest apart of 15 cells", "%"),
    Bar("replay-outside", "cells whose joint 99 % interval leaves out equality", "", 0, "<="),
    Bar("replay-mean", "replay over the engine, tokens a step, mean of the cells: off by", "%", 1.5, "<="),
)


def measure(context: Context) -> Result:
    """Every cell is kept in a file as soon as it is served, so that an interrupted measure goes on."""
    import numpy as np

    from avlab.bench.lab import Lab
    from avlab.machines import DEFAULT_MACHINE, machine
    from avlab.replay.traces import trace_named
    from avlab.speculation.sampling import Sampling

    trace = trace_named(TRACE)
    about = trace.about
    lab = Lab(context)
    lab.engine.config = replace(lab.engine.config, measure_costs=False)  # both sides decide by one table
    if lab.built.target_name != about.target or lab.built.drafter_name != about.drafter:
        raise NotMeasured(f"the trace {TRACE} is of {about.target} with {about.drafter}: measure these.")
    lab.sampling, lab.max_new_tokens = Sampling(about.temperature, about.top_k, about.top_p), TOKENS
    emulated, table = machine(DEFAULT_MACHINE, about.K), lab.engine.costs
    prefill = lab.engine.config.prefill_tokens(about.K)
    written = prompts_of(lab, trace)
    prompts = PROMPTS if not context.quick else {16: 32, 4: 8}
    cells = [(arm, load) for load in prompts for arm in ARMS]
    quantile = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / 2 / len(cells))
    context.folder.mkdir(parents=True, exist_ok=True)
    path = context.folder / f"replay-{context.key}.json"
    kept = json.loads(path.read_text()) if path.is_file() else {}
    traces = [trace]
    for draw in range(context.pick(0, DRAWS)):

        def recording(done: float, total: float, draw: int = draw) -> None:
            context.progress(f"recording texts again, {draw + 1} of {DRAWS}", done, total)

        folder = context.folder / f"replay-{context.key}-{draw}.parts"
        traces.append(recorded_again(lab, trace, written, TOKENS, draw, folder, recording))
    rows, pairs, apart, spreads = [], [], [], []
    for arm, load in cells:
        count, name = prompts[load], f"{arm}@{load}"
        if name not in kept:

            def shown(done: float, total: float, name: str = name) -> None:
                context.progress(f"serving {name}", done, total)

            served = served_by_engine(lab, arm, load, written, count, shown)
            kept[name] = [served.tokens.tolist(), served.steps.tolist()]
            path.write_text(json.dumps(kept))
        served = Texts(*map(np.array, kept[name]))
        loop = ClosedLoop(emulated, table, arm, load, count, TOKENS, prefill)
        replayed = loop.of_all(traces)
        spreads.append(loop.spread_of_learning(trace) * (1 + 1 / len(traces)) ** 0.5)
        off = difference(replayed, served, quantile, spreads[-1])
        pairs.append((replayed, served))
        apart.append(off)
        rows.append(
            [
                arm,
                load,
                count,
                round(served.tokens_per_step, 3),
                round(replayed.tokens_per_step, 3),
                f"{off.ratio:.3f} [{off.low:.3f}, {off.high:.3f}]",
            ]
        )
    mean = pooled(pairs, NormalDist().inv_cdf((1 + CONFIDENCE) / 2), spreads)
    columns = ["arm", "requests", "prompts", "served", "replayed", "replayed over served, joint 99 %"]
    return Result(
        {
            "replay-apart": 100 * max(abs(each.ratio - 1) for each in apart),
            "replay-outside": sum(not each.low <= 1 <= each.high for each in apart),
            "replay-mean": 100 * abs(mean.ratio - 1),
        },
        [Table(f"Tokens a step at {about.sampling()}, the same prompts served and replayed", columns, rows)],
        [f"The mean of the cells is {mean.ratio:.4f} [{mean.low:.4f}, {mean.high:.4f}], 99 %."],
    )


MEASURES = (Measure("replay", "replay against the engine: tokens a step", BARS, measure, 95),)
