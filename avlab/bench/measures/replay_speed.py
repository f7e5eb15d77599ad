"""Replay's clock against the engine's: what steps take by the engine's own measured table, and tokens a second."""

from avlab.bench.base import Bar, Context, Measure, NotMeasured, Result, Table
from avlab.bench.rounds import schedule

ARMS = ("none", "fixed:1", "fixed:3", "fixed:7", "adaptive", "adaptive+depth")
LOADS = (1, 4, 16)
TRACE = "reasoning"
REPLAYED = 40_000  # request-steps of a cell
BARS = (
    Bar("replay-speed", "replay by the engine's own table, tokens/s: farthest apart", "%", 5.0, "<="),
    Bar("replay-priced", "the engine's own steps by its table: farthest apart", "%", 5.0, "<="),
)


def measure(context: Context) -> Result:
    """Rounds: the table is timed, then every arm serves a block under every load. So table and blocks meet the same
    moments of the machine. Every other step brings the timed costs to the level of serving; replay is held against the
    steps between."""
    from avlab.bench.lab import Lab
    from avlab.bench.priced_steps import TimedStep, block, priced, this_machine, timed_again
    from avlab.engine.profile import Costs
    from avlab.policies.arm import Arm
    from avlab.policies.base import PolicyContext, make_policy
    from avlab.replay.serving import Replay
    from avlab.replay.traces import trace_named
    from avlab.speculation.sampling import Sampling

    trace = trace_named(TRACE)
    about = trace.about
    lab = Lab(context, own_costs=True)
    if lab.built.target_name != about.target or lab.built.drafter_name != about.drafter:
        raise NotMeasured(f"the trace {TRACE} is of {about.target} with {about.drafter}: measure these.")
    lab.max_new_tokens = int(trace.limit.max())
    sampling = Sampling(about.temperature, about.top_k, about.top_p)
    seconds, rounds = context.pick(0.5, 2.5), context.pick(2, 6)
    steps: dict[tuple[str, int], list[TimedStep]] = {(arm, load): [] for load in LOADS for arm in ARMS}
    timed: list[Costs] = []
    known: list[TimedStep] = []
    for number in range(rounds):
        context.progress("timing steps again", number, rounds)
        lab.clear()
        timed.append(timed_again(lab))
        for load in LOADS:
            lab.begin(load, "adaptive", sampling)
            context.progress(f"blocks at {load}", number, rounds)
            for _, arm in schedule(ARMS, 1, seed=number):
                served_steps = block(lab, arm, seconds)
                known += served_steps[::2]
                steps[arm, load] += served_steps[1::2]
    emulated = this_machine(
        timed,
        known,
        lab.engine.config.max_num_seqs,
        lab.engine.config.prefill_tokens(about.K),
        about.K,
    )
    rows, off, priced_off = [], [], []
    for (arm, load), those in steps.items():
        context.progress(f"replaying {arm} at {load}", 0, 0)
        replay = Replay(
            trace, emulated, make_policy(Arm.parse(arm), PolicyContext(about.K, lab.engine.costs)), load
        )
        replayed = [replay.step() for _ in range(REPLAYED // load)]
        rate = 1e3 * sum(s.tokens for s in replayed) / sum(sum(s.milliseconds) for s in replayed)
        served = 1e3 * sum(s.tokens for s in those) / sum(s.all_ms for s in those)
        whole, *parts = priced(emulated, those)
        off.append(rate / served - 1)
        priced_off.append(whole - 1)
        rows.append(
            [arm, load, round(served, 1), round(rate, 1), round(rate / served, 3), round(whole, 3)]
            + [round(part, 3) for part in parts]
        )
    columns = [
        "arm",
        "requests",
        "tokens/s served",
        "replayed",
        "ratio",
        "steps by the table",
        "draft",
        "pass",
        "rest",
    ]
    return Result(
        {
            "replay-speed": 100 * max(map(abs, off)),
            "replay-priced": 100 * max(map(abs, priced_off)),
        },
        [Table(f"Replay on the engine's own table, {about.sampling()}", columns, rows)],
        [f"A step takes {emulated.about.step_ms:.2f} ms besides, and {emulated.about.row_ms:.3f} ms a row."],
    )


MEASURES = (Measure("replay-speed", "replay against the engine: throughput", BARS, measure, 96, alone=True),)
