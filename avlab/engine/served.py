"""What the serving loop asks of an engine, whichever it is: the lab's own, vLLM, a stand-in, a replay. No torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from avlab.engine.request import Finished, Request
from avlab.engine.request import Sequence as Served
from avlab.policies.arm import Arm
from avlab.policies.base import Policy
from avlab.speculation.estimators.base import Estimator

if TYPE_CHECKING:
    from avlab.engine.report import Observer, StepReport


class Reported(Protocol):
    """What the loop reads of a step's report; an engine's reporter reads the rest.

    counted: whether it is a step of the block under way; an engine that works by itself may tell of one before it.
    """

    @property
    def tokens(self) -> int: ...
    @property
    def finished(self) -> Sequence[Finished]: ...
    @property
    def counted(self) -> bool: ...


class ServedPolicy(Protocol):
    """What the loop reads of the policy in force."""

    @property
    def arm(self) -> Arm: ...
    @property
    def estimator(self) -> Estimator | None: ...


Report = TypeVar("Report", bound=Reported)
Told = TypeVar("Told", bound=Reported, covariant=True)
OfEngine = TypeVar("OfEngine", bound=ServedPolicy)


class ServedEngine(Protocol[Told, OfEngine]):
    """An engine as `avlab.workers.serving` drives it, from one thread.

    clock: the run's, in seconds since it began; the loop sets it before the first request. uninterrupted: why nothing
    may come between the workload's steps, as a sentence; "" where the engine is an `InProcessEngine`. queue, sequences:
    requests that wait, and those in service. step_number: of the next step.
    """

    clock: Callable[[], float]
    uninterrupted: str

    @property
    def policy(self) -> OfEngine: ...
    @property
    def queue(self) -> Sequence[Request]: ...
    @property
    def sequences(self) -> Sequence[Served]: ...
    @property
    def step_number(self) -> int: ...
    @property
    def running(self) -> int: ...
    @property
    def waiting(self) -> int: ...

    def step(self) -> Told | None:
        """One step; None where an engine that works by itself has nothing to tell yet."""
        ...

    def add(self, request: Request) -> None:
        """Queue a request. Raises RequestError if it can never be served."""
        ...

    def cancel(self, request_id: int) -> Finished | None:
        """Take a request out; None if it was not in service."""
        ...

    def set_policy(self, arm: Arm) -> None:
        """Serve under this arm from the next step on. Raises PolicyError, and goes on as before."""
        ...

    def policy_for(self, arm: Arm) -> OfEngine:
        """The policy of an arm, made where the arm is new. Raises PolicyError."""
        ...

    def adopt(self, policy: OfEngine) -> None:
        """Make this the policy of its arm, in place of the one there was."""
        ...

    def forget(self, arm: Arm) -> None:
        """The next `policy_for` of this arm begins anew."""
        ...

    def look(self) -> None:
        """Called while the loop waits. Raises an error of ours where the engine's own processes have died."""
        ...


class InProcessEngine(ABC):
    """An engine that serves within the worker's process, so that a window or a generation may come between its steps.

    observer: is handed each step's report with what the step sampled from.
    """

    uninterrupted = ""

    K: int
    clock: Callable[[], float]
    queue: deque[Request]
    sequences: list[Served]
    policies: dict[str, Policy]
    policy: Policy
    observer: Observer | None

    @abstractmethod
    def step(self) -> StepReport: ...

    @abstractmethod
    def add(self, request: Request) -> None: ...

    @abstractmethod
    def cancel(self, request_id: int) -> Finished | None: ...

    @abstractmethod
    def set_policy(self, arm: Arm) -> None: ...

    def adopt(self, policy: Policy) -> None:
        self.policies[str(policy.arm)] = policy

    def forget(self, arm: Arm) -> None:
        self.policies.pop(str(arm), None)

    def look(self) -> None:
        """There are no processes to look after."""
        return


class Texts(Protocol):
    """Messages to tokens and back."""

    def encode(self, messages: Sequence[Mapping[str, Any]], given: Mapping[str, Any] = ...) -> list[int]:
        """A chat as prompt tokens. given: what its template reads beside the messages, such as `tools`."""
        ...

    def reads(self, name: str) -> bool:
        """Whether the chat template reads what is given by this name."""
        ...

    def decode(self, tokens: Sequence[int]) -> str: ...
