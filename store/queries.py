"""What the pages and the command line ask of the database: one named function a question.

Each takes a connection (a cursor of the calling thread; see `avlab.store.database`) and a run id. Answers for
people are plain dicts and lists that JSON can hold, with None where a thing is not defined, never NaN; tables
are `pyarrow.Table`s. "Headline" rates count only blocks of kind "serve": wash-outs, full-verification
windows, the playground and audits are left out.
"""

from avlab.store.experiments import (
    arm_ledger,
    block_rates,
    experiment,
    experiment_runs,
    finished_blocks,
    rounds,
    unfinished_round,
    user_times,
)
from avlab.store.playground import generation_steps, generations
from avlab.store.runs import block_list, blocks, describe, find_run, newest_run, run_list, runs
from avlab.store.step_costs import step_costs
from avlab.store.summary import calibration_sums, interactivity, measures, position_totals, run_summary
from avlab.store.traces import (
    admitted_lengths,
    bucket_width,
    calibration_classes,
    calibration_rows,
    cost_medians,
    cost_profile,
    cost_samples,
    events_since,
    last_heartbeat,
    last_step,
    last_stored_step,
    positions_since,
    refits_since,
    requests_since,
    steps_since,
)
from avlab.store.watching import engine_samples_since, watched
from avlab.wire.frames import HEADLINE

__all__ = [
    "HEADLINE",
    "admitted_lengths",
    "arm_ledger",
    "block_list",
    "block_rates",
    "blocks",
    "bucket_width",
    "calibration_classes",
    "calibration_rows",
    "calibration_sums",
    "cost_medians",
    "cost_profile",
    "cost_samples",
    "describe",
    "engine_samples_since",
    "events_since",
    "experiment",
    "experiment_runs",
    "find_run",
    "finished_blocks",
    "generation_steps",
    "generations",
    "interactivity",
    "last_heartbeat",
    "last_step",
    "last_stored_step",
    "measures",
    "newest_run",
    "position_totals",
    "positions_since",
    "refits_since",
    "requests_since",
    "rounds",
    "run_list",
    "run_summary",
    "runs",
    "step_costs",
    "steps_since",
    "unfinished_round",
    "user_times",
    "watched",
]
