"""`avlab replay plan`: which policy from which load on, what it is worth, and the `vllm serve` flags that say so."""

from dataclasses import asdict
from typing import Annotated

import typer

from avlab.commands import terminal
from avlab.commands.options import Json
from avlab.commands.replay_options import (
    EVERY_ARM,
    EVERY_LOAD,
    Arms,
    Loads,
    MachineName,
    Processes,
    Repeats,
    Seed,
    TraceName,
    arms_of,
    loads_of,
    say_source,
)
from avlab.commands.replay_options import served as sweep_served
from avlab.experiments.replay_cells import REPEATS
from avlab.experiments.replay_flags import by_load, served, vllm_serves, why_not
from avlab.experiments.replay_plan import Choice, at_loads, choices, sentence, whole
from avlab.experiments.replay_sweep import Case
from avlab.experiments.words import requests
from avlab.machines import DEFAULT_MACHINE
from avlab.policies.arm import arm_of
from avlab.replay.traces import DEFAULT_TRACE
from avlab.vllm.serve_line import ServeLine


def plan(
    machine: MachineName = DEFAULT_MACHINE,
    trace: TraceName = DEFAULT_TRACE,
    arms: Arms = EVERY_ARM,
    concurrency: Loads = EVERY_LOAD,
    serve: Annotated[
        str | None, typer.Option("--serve", help="Your `vllm serve` command: the plan's are made of it.")
    ] = None,
    repeats: Repeats = REPEATS,
    seed: Seed = 0,
    processes: Processes = None,
    as_json: Json = False,
) -> None:
    """Which policy from which load on and what it is worth, as text, JSON and vllm serve commands."""
    case, own = Case(trace, machine, seed, repeats), ServeLine.parse(serve) if serve else None
    cells = sweep_served(case, arms_of(arms, case), loads_of(concurrency), processes)
    recorded, emulated = case.opened()
    K, every, by_vllm = recorded.about.K, choices(cells), choices(cells, vllm_serves)
    one, table = whole(cells, vllm_serves), by_load(by_vllm, own)
    lines = {arm: served(arm, K, own) for arm in (*(each.arm for each in by_vllm), one.arm)}
    beyond = list(dict.fromkeys(why_not(arm_of(c.arm)) for c in every if not vllm_serves(arm_of(c.arm))))
    if as_json:

        def plain(choice: Choice) -> dict[str, object]:
            return asdict(choice) | {"said": sentence(choice, K)}

        terminal.print_json(
            {
                "emulated": case.emulation,
                "K": K,
                "plan": [plain(each) for each in every],
                "beyond_vllm": beyond,
                "vllm": [plain(each) | {"serve": lines[each.arm].line.words()} for each in by_vllm],
                "vllm_by_load": table.line.words() if table else None,
                "vllm_one_setting": asdict(one) | {"serve": lines[one.arm].line.words()},
            }
        )
        return
    out = terminal.answers()

    def say(text: str) -> None:
        out.print(text, soft_wrap=True)

    say(f"On {emulated.about.title} with this traffic ({case.emulation}):")
    for each in every:
        say(f"  {sentence(each, K)}")
    for text in beyond:
        say(text)
    if beyond:
        say("The nearest that vLLM can do:")
        for each in by_vllm:
            say(f"  {sentence(each, K)}")
    for each in by_vllm:
        found = lines[each.arm]
        at = "" if len(by_vllm) == 1 else f", {at_loads(each)}"
        say(f"\n{each.arm}{at}. {found.said}".rstrip())
        say(found.line.shell())
    if table:
        say(f"\n{table.said}")
        say(table.line.shell())
    elif len(by_vllm) > 1:
        loss = f"at most {100 * (1 - one.worst):.1f} % below the best of a load, at {requests(one.load)}"
        say(f"\nOne setting for all loads: {one.arm}, {loss} (emulated).")
        if one.arm not in {each.arm for each in by_vllm}:
            say(lines[one.arm].line.shell())
    say_source(case, cells)
