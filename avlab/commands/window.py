"""`avlab window`: a while of full verification in the run that is served now."""

from typing import Annotated

import typer

from avlab.commands import terminal
from avlab.commands.asking import path_of
from avlab.commands.options import Database, Json


def window(
    steps: Annotated[int, typer.Option("--steps", help="How many steps verify everything.", min=1)] = 200,
    teach: Annotated[
        bool, typer.Option("--teach/--no-teach", help="Let the estimator learn from its labels.")
    ] = False,
    database: Database = None,
    as_json: Json = False,
) -> None:
    """In the run that is served now, verify every draft for some steps: labels that no trimming has selected."""
    from avlab.lab.owner import ask
    from avlab.lab.reach import open_or_ask
    from avlab.store.database import connect_reader
    from avlab.store.errors import StoreError

    path = path_of(database)

    def nobody_serves() -> str:
        connect_reader(path).close()
        raise StoreError(
            f"Nothing is served into {path} now: start a run, or open the dashboard and press Start."
        )

    run = open_or_ask(path, nobody_serves, lambda: ask(path, "window", steps=steps, teach=teach))
    if as_json:
        terminal.print_json({"run": run, "steps": steps, "teach": teach})
    else:
        terminal.answers().print(
            f"Run {run} was asked to verify everything for {steps} steps.", soft_wrap=True
        )
