"""`avlab frontier`: every arm under every load, cell by cell, and on from where it was stopped."""

from typing import Any

from avlab.commands import run as run_command
from avlab.commands import terminal, terminal_ab
from avlab.commands.ab import Watch, objective
from avlab.config import ConfigError, RunConfig
from avlab.experiments.plan import DECIDED, FRONTIER_ARMS, FRONTIER_LOADS, notes

OPTIONS: dict[str, tuple[Any, Any, str]] = {  # name: type, default, help
    "arms": (str, ",".join(FRONTIER_ARMS), "policies to measure"),
    "concurrency": (str, ",".join(map(str, FRONTIER_LOADS)), "loads: requests under way"),
    "repeats": (int, 3, "how often each cell is served; error bars come from them"),
    "block": (str, None, "length of a cell, as 80steps or 5s; else 80steps"),
    "washout": (int, 4, "steps that are not counted once every first prompt is computed"),
    "learn": (int, 200, "steps that each adaptive cell serves before the first repeat"),
    "order_seed": (int, None, "seed of the order of cells; else drawn afresh, and kept with the plan"),
    "slo": (str, None, "the best arm within a limit, by load: as p95_tpot_ms=80"),
    "fresh": (bool, False, "begin anew, though an earlier run has measured a part of this"),
}


def make() -> Any:
    """The command, for typer."""
    text = "Measure throughput against interactivity for every arm and load; goes on where it was stopped."
    return run_command.with_settings(OPTIONS, DECIDED, _frontier, text)


def _frontier(own: dict[str, Any], settings: dict[str, Any], as_json: bool) -> None:
    from avlab.experiments.frontier_plan import make_frontier

    slo, fresh = objective(own.pop("slo")), own.pop("fresh")
    try:
        loads = [int(text) for text in own.pop("concurrency").split(",")]
    except ValueError:
        raise ConfigError(
            ["concurrency needs whole numbers with commas between, such as 1,4,16,64."]
        ) from None
    config = RunConfig.make(run_command.plain_settings(settings), policy="none")
    config, plan = make_frontier(config, own.pop("arms").split(","), loads, **own)
    earlier, rest = ([], plan) if fresh else _rest(config, plan)
    if rest is None:
        terminal.errors().print("Every repeat is there from earlier runs; --fresh measures again.")
        _show(_earlier(config, earlier[-1], slo), as_json)
        return
    with run_command.Interrupts() as interrupts, run_command.opened(config, rest) as served:
        with terminal_ab.FrontierDisplay(rest, Watch(lambda: served.frontier(slo))) as display:
            for note in notes(plan):
                display.say(note)
            if earlier:
                display.say(
                    f"Goes on from where it was stopped: {rest.rounds} of {plan.rounds} repeats to go."
                )
            progress = run_command.follow(served, display, interrupts)
        failed = progress["status"]["outcome"] == "failed" and not progress["tally"]["steps"]
        if run_command.began(served, progress) and not failed:
            _show(served.frontier(slo), as_json)
        if interrupts.count or progress["status"]["outcome"] in ("stopped", "cut short"):
            terminal.errors().print("Stopped: the same command goes on from here.")
        run_command.end(progress["status"], interrupts)


def _show(answer: dict[str, Any], as_json: bool) -> None:
    terminal.print_json(answer) if as_json else terminal_ab.show_frontier(answer)


def _rest(config: RunConfig, plan: Any) -> tuple[list[str], Any]:
    """Earlier runs of this frontier, and the plan for what they lack (None if nothing)."""
    import msgspec

    from avlab.experiments import frontier_plan
    from avlab.lab.owner import ask
    from avlab.lab.reach import here_or_there
    from avlab.store.database import connect_reader
    from avlab.store.errors import DatabaseHeld, StoreError
    from avlab.wire.messages import Experiment

    def read() -> tuple[list[str], Any]:
        try:
            con = connect_reader(config.database)
        except DatabaseHeld:
            raise
        except StoreError:  # no file yet, or one from before there were experiments
            return [], plan
        with con:
            runs = frontier_plan.earlier_runs(con, config, plan)
            return runs, frontier_plan.missing(con, runs, plan)

    def asked() -> tuple[list[str], Any]:
        plain = {"config": config.model_dump(mode="json"), "experiment": msgspec.to_builtins(plan)}
        found = ask(config.database, "plan_frontier", **plain)
        return found["runs"], found["plan"] and msgspec.convert(found["plan"], Experiment)

    return here_or_there(config.database, read, asked)


def _earlier(config: RunConfig, run: str, slo: tuple[str, float] | None) -> dict[str, Any]:
    from avlab.experiments.frontier_analysis import analyse_frontier
    from avlab.lab.owner import ask
    from avlab.lab.reach import here_or_there
    from avlab.store.database import connect_reader

    def read() -> dict[str, Any]:
        with connect_reader(config.database) as con:
            return analyse_frontier(con, run, slo)

    return here_or_there(config.database, read, lambda: ask(config.database, "frontier", run=run, slo=slo))
