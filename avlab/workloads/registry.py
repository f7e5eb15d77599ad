"""Finds the kinds of prompts by name: every module of this package that holds a `KIND` is one."""

from functools import lru_cache

from avlab.modules import import_all

from .base import SPLITS, Kind, Prompt, WorkloadError, generator
from .base import split as side_of


@lru_cache(maxsize=1)
def kinds() -> dict[str, Kind]:
    """Name to kind, the most predictable output first."""
    found = [module.KIND for module in import_all("avlab.workloads") if hasattr(module, "KIND")]
    return {kind.name: kind for kind in sorted(found, key=lambda kind: (kind.rung, kind.name))}


def kind_named(name: str) -> Kind:
    """The kind of that name. Raises WorkloadError, listing the known names, when there is none."""
    if name not in kinds():
        raise WorkloadError(
            f"there is no kind of prompts named {name!r}; the known ones are {', '.join(kinds())}."
        )
    return kinds()[name]


@lru_cache(maxsize=32)
def _built(name: str, seed: int) -> tuple[Prompt, ...]:
    collection = list({prompt.text: prompt for prompt in kind_named(name).build(seed)}.values())
    generator("order", name, seed).shuffle(collection)
    return tuple(collection)


def prompts(kind: str, split: str = "all", seed: int = 0) -> list[Prompt]:
    """The distinct prompts of a kind, shuffled; the same list for the same kind, split and seed.

    `split` is "all", "training" (four in five, what a drafter may be trained on) or "held-out" (one in five,
    what serving and benchmarks use). Raises WorkloadError for an unknown kind or split.
    """
    if split not in SPLITS:
        raise WorkloadError(f"there is no split named {split!r}; the known ones are {', '.join(SPLITS)}.")
    return [prompt for prompt in _built(kind, seed) if split in ("all", side_of(prompt))]
