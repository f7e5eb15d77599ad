"""What the engine asks of a drafter, whatever it is made of."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from torch import Tensor

from avlab.engine.cache import KVCache
from avlab.engine.checkpoint_files import CheckpointError
from avlab.engine.drafts import Drafts
from avlab.engine.model_config import ModelConfig
from avlab.engine.target import Target
from avlab.speculation.features import DEFAULT_FEATURES, FEATURES


@dataclass(slots=True)
class DraftInput:
    """The requests a step drafts for, by rising cache row.

    newest: [B] the newest token of each, not yet in the cache. starts: its position. states: [B, S * hidden], the
    target's states at the last verified position (final, then the tapped layers the drafter asked for).
    uniforms: [B, K] draws for the draft tokens. history: the tokens of each request, prompt included, for drafters
    that read text.
    """

    cache_rows: list[int]
    starts: list[int]
    newest: Tensor
    states: Tensor
    temperature: Tensor
    uniforms: Tensor
    cache: KVCache
    history: list[list[int]]


def features_given(wanted: tuple[str, ...], own: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The features that a drafter with logits gives: of those wanted, and of what policies read.

    own: those it knows beside what its draft rows say; they come last.
    """
    asked = tuple(dict.fromkeys((*DEFAULT_FEATURES, *wanted)))
    return (*(name for name in asked if FEATURES[name].of_row), *(name for name in asked if name in own))


class Drafter(Protocol):
    """Proposes up to K tokens a request. `state_layers` names the target layers whose inputs it wants to see.

    Autoregressive drafters (EAGLE, MTP) keep a cache of their own, a request in the row that it has in the target's:
    `forget(cache_row)` is called when a request ends. features: the names of what it tells of its drafts, always the
    same; `max_log_odds` is among them. Drafters without logits (n-gram, suffix) give draft_probs=None, and counts in
    the place of a draft row: see `lookup.py`.
    """

    name: str
    K: int
    state_layers: tuple[int, ...]
    features: tuple[str, ...]

    def propose(self, inputs: DraftInput, depth: int) -> Drafts:
        """Drafts of this depth, 1 to K."""
        ...

    def assume_read(self, cache_row: int, tokens: int) -> None:
        """Take so many tokens of this row's request as read, whatever they were: timing begins there."""
        ...

    def forget(self, cache_row: int) -> None:
        """The request in this row has ended."""
        ...


@runtime_checkable
class ReadsEveryState(Protocol):
    """A drafter that wants the target's states at every position, as those with layers of their own over them do."""

    def take_in(self, cache_rows: list[int], starts: list[int], states: list[Tensor]) -> None:
        """Positions that the target has verified, from starts[i] on, of the request in cache_rows[i].

        states: [n, S * hidden] each, as in `DraftInput`. A start of 0 is a new request.
        """
        ...


@dataclass(frozen=True, slots=True)
class DrafterContext:
    """What a drafter is made from.

    folder: where its weights are, if it has any. requests: how many it drafts for at once, numbered from 0. K: the most
    positions to draft. head: whether its confidence head is on, where it has one. features: those wanted beside what
    policies read. options: what was written behind the name of a kind without weights.
    """

    folder: Path
    target: Target
    requests: int
    K: int
    head: bool = True
    features: tuple[str, ...] = DEFAULT_FEATURES
    options: str = ""


def fits_any(folder: Path, target: ModelConfig) -> bool:
    """For kinds whose folder alone does not say which targets they are for."""
    return True


def any_folder(folder: Path) -> bool:
    """For kinds whose marker alone tells them apart."""
    return True


def nothing_against(folder: Path, target: Path) -> list[str]:
    """For kinds that write the target's own tokens."""
    return []


@dataclass(frozen=True, slots=True)
class DrafterKind:
    """A way to draft; a new one is a module of this package that registers its kind.

    title: what `--drafter` names, for sentences. marker: the file by which its folder is known; "" for a kind without
    weights, which is asked for by its name. make: the drafter; raises CheckpointError. fits: whether the drafter of a
    folder is for this target. against: what a reader must know of a folder's drafter for the target in another folder,
    as sentences; raises CheckpointError. holds: whether a folder with the marker holds this kind. note: what a reader
    must know of every drafter of this kind.
    """

    name: str
    title: str
    marker: str
    make: Callable[[DrafterContext], Drafter]
    fits: Callable[[Path, ModelConfig], bool] = fits_any
    against: Callable[[Path, Path], list[str]] = nothing_against
    holds: Callable[[Path], bool] = any_folder
    note: str = ""


_kinds: dict[str, DrafterKind] = {}


def register(kind: DrafterKind) -> None:
    """Make a kind of drafter known."""
    _kinds[kind.name] = kind


def kind_named(name: str) -> DrafterKind | None:
    """The kind without weights of this name."""
    kind = _kinds.get(name)
    return kind if kind and not kind.marker else None


def kind_of(folder: Path) -> DrafterKind:
    """The kind of drafter that a folder holds; the first by name where it holds several. Raises CheckpointError."""
    known = [_kinds[name] for name in sorted(_kinds)]
    kinds, named = [kind for kind in known if kind.marker], [kind.name for kind in known if not kind.marker]
    for kind in kinds:
        if (folder / kind.marker).is_file() and kind.holds(folder):
            return kind
    markers = " nor ".join(dict.fromkeys(kind.marker for kind in kinds))
    titles = ", ".join(kind.title for kind in kinds)
    raise CheckpointError(
        f"{folder} holds neither {markers}: --drafter takes a folder with {titles}, or "
        f"{', '.join(['default', *named])}, or none."
    )
