"""What a policy asks of an estimator, and the estimators there are, by name."""

from typing import ClassVar, Protocol, TypeVar

import numpy as np

from avlab.speculation.features import FEATURES, Features, known_features
from avlab.speculation.labels import Labels
from avlab.speculation.regression import Coefficients, Refit

REFIT_INTERVAL = 100  # steps, vLLM's
DEFAULT = "online"  # of an arm that names none


class Estimator(Protocol):
    """Acceptance estimates of B requests and K positions: the chance of a slot given its prefix.

    A new one is a class under `@register`; the defaults here are those of an estimator that does not learn. One step
    is `predict` for the drafts, `observe` once they are verified, `end_step` once, with labels or without.

    name: as in `adaptive:NAME`. title: on charts. reads: the features that it is given to predict from; with one that
    looks at drawn tokens it bends the output, and no run is served by it. learns: whether it changes with labels.
    declared: of a plugin, whether its author declares it sound.
    coefficients: in force now, and recorded with every refit; None where it has none.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    reads: ClassVar[tuple[str, ...]]
    learns: ClassVar[bool] = False
    declared: ClassVar[bool] = True
    coefficients: Coefficients | None = None

    def __init__(self, K: int, interval: int = REFIT_INTERVAL):
        """interval: steps between refits, where there are any."""

    def predict(self, features: Features) -> np.ndarray:
        """Acceptance estimates as log-odds [B, K], float64; nan where the features are."""
        ...

    def observe(self, features: Features, estimate: np.ndarray, labels: Labels) -> None:
        """Learn from one verification. estimate: [B, K] probabilities, as predicted in this step."""

    def end_step(self) -> Refit | None:
        """Count a step; at the end of a round refit, and say what changed."""
        return None


Kind = TypeVar("Kind", bound=type[Estimator])
_known: dict[str, type[Estimator]] = {}


def register(estimator: Kind) -> Kind:
    """Make an estimator known by its name. Raises ValueError where it reads a feature that does not exist."""
    known_features(estimator.reads)
    _known[estimator.name] = estimator
    return estimator


def exists(name: str) -> bool:
    """Whether there is an estimator of this name, sound or not."""
    return name in _known


def named(name: str) -> type[Estimator]:
    """The estimator of this name. Raises KeyError."""
    return _known[name]


def sound(name: str) -> bool:
    """Whether a run may be served by this estimator: none of the features that it reads looks at drawn tokens."""
    return all(FEATURES[feature].sound for feature in named(name).reads)


def declared(name: str) -> bool:
    """Whether its author declares it sound; those of this package are, by what they read and by enumeration."""
    return named(name).declared


def registered() -> dict[str, type[Estimator]]:
    """The estimators by name: what a plugin adds to, and is taken out of again."""
    return _known


def judged() -> list[str]:
    """Every estimator, those included that no run may be served by: the default first."""
    return sorted(_known, key=lambda name: (name != DEFAULT, name))


def names() -> list[str]:
    """The estimators that a run may be served by, the default first."""
    return sorted(filter(sound, _known), key=lambda name: (name != DEFAULT, name))
