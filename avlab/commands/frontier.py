"""`avlab frontier`: every arm under every load, cell by cell, and on from where it was stopped."""

from dataclasses import dataclass
from typing import Annotated

from avlab.commands import terminal, terminal_ab
from avlab.commands.ab import Watch, objective
from avlab.commands.following import Answer, Interrupts, began, end, follow, opened
from avlab.commands.options import Settings, plain_settings, with_settings
from avlab.config import ConfigError, RunConfig
from avlab.experiments.plan import DECIDED, FRONTIER_ARMS, FRONTIER_LOADS, notes
from avlab.wire.messages import Experiment


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What a frontier measures: its options beside the settings of its run."""

    arms: Annotated[str, "policies to measure"] = ",".join(FRONTIER_ARMS)
    concurrency: Annotated[str, "loads: requests under way, with commas between"] = ",".join(
        map(str, FRONTIER_LOADS)
    )
    repeats: Annotated[int, "how often each cell is served; error bars come from them"] = 3
    block: Annotated[str | None, "length of a cell, as 80steps or 5s; else 80steps"] = None
    washout: Annotated[int, "steps that are not counted once every first prompt is computed"] = 4
    learn: Annotated[int, "steps that each adaptive cell serves before the first repeat"] = 200
    order_seed: Annotated[
        int | None, "seed of the order of cells; else drawn afresh, and kept with the plan"
    ] = None
    slo: Annotated[str | None, "the best arm within a limit, by load: as p95_tpot_ms=80"] = None
    fresh: Annotated[bool, "begin anew, though an earlier run has measured a part of this"] = False

    def loads(self) -> list[int]:
        """The loads of --concurrency. Raises ConfigError."""
        try:
            return [int(text) for text in self.concurrency.split(",")]
        except ValueError:
            raise ConfigError(
                ["concurrency needs whole numbers with commas between, such as 1,4,16,64."]
            ) from None


def _frontier(asked: Sweep, settings: Settings, as_json: bool) -> None:
    from avlab.experiments.frontier_plan import make_frontier

    slo = objective(asked.slo)
    config, plan = make_frontier(
        RunConfig.make(plain_settings(settings), policy="none"),
        asked.arms.split(","),
        asked.loads(),
        repeats=asked.repeats,
        block=asked.block,
        washout=asked.washout,
        learn=asked.learn,
        order_seed=asked.order_seed,
    )
    earlier, rest = ([], plan) if asked.fresh else _rest(config, plan)
    if rest is None:
        terminal.errors().print("Every repeat is there from earlier runs; --fresh measures again.")
        _show(_earlier(config, earlier[-1], slo), as_json)
        return
    with Interrupts() as interrupts, opened(config, rest) as served:
        with terminal_ab.FrontierDisplay(rest, Watch(lambda: served.frontier(slo))) as display:
            for note in notes(plan):
                display.say(note)
            if earlier:
                display.say(
                    f"Goes on from where it was stopped: {rest.rounds} of {plan.rounds} repeats to go."
                )
            progress = follow(served, display, interrupts)
        failed = progress["status"]["outcome"] == "failed" and not progress["tally"]["steps"]
        if began(served, progress) and not failed:
            _show(served.frontier(slo), as_json)
        if interrupts.count or progress["status"]["outcome"] in ("stopped", "cut short"):
            terminal.errors().print("Stopped: the same command goes on from here.")
        end(progress["status"], interrupts)


frontier = with_settings(
    Sweep,
    _frontier,
    "Measure throughput against interactivity for every arm and load; goes on where it was stopped.",
    DECIDED,
)


def _show(answer: Answer, as_json: bool) -> None:
    terminal.print_json(answer) if as_json else terminal_ab.show_frontier(answer)


def _rest(config: RunConfig, plan: Experiment) -> tuple[list[str], Experiment | None]:
    """Earlier runs of this frontier, and the plan for what they lack (None if nothing)."""
    import msgspec

    from avlab.experiments import frontier_plan
    from avlab.lab.owner import ask
    from avlab.lab.reach import here_or_there
    from avlab.store.database import connect_reader
    from avlab.store.errors import DatabaseHeld, StoreError

    def read() -> tuple[list[str], Experiment | None]:
        try:
            con = connect_reader(config.database)
        except DatabaseHeld:
            raise
        except StoreError:  # no file yet, or one from before there were experiments
            return [], plan
        with con:
            runs = frontier_plan.earlier_runs(con, config, plan)
            return runs, frontier_plan.missing(con, runs, plan)

    def asked() -> tuple[list[str], Experiment | None]:
        plain = {"config": config.model_dump(mode="json"), "experiment": msgspec.to_builtins(plan)}
        found = ask(config.database, "plan_frontier", **plain)
        return found["runs"], found["plan"] and msgspec.convert(found["plan"], Experiment)

    return here_or_there(config.database, read, asked)


def _earlier(config: RunConfig, run: str, slo: tuple[str, float] | None) -> Answer:
    from avlab.commands.asking import answer
    from avlab.experiments.frontier_analysis import analyse_frontier

    return answer(config.database, "frontier", lambda con: analyse_frontier(con, run, slo), run=run, slo=slo)
