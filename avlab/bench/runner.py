"""Takes measures one after the other, each in a process of its own, and reports them."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from avlab.bench import report
from avlab.bench.base import BenchError, Measure, Outcome, Progress, all_measures, choose
from avlab.bench.cache import Cache, key_of
from avlab.bench.process import Child
from avlab.config import RunConfig
from avlab.installation import IN_CHECKOUT, PROJECT
from avlab.processes import worker_environment

FOLDER = (PROJECT if IN_CHECKOUT else Path.cwd()) / "build" / "bench"
PAGE = PROJECT / "docs" / "benchmarks.md"
LONGEST = 7200.0  # seconds that a measure may take before it is given up
QUICK, LEAST = 590.0, 10.0  # seconds of the quick form; with fewer left a measure is not begun
Take = Callable[[Measure, Progress], Outcome]


def main(
    quick: bool = False,
    as_json: bool = False,
    only: Iterable[str] = (),
    out: str | Path | None = None,
    fresh: bool = False,
    drafter: str = "default",
) -> int:
    """Run the benchmark: what `avlab bench` does. Returns an exit code.

    quick: the short form, at most 10 minutes on two quiet cores. as_json: one object on standard output and no table.
    only: names of measures, or of lines of the table. out: the page to write; by default a full run of all measures
    writes docs/benchmarks.md, in a checkout, and others write none. fresh: forget what was measured before. drafter: as
    in a run.
    Exit code 1 when a measure failed, 2 for an unknown name; a missed bar is a result, not a failure.
    """
    try:
        measures = choose(all_measures(), only)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 2
    page = Path(out) if out else None if quick or list(only) or not IN_CHECKOUT else PAGE
    outcomes = run(measures, quick, fresh, RunConfig.make(max_new_tokens=1024, drafter=drafter))
    if as_json:
        print(json.dumps(report.plain(measures, outcomes), indent=1))
    else:
        report.show(measures, outcomes)
    if page is not None:
        report.write(page, measures, outcomes, quick)
        print(f"written to {page}", file=sys.stderr)
    return int(any(outcome.failed for outcome in outcomes))


def run(measures: list[Measure], quick: bool, fresh: bool, config: RunConfig) -> list[Outcome]:
    """Outcomes of measures in their order; those measured before with all the same are taken from the cache.

    The full form gives every measure a process of its own; the quick one shares a process between them.
    """
    environment, plain = worker_environment(config.threads, config.spin), config.model_dump(mode="json")
    costs = FOLDER / f"costs-{key_of(None, plain, environment, quick)}.json"
    if fresh:
        costs.unlink(missing_ok=True)
    warn_if_busy()
    keys = {each.name: key_of(each, plain, environment, quick) for each in measures}
    began = time.monotonic()
    children: list[Child] = []

    def take(measure: Measure, progress: Progress) -> Outcome:
        left = began + QUICK - time.monotonic() if quick else LONGEST
        if left < LEAST:
            return Outcome(measure.name, problem="not measured: the quick form's ten minutes were over")
        if not (children and quick and not measure.alone and children[-1].alive):
            close()
            children.append(Child(environment, FOLDER / f"{measure.name}.log"))
        order = {
            "measure": measure.name,
            "config": plain,
            "quick": quick,
            "folder": str(FOLDER),
            "costs": str(costs),
            "key": keys[measure.name],
        }
        outcome = children[-1].take(order, progress, left)
        if measure.alone:
            close()
        return outcome

    def close() -> None:
        while children:
            children.pop().close()

    try:
        with report.progress_bars(len(measures)) as bars:
            return collect(measures, keys, Cache(FOLDER / "results.json", fresh), take, bars)
    finally:
        close()


def collect(
    measures: list[Measure], keys: dict[str, str], cache: Cache, take: Take, bars: report.Bars
) -> list[Outcome]:
    """Each measure from the cache or taken now; one that fails says so, and the next is taken all the same."""
    outcomes = []
    for measure in measures:
        key = keys[measure.name]
        outcome = cache.get(measure.name, key)
        if outcome is None:
            bars.begin(measure.about)
            began, load = time.monotonic(), os.getloadavg()[0]
            try:
                outcome = take(measure, bars.show)
            except Exception as error:
                outcome = Outcome(measure.name, problem=f"failed: {error}", failed=True)
            outcome.key, outcome.load, outcome.seconds = (
                key,
                round(load, 2),
                round(time.monotonic() - began, 1),
            )
            outcome.when = time.strftime("%Y-%m-%d %H:%M")
            if not outcome.problem:
                cache.put(outcome)
        bars.end(measure.about, outcome)
        outcomes.append(outcome)
    return outcomes


def warn_if_busy() -> None:
    """Say so when other processes keep the machine busy: figures taken beside them mean little."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > 0.5 * cores:
        print(
            f"The machine is busy (load average {load:.1f} on {cores} cores): these figures will be off.",
            file=sys.stderr,
        )
