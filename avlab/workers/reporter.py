"""What the serving loop asks of whoever tells the lab: the reference engine's reporter, vLLM's, another engine's."""

from __future__ import annotations

from typing import Protocol, TypeVar

from avlab.engine.served import Reported
from avlab.policies.arm import Arm
from avlab.speculation.regression import Coefficients

Taken = TypeVar("Taken", bound=Reported, contravariant=True)


class Reporter(Protocol[Taken]):
    """Makes frames of an engine's step reports, block by block.

    K: draft positions. block, arm, kind, name: of the block under way; name differs from the arm where several blocks
    have the same one. tokens: output tokens so far, without the playground's.
    """

    K: int

    @property
    def block(self) -> int: ...
    @property
    def arm(self) -> Arm: ...
    @property
    def tokens(self) -> int: ...

    def begin_block(
        self,
        arm: Arm,
        kind: str,
        step: int,
        workload: str,
        round: int | None = None,
        taught: bool = True,
        name: str = "",
    ) -> None:
        """What follows belongs to a new block. taught: its labels count in the arm's round."""
        ...

    def cold_start(self, coefficients: Coefficients, step: int) -> None:
        """The coefficients that an arm's estimator begins with, as refit 0; once an arm."""
        ...

    def take(self, report: Taken, idle_ms: float) -> None:
        """Take a step; send what is due. idle_ms: how long nothing ran before it."""
        ...

    def spent(self, seconds: float) -> None:
        """Count time that the serving loop spent on texts and arrivals as reporting."""
        ...

    def flush(self) -> None:
        """Send all that was collected."""
        ...
