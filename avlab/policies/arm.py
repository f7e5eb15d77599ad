"""Arms: how a policy is written on a command line, in a message and in the database, and what others ask of it.

Each family of arms is a file of this package that registers it. Nothing here imports torch, so that the dashboard, the
command line and the engine share one parser.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

if TYPE_CHECKING:
    from avlab.policies.base import Policy, PolicyContext


# of a run that names none: at or above the best fixed length at every load, machine and sampling replayed, to the
# accuracy of the figures in docs/policies.md
DEFAULT_ARM = "adaptive:converged+depth+stop"


class PolicyError(ValueError):
    """A policy that does not exist or cannot be served. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class Written:
    """A policy in its parts, as it was written: KIND[:VALUE][+OPTION]... value: None without a colon."""

    text: str
    kind: str
    value: str | None
    options: tuple[str, ...]


class Arm:
    """One policy under comparison: a frozen, hashable value whose `str` is the shortest text that parses to it.

    A family is a frozen dataclass under `@register`, with `kinds`, `forms`, `read`, `make` and `__str__`. Everything
    else has an answer here that a family overrides where its own differs; a dataclass field that does needs a default.
    """

    __slots__ = ()
    kinds: ClassVar[tuple[str, ...]] = ()  # the first words that it is written with
    sound: ClassVar[bool] = True  # of a plugin: whether its author declares it so

    @classmethod
    def forms(cls) -> tuple[str, ...]:
        """How it may be written, for the help text."""
        return cls.kinds

    @classmethod
    def read(cls, written: Written, K: int | None) -> Arm | None:
        """The arm that this names; None for what is outside the family's grammar. Raises PolicyError.

        K: draft positions, where known.
        """
        raise NotImplementedError

    def make(self, context: PolicyContext) -> Policy:
        """A new policy of this arm. Raises PolicyError for one that cannot be served."""
        raise NotImplementedError

    @staticmethod
    def parse(text: str, K: int | None = None) -> Arm:
        """The arm that `text` names. Raises PolicyError for anything outside the grammar, or lengths above K.

        `fixed:0` is `none`, and a bare `adaptive` uses the online estimator.
        """
        head, *options = text.strip().split("+")
        kind, colon, value = head.partition(":")
        family = _families.get(kind)
        arm = (
            family.read(Written(text, kind, value if colon else None, tuple(options)), K) if family else None
        )
        if arm is None:
            raise PolicyError(f"there is no policy {text!r}; a policy is {grammar()}.")
        return arm

    # ---- what others ask ---------------------------------------------------------------------------------------

    @property
    def drafted(self) -> int | None:
        """Positions drafted in every step; None where these are all K, or chosen step by step."""
        return None

    @property
    def verified(self) -> int | None:
        """Draft tokens of a request that are verified in every step; None where that is chosen step by step."""
        return None

    @property
    def drafts(self) -> bool:
        """Whether the drafter runs at all."""
        return self.drafted != 0

    @property
    def fixed(self) -> bool:
        """Whether it drafts and verifies one length, which may be 0."""
        return self.verified is not None and self.drafted == self.verified

    @property
    def adaptive(self) -> bool:
        """Whether it decides by acceptance estimates."""
        return False

    @property
    def source(self) -> str:
        """The name of the estimator that it decides by; "" without one."""
        return ""

    @property
    def reads(self) -> tuple[str, ...]:
        """The features that its estimator reads."""
        return ()

    @property
    def learns(self) -> bool:
        """Whether it owns an estimator that learns, in the arm's own blocks."""
        return False

    @property
    def depth(self) -> bool:
        """Whether it chooses how many positions are drafted."""
        return False

    @property
    def explore(self) -> float:
        """The chance, in each step, that a request is verified in full whatever its estimates say."""
        return 0.0

    @property
    def declared(self) -> bool:
        """Whether it keeps the target's distribution, as far as those who wrote it and its estimator say."""
        return self.sound

    def require_declared(self) -> None:
        """Raises PolicyError for an arm that a model must not be served by."""
        if not self.declared:
            raise PolicyError(
                f"policy {self} comes from a plugin that does not declare itself sound, so it may be judged and "
                "replayed but not served: write SOUND = True into the file once it looks at no drawn token."
            )

    def require_features(self, features: Collection[str]) -> None:
        """Raises PolicyError where the arm reads what a drafter that tells these features does not tell."""


@dataclass(frozen=True, slots=True)
class Unknown(Arm):
    """An arm of which the name alone is known: recorded by a family that is gone, or a rule under audit."""

    text: str

    def __str__(self) -> str:
        return self.text


Family = TypeVar("Family", bound=type[Arm])
_families: dict[str, type[Arm]] = {}  # by kind


def register(family: Family) -> Family:
    """Make a family known by its kinds."""
    _families.update(dict.fromkeys(family.kinds, family))
    return family


def registered() -> dict[str, type[Arm]]:
    """The families by the kinds that they are written with: what a plugin adds to, and is taken out of again."""
    return _families


def grammar() -> str:
    """Every form that a policy may be written in, as words of a sentence."""
    *others, last = (form for family in dict.fromkeys(_families.values()) for form in family.forms())
    return f"{', '.join(others)} or {last}"


def labels(arms: Sequence[str], K: int | None = None) -> list[str]:
    """Names for arms that are compared: their shortest text, with #2, #3 behind an arm that is listed again.

    The same arm twice is how noise is measured: two equal arms, each with an estimator of its own. Raises PolicyError.
    """
    found: list[str] = []
    for text in arms:
        name = str(Arm.parse(text, K))
        again = sum(unlabelled(label) == name for label in found)
        found.append(f"{name}#{again + 1}" if again else name)
    return found


def unlabelled(label: str) -> str:
    """The arm of a label, as text: "fixed:5" of "fixed:5", "fixed:5#2" and "fixed:5@16"."""
    return re.split("[#@]", label)[0]


def arm_of(label: str) -> Arm:
    """The arm of a label of a recorded run, `Unknown` where no family here reads it."""
    try:
        return Arm.parse(unlabelled(label))
    except PolicyError:
        return Unknown(unlabelled(label))


def load_of(label: str) -> int | None:
    """The requests under way that a label such as "fixed:5@16" asks for; None where it leaves that to the plan, or has
    something else there, as a recorded label may."""
    load = label.partition("@")[2]
    return int(load) if re.fullmatch("[0-9]{1,9}", load) else None
