"""The grammar of arms: how a policy is written on a command line, in a message and in the database.

    adaptive[:online|head|raw][+depth][+explore=0.02]     fixed:k     verify:k     none

Nothing here imports torch, so that the dashboard, the CLI and the engine share one parser.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

GRAMMAR = "adaptive[:online|head|raw][+depth][+explore=0.02], fixed:k, verify:k or none"
SOURCES = ("online", "head", "raw")
_NUMBER = re.compile(r"[0-9]{1,4}")


class PolicyError(ValueError):
    """A policy that does not exist or cannot be served. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One policy under comparison.

    kind: "adaptive", "fixed" (draft k, verify k), "verify" (draft K, verify k) or "none" (no drafts).
    k: the length of a fixed or verify arm. source: where an adaptive arm's acceptance estimates come from.
    depth: an adaptive arm also chooses how many positions are drafted. explore: the chance, in each step, that
    a request is verified in full whatever its estimates say.
    """

    kind: str
    k: int = 0
    source: str = ""
    depth: bool = False
    explore: float = 0.0

    @classmethod
    def parse(cls, text: str, K: int | None = None) -> "Arm":
        """The arm that `text` names. Raises PolicyError for anything outside the grammar, or k above K.

        `fixed:0` is `none`, and a bare `adaptive` uses the online estimator.
        """
        head, *options = text.strip().split("+")
        kind, colon, value = head.partition(":")
        if kind == "adaptive":
            return _adaptive(text, value if colon else "online", options)
        if kind == "none" and not colon and not options:
            return cls("none")
        if kind in ("fixed", "verify") and not options and _NUMBER.fullmatch(value):
            k = int(value)
            if K is not None and k > K:
                raise PolicyError(
                    f"policy {text!r} asks for {k} draft token{'s' * (k != 1)}; the drafter makes K = {K}."
                )
            return cls("none") if kind == "fixed" and k == 0 else cls(kind, k=k)
        raise PolicyError(f"there is no policy {text!r}; a policy is {GRAMMAR}.")

    def __str__(self) -> str:
        """The shortest text that parses to this arm."""
        if self.kind != "adaptive":
            return self.kind if self.kind == "none" else f"{self.kind}:{self.k}"
        source = "" if self.source == "online" else f":{self.source}"
        explore = f"+explore={self.explore:g}" if self.explore else ""
        return f"adaptive{source}{'+depth' if self.depth else ''}{explore}"

    @property
    def drafts(self) -> bool:
        """Whether the drafter runs at all under this arm."""
        return self.kind != "none"

    @property
    def learns(self) -> bool:
        """Whether the arm owns an online estimator, which learns in the arm's own blocks."""
        return self.kind == "adaptive" and self.source == "online"


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


def load_of(label: str) -> int | None:
    """The requests under way that a label such as "fixed:5@16" asks for; None where it leaves that to the plan."""
    load = label.partition("@")[2]
    return int(load) if load else None


def _adaptive(text: str, source: str, options: list[str]) -> Arm:
    if source not in SOURCES:
        raise PolicyError(f"policy {text!r} names the source {source!r}; known are {', '.join(SOURCES)}.")
    depth, explore = False, 0.0
    seen = set()
    for option in options:
        name, equals, value = option.partition("=")
        if name in seen or name not in ("depth", "explore") or (name == "depth") == bool(equals):
            raise PolicyError(f"policy {text!r} has the option {option!r}; known are depth and explore=0.02.")
        seen.add(name)
        if name == "depth":
            depth = True
            continue
        try:
            explore = float(value)
        except ValueError:
            explore = -1.0
        if not 0 <= explore <= 1:
            raise PolicyError(f"policy {text!r} explores with {value!r}; give a chance from 0 to 1.")
    return Arm("adaptive", source=source, depth=depth, explore=explore)
