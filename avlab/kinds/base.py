"""What the lab asks of a kind of worker. A kind is a file of this package with a `KIND`."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

from avlab.policies.arm import Arm


class Config(Protocol):
    """A run's configuration: plain values, checked. `make(values)` is its constructor; it raises ConfigError.

    kind: of the worker, its file's name. threads: of the worker, None for one a physical core. spin: GOMP_SPINCOUNT.
    duration (s), tokens, requests: limits of the run, None for none. database: the lab's file. traffic: workload and
    arrival that the lab sends; "" where it sends none, or a file's own times. given: the values that somebody chose, in
    JSON's types.
    """

    @property
    def kind(self) -> str: ...
    @property
    def threads(self) -> int | None: ...
    @property
    def spin(self) -> int: ...
    @property
    def duration(self) -> float | None: ...
    @property
    def tokens(self) -> int | None: ...
    @property
    def requests(self) -> int | None: ...
    @property
    def database(self) -> str: ...
    @property
    def traffic(self) -> tuple[str, str]: ...
    @classmethod
    def make(cls, values: Mapping[str, Any] | None = None, /, **more: Any) -> Self: ...
    def changed(self, **values: Any) -> Self: ...
    def given(self) -> dict[str, Any]: ...
    def model_dump(self, *, mode: str = "python") -> dict[str, Any]: ...


class ServingConfig(Config, Protocol):
    """A configuration whose worker can compare policies.

    K: draft positions. head: whether a drafter's confidence head may be read. max_num_seqs: requests that may run at
    once. engines: whether every block of an A/B has an engine of its own. reading: the same, with all that these arms
    read computed.
    """

    @property
    def K(self) -> int: ...
    @property
    def head(self) -> bool: ...
    @property
    def max_num_seqs(self) -> int: ...
    @property
    def engines(self) -> bool: ...
    def reading(self, arms: list[Arm]) -> Self: ...


def no_check(config: Any) -> None:
    """Of a worker that says itself what it lacks."""


def no_notes(values: Mapping[str, Any]) -> str:
    """Of a worker whose A/B needs no words of its own."""
    return ""


def this_python() -> str:
    return sys.executable


C = TypeVar("C", bound=Config)


@dataclass(frozen=True)
class Kind(Generic[C]):
    """One kind of worker; its name is its configuration's `kind`.

    config: the class of its configuration. python: the interpreter that runs `avlab.workers.<name>`. check: looks at
    what a run needs before a worker is started; raises ConfigError. watches: the run shows somebody else's server.
    playground: it serves a prompt of the reader's own. policies: suggestions while it serves; () where its policy
    cannot be changed. ab_notes: what a reader must know of an A/B by it, from the configuration's values.
    """

    config: type[C]
    python: Callable[[], str] = this_python
    check: Callable[[C], None] = no_check
    watches: bool = False
    playground: bool = False
    policies: tuple[str, ...] = ()
    ab_notes: Callable[[Mapping[str, Any]], str] = no_notes

    def command(self, name: str) -> tuple[str, ...]:
        """What starts its worker."""
        return (self.python(), "-m", f"avlab.workers.{name}")
