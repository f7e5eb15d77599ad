"""What arms that decide by an estimator have in common: `KIND[:ESTIMATOR]`."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import ClassVar

from avlab.policies.arm import Arm, PolicyError, Written
from avlab.speculation.estimators import base as estimators
from avlab.speculation.features import FEATURES


@dataclass(frozen=True, slots=True)
class EstimatingArm(Arm):
    """source: the estimator's name; usual: the one of an arm that names none."""

    usual: ClassVar[str] = estimators.DEFAULT

    source: str = estimators.DEFAULT

    @classmethod
    def forms(cls) -> tuple[str, ...]:
        return (f"{cls.kinds[0]}[:ESTIMATOR]",)

    @classmethod
    def read(cls, written: Written, K: int | None) -> Arm | None:
        return None if written.options else cls(source_of(written.value, cls.usual, written.text))

    def __str__(self) -> str:
        return self.kinds[0] + ("" if self.source == self.usual else f":{self.source}")

    @property
    def adaptive(self) -> bool:
        return True

    @property
    def reads(self) -> tuple[str, ...]:
        return estimators.named(self.source).reads

    @property
    def declared(self) -> bool:
        return self.sound and estimators.declared(self.source)

    @property
    def learns(self) -> bool:
        return estimators.named(self.source).learns

    def require_features(self, features: Collection[str]) -> None:
        missing = [name for name in self.reads if name not in features]
        if unasked := [name for name in missing if FEATURES[name].of_row]:
            raise PolicyError(
                f"policy {self} reads {', '.join(unasked)}, which this run does not compute: name it in --features."
            )
        if missing:
            lacks = (
                "has no confidence head"
                if missing == ["head_log_odds"]
                else f"does not tell {', '.join(missing)}"
            )
            raise PolicyError(
                f"policy {self} does not exist for this drafter, which {lacks}: choose another estimator, such as "
                f"{replace(self, source=estimators.DEFAULT)}."
            )


def source_of(value: str | None, usual: str, text: str) -> str:
    """The estimator that a policy names. Raises PolicyError for one that no run may be served by."""
    source = usual if value is None else value
    known = ", ".join(estimators.names())
    if not estimators.exists(source):
        raise PolicyError(f"policy {text!r} names the source {source!r}; known are {known}.")
    if not estimators.sound(source):
        raise PolicyError(
            f"policy {text!r} would bend the output: {source!r} looks at drawn tokens, so an audit alone may use it; "
            f"choose one of {known}."
        )
    return source
