"""A database from wherever it can be had: opened here, or asked of the lab that holds it."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from avlab.lab.owner import OwnerSilent

STARTING_SECONDS = 20.0  # what a lab may take from locking its file to answering
LOOK_SECONDS = 0.2
T = TypeVar("T")


def open_or_ask(
    path: str | Path, here: Callable[[], T], there: Callable[[], T], patience: float | None = None
) -> T:
    """`here()`, or `there()` where that raises DatabaseHeld, with patience for a lab that is just starting or ending.

    here: opens the database. there: asks the lab that holds it (`avlab.lab.owner.ask`). patience: in seconds, else
    STARTING_SECONDS. Raises what they raise, but DatabaseHeld, which names the process, where that does not answer.
    """
    from avlab.store.database import owner_of
    from avlab.store.errors import DatabaseHeld

    patience = STARTING_SECONDS if patience is None else patience
    deadline = time.monotonic() + patience
    while True:
        try:
            return here()
        except DatabaseHeld as error:
            held = error
        by_lab = owner_of(path) is not None  # others (a notebook, DuckDB's own shell) take no lock of ours
        try:
            return there()
        except OwnerSilent:
            if not by_lab:
                raise held from None
            if time.monotonic() > deadline:
                raise DatabaseHeld(
                    f"{held} It has not answered for {patience:g} s; if it is still starting, wait."
                ) from None
        time.sleep(LOOK_SECONDS)
