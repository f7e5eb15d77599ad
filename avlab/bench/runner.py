"""Takes measures one after the other, each in a process of its own, and reports them."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from avlab.bench import report
from avlab.bench.base import BenchError, Measure, Outcome, Progress, all_measures, choose
from avlab.bench.cache import Cache, key_of
from avlab.config import RunConfig
from avlab.workers.processes import PROJECT, end_tree, tail, worker_environment

FOLDER = PROJECT / "build" / "bench"
PAGE = PROJECT / "docs" / "benchmarks.md"
LONGEST = {True: 600.0, False: 7200.0}  # seconds a measure may take, quick or full, before it is given up
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
    writes docs/benchmarks.md and others write none. fresh: forget what was measured before. drafter: as in a run.
    Exit code 1 when a measure failed, 2 for an unknown name; a missed bar is a result, not a failure.
    """
    try:
        measures = choose(all_measures(), only)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 2
    page = Path(out) if out else None if quick or list(only) else PAGE
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
    """Outcomes of measures in their order; those measured before with all the same are taken from the cache."""
    environment = worker_environment(config)
    plain = config.model_dump(mode="json")
    costs = FOLDER / f"costs-{key_of(None, plain, environment, quick)}.json"
    if fresh:
        costs.unlink(missing_ok=True)
    warn_if_busy()

    def take(measure: Measure, progress: Progress) -> Outcome:
        order = {
            "measure": measure.name,
            "config": plain,
            "quick": quick,
            "folder": str(FOLDER),
            "costs": str(costs),
        }
        return in_child(order, environment, progress, LONGEST[quick])

    keys = {each.name: key_of(each, plain, environment, quick) for each in measures}
    with report.progress_bars(len(measures)) as bars:
        return collect(measures, keys, Cache(FOLDER / "results.json", fresh), take, bars)


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


def in_child(order: dict[str, Any], environment: dict[str, str], progress: Progress, limit: float) -> Outcome:
    """Take one measure in a process with a worker's environment."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    log = FOLDER / f"{order['measure']}.log"
    outcome = Outcome(order["measure"], problem="failed: its process ended without a word", failed=True)
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "avlab.bench.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=PROJECT,
            env=environment,
            start_new_session=True,
        )
        timer = threading.Timer(limit, end_tree, (process.pid,))
        timer.daemon = True
        timer.start()
        try:
            assert process.stdin and process.stdout
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.close()
            for line in process.stdout:
                said = json.loads(line)
                if "progress" in said:
                    progress(*said["progress"])
                elif "absent" in said:
                    outcome.problem, outcome.failed = said["absent"], False
                elif "error" in said:
                    outcome.problem = f"failed: {said['error']}"
                else:
                    outcome = Outcome.from_dict(
                        {"measure": order["measure"], "machine": said["machine"], **said["result"]}
                    )
            process.wait()
        except OSError:  # it ended before it read its order
            process.wait()
        finally:
            expired = not timer.is_alive()
            timer.cancel()
            end_tree(process.pid)
    if outcome.failed and expired:
        outcome.problem = f"failed: it took more than {limit:g} s and was given up"
    elif outcome.failed and (last := tail(log)):
        outcome.problem += f" ({last[-1].strip()})" if "without a word" in outcome.problem else ""
    return outcome


def warn_if_busy() -> None:
    """Say so when other processes keep the machine busy: figures taken beside them mean little."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > 0.5 * cores:
        print(
            f"The machine is busy (load average {load:.1f} on {cores} cores): these figures will be off.",
            file=sys.stderr,
        )
