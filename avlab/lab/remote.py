"""A run in the lab that holds the database, followed from another process to its end, and to that of the lab."""

import contextlib
from collections.abc import Callable
from typing import Any

from avlab.config import default_database
from avlab.errors import is_ours
from avlab.experiments.answers import ABAnswer, FrontierAnswer, Objective
from avlab.experiments.values import from_values, to_values
from avlab.kinds.base import Config
from avlab.lab import owner
from avlab.lab.owner import OwnerClosed, OwnerSilent
from avlab.lab.reach import open_or_ask

CLOSING_SECONDS = 45.0  # what a lab may take to see its worker's end and give the file free
LOST = (OwnerSilent, OwnerClosed)


class Remote:
    """A run in the lab that holds the database, asked through its socket. plan: of the A/B that it is for. say: shows
    a sentence to the user.

    Where that lab ends, what it has recorded is read from the file, or asked of whoever holds that then.
    """

    def __init__(self, config: Config, say: Callable[[str], None], plan: Any = None):
        from msgspec import to_builtins

        from avlab.lab.tally import Tally

        self.database, self._say = config.database, say
        more = {} if plan is None else {"experiment": to_builtins(plan)}
        self.run = owner.ask(self.database, "run", config=config.given(), kind=config.kind, **more)
        self.notes = [f"The lab that holds {self.database} serves this run."]
        self._tally = Tally().snapshot()  # as last heard
        self._end: dict[str, Any] | None = None  # the last progress, where its lab has ended

    def progress(self) -> dict[str, Any]:
        """As `Lab.progress`; where the lab has ended, that the run has, with a sentence."""
        while self._end is None:
            try:
                found = owner.ask(self.database, "progress")
            except LOST:
                self._end = self._left()
            else:
                self._tally = found["tally"]
                return found
        return self._end

    def stop(self, at_once: bool) -> None:
        with contextlib.suppress(*LOST):  # its worker ends with it
            owner.ask(self.database, "stop", at_once=at_once)

    def summary(self) -> dict[str, Any]:
        return self._answer("show")

    def ab(self, slo: Objective | None = None) -> ABAnswer:
        return from_values(ABAnswer, self._answer("ab", slo=slo))

    def frontier(self, slo: Objective | None = None) -> FrontierAnswer:
        return from_values(FrontierAnswer, self._answer("frontier", slo=slo))

    def _answer(self, what: str, **more: Any) -> dict[str, Any]:
        if self._end is None:
            with contextlib.suppress(*LOST):
                return owner.ask(self.database, what, run=self.run, **more)
        return self._find(what, **more)

    def _find(self, what: str, **more: Any) -> dict[str, Any]:
        """An answer from the file once it is free, or from another lab that holds it by then."""
        return open_or_ask(
            self.database,
            lambda: self._read(what, **more),
            lambda: owner.ask(self.database, what, run=self.run, **more),
            CLOSING_SECONDS,
        )

    def _read(self, what: str, **more: Any) -> dict[str, Any]:
        from avlab.experiments.analysis import analyse
        from avlab.experiments.frontier_analysis import analyse_frontier
        from avlab.experiments.summary import summarise
        from avlab.store import queries
        from avlab.store.database import reading

        read: dict[str, Any] = {"show": summarise, "ab": analyse, "frontier": analyse_frontier}
        with reading(self.database) as con:
            return to_values(read[what](con, queries.find_run(con, self.run), **more))

    def _left(self) -> dict[str, Any] | None:
        """The last progress of a run whose lab is gone; None where the run is served all the same."""
        self._say("The lab that serves this run does not answer: looking for what it has recorded.")
        show = f"`avlab show {self.run}{self._where()}`"
        tally, state, sentence = self._tally, "failed", ""
        try:
            found = self._find("show")
        except Exception as error:
            if not is_ours(error):
                raise
            sentence = f"what it recorded cannot be read now, try {show} later: {error}"
            if not tally["policy"]:
                sentence = f"nothing of the run can be found: {error}"
            tally = tally | {"policy": ""}  # there is nothing to show
        else:
            state, tally = found["state"], tally | {"policy": tally["policy"] or found["policy"]}
            if state == "running":
                return None
            if state != "finished":
                sentence = f"the run is {state}: {show} has it."
        said = sentence and f"The lab that served run {self.run} has ended, and {sentence}"
        outcome = "done" if state == "finished" else state
        status = {"run": self.run, "state": "ended", "outcome": outcome, "error": said, "log": ()}
        return {"status": status, "tally": tally}

    def _where(self) -> str:
        """The option that leads to this database; nothing where it is the one that is taken without."""
        usual = default_database().expanduser().resolve()
        return "" if str(usual) == self.database else f" --database {self.database}"
