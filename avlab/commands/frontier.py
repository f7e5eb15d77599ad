"""`avlab frontier`: every arm under every load, cell by cell, and on from where it was stopped."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from avlab.commands import terminal, terminal_ab
from avlab.commands.ab import Watch, objective
from avlab.commands.following import Interrupts, began, end, follow, opened
from avlab.commands.options import Settings, plain_settings, with_settings
from avlab.config import ConfigError, RunConfig
from avlab.experiments.answers import FrontierAnswer, Objective
from avlab.experiments.plan import DECIDED, FRONTIER_ARMS, FRONTIER_LOADS, notes
from avlab.experiments.values import from_values, to_values
from avlab.wire.commands import Experiment

if TYPE_CHECKING:
    from avlab.experiments.frontier_plan import Rest


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
    from avlab.experiments.frontier_plan import Rest, make_frontier

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
    found = Rest([], plan) if asked.fresh else _rest(config, plan)
    earlier, rest = found.runs, found.plan
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


def _show(answer: FrontierAnswer, as_json: bool) -> None:
    terminal.print_json(to_values(answer)) if as_json else terminal_ab.show_frontier(answer)


def _rest(config: RunConfig, plan: Experiment) -> "Rest":
    """What earlier runs leave to be done of this frontier."""
    import msgspec

    from avlab.experiments.frontier_plan import Rest, rest_of
    from avlab.lab.owner import ask
    from avlab.lab.reach import open_or_ask
    from avlab.store.database import connect_reader
    from avlab.store.errors import NoDatabase, SchemaError, said

    def read() -> Rest:
        try:
            con = connect_reader(config.database)
        except (NoDatabase, SchemaError):  # no file yet, or one from before there were experiments
            return Rest([], plan)
        with con, said(config.database):
            return rest_of(con, config, plan)

    def asked() -> Rest:
        plain = {"config": config.model_dump(mode="json"), "experiment": msgspec.to_builtins(plan)}
        return from_values(Rest, ask(config.database, "plan_frontier", **plain))

    return open_or_ask(config.database, read, asked)


def _earlier(config: RunConfig, run: str, slo: Objective | None) -> FrontierAnswer:
    from avlab.commands.asking import answer
    from avlab.experiments.frontier_analysis import analyse_frontier

    found = answer(
        config.database, "frontier", lambda con: to_values(analyse_frontier(con, run, slo)), run=run, slo=slo
    )
    return from_values(FrontierAnswer, found)
