"""A run as `show` gives it: its summary, and what its A/B or its frontier says by now."""

from typing import Any

import duckdb

from avlab.experiments.analysis import analyse
from avlab.experiments.frontier_analysis import analyse_frontier
from avlab.policies.arm import load_of
from avlab.store import queries


def summarise(con: duckdb.DuckDBPyConnection, run: str) -> dict[str, Any]:
    """`queries.run_summary`, and beside it `ab` (see `analyse`) and `frontier` (see `analyse_frontier`): None for a
    run that has none.
    """
    plan = queries.experiment(con, run)
    measures_frontier = plan is not None and any(map(load_of, plan["arms"]))
    return {
        **queries.run_summary(con, run),
        "ab": analyse(con, run) if plan is not None and not measures_frontier else None,
        "frontier": analyse_frontier(con, run) if measures_frontier else None,
    }
