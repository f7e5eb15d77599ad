"""Runs of the whole product, for measures of experiments: a lab, its worker, and a database that outlives an
interruption. Nothing here imports torch; the worker does.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from avlab.bench.base import Context
from avlab.config import RunConfig
from avlab.lab.lab import Lab
from avlab.lab.supervisor import WorkerError
from avlab.store import queries
from avlab.wire.commands import Experiment

DEPTH = "adaptive+depth+explore=0.001"  # the arm that is to match the best fixed length everywhere
LEARNING = 6400  # request-steps that an adaptive arm of an A/B serves first, but at most 200 steps
LOOK_SECONDS = 0.5
OVER = ("finished", "stopped")  # how a run ends that a measure may use: one that was cut off is served again


class Product:
    """A lab over the database of one measure. config: of its runs, with the cost table that they share."""

    def __init__(self, context: Context, lab: Lab):
        self.context, self.lab = context, lab
        self.config = context.config.changed(costs=str(self._costs()), depth_costs="measured")

    def query(self, ask: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        """What one of `avlab.store.queries` answers."""
        with self.lab.database.cursor() as con:
            return ask(con, *arguments, **more)

    @property
    def served(self) -> float:
        """Seconds that runs of this measure have lasted, those of a benchmark that was interrupted included."""
        return sum(run["duration_s"] or 0.0 for run in self.query(queries.runs))

    def over(self) -> list[str]:
        """The runs that have come to their end, oldest first."""
        return [run["run_id"] for run in self.query(queries.run_list)[::-1] if run["state"] in OVER]

    def experiments(self) -> list[str]:
        """Those of them that were an A/B."""
        known = self.query(queries.experiment_runs)
        return [run for run in self.over() if run in known]

    def kept(self, run: str) -> int:
        """Rounds of a run's A/B that are whole."""
        return sum(row.kept for row in self.query(queries.rounds, run))

    def serve(
        self,
        config: RunConfig,
        plan: Experiment | None = None,
        seconds: float | None = None,
        doing: str = "serving",
        least: int = 0,
    ) -> str:
        """Serve a run, or carry out an A/B, to its end or for so many seconds, its preparation not counted; its id.
        Raises WorkerError.

        least: rounds of an A/B that are served even where they take longer.
        """
        began, run = time.monotonic(), self.lab.run(config, plan)
        prepared = False
        while not self.lab.supervisor.wait(LOOK_SECONDS):
            state = self.lab.supervisor.status().state
            if not prepared and state == "serving":
                began, prepared = time.monotonic(), True
            spent = time.monotonic() - began
            self.context.progress(doing if state == "serving" else state, round(spent), round(seconds or 0))
            if prepared and seconds is not None and spent > seconds and self.kept(run) >= least:
                self.lab.stop()
        if error := self.lab.supervisor.status().error:
            raise WorkerError(error)
        return run

    def _costs(self) -> Path:
        """The cost file that all runs share, so that none is spent on timing steps; made where there is none."""
        costs = Path(self.context.costs)
        if not costs.is_file():
            timed = self.context.config.changed(
                policy="none", arrival="closed:1", requests=1, max_new_tokens=1
            )
            costs.parent.mkdir(parents=True, exist_ok=True)
            costs.write_text(self.query(cost_file, self.serve(timed, doing="timing steps")), encoding="utf-8")
        return costs


def learning_steps(requests: int) -> int:
    """Steps that each adaptive arm of an A/B serves before its first round, where so many requests are under way."""
    return min(200, LEARNING // requests)


def cost_file(con: duckdb.DuckDBPyConnection, run: str) -> str:
    """The step costs that a run has timed, as a file for `--costs`."""
    samples = [row for row in queries.cost_profile(con, run).to_pylist() if row["form"] == "sample"]
    draft = [[row["size"], row["depth"], row["ms"]] for row in samples if row["phase"] == "draft"]
    verify = [[row["size"], row["ms"]] for row in samples if row["phase"] == "verify"]
    return json.dumps({"draft": draft, "verify": verify}) + "\n"


@contextmanager
def product(context: Context, name: str) -> Iterator[Product]:
    """The lab of a measure. Its database is named after all that its figures depend on; earlier ones are removed."""
    form = f"{name}-{'quick' if context.quick else 'full'}"
    path = context.folder / f"{form}-{context.key}.duckdb"
    context.folder.mkdir(parents=True, exist_ok=True)
    for other in context.folder.glob(f"{form}-*.duckdb*"):
        if not other.name.startswith(path.name):
            other.unlink(missing_ok=True)
    with Lab(path) as lab:
        yield Product(context, lab)
