"""A run as `show` gives it: its summary, and what its A/B or its frontier says by now."""

from typing import Any

import duckdb

from avlab.experiments.analysis import analyse
from avlab.experiments.frontier_analysis import analyse_frontier
from avlab.experiments.values import to_values
from avlab.policies.arm import load_of
from avlab.store import queries


def summarise(con: duckdb.DuckDBPyConnection, run: str) -> dict[str, Any]:
    """`queries.run_summary`, and beside it, as plain values, `ab` (`answers.ABAnswer`) and `frontier`
    (`answers.FrontierAnswer`): None for a run that has none.
    """
    plan = queries.experiment(con, run)
    measures_frontier = plan is not None and any(map(load_of, plan.arms))
    return {
        **queries.run_summary(con, run),
        "ab": to_values(analyse(con, run)) if plan is not None and not measures_frontier else None,
        "frontier": to_values(analyse_frontier(con, run)) if measures_frontier else None,
    }
