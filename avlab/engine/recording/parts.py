"""Recorded texts as parts of a trace, each on disk once it is done: a recording that was ended goes on from there."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from avlab.engine.recording.recorder import Recorded
from avlab.engine.recording.texts import Text
from avlab.replay.about import About
from avlab.replay.trace import Trace, behind_of, drafted_of

TYPES = {"accepted": np.int8, "features": np.float16, "acceptance": np.float16, "behind": np.float16}


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Some texts of a trace, with their anchors; columns as in `Trace`."""

    kind: np.ndarray
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    limit: np.ndarray
    accepted: np.ndarray
    features: np.ndarray
    acceptance: np.ndarray
    behind: np.ndarray

    @classmethod
    def of(cls, texts: Sequence[Text], recorded: Sequence[Recorded]) -> "Part":
        """texts: at least one, each with what was recorded of it."""
        columns = {
            name: np.concatenate([getattr(each, name) for each in recorded]).astype(dtype)
            for name, dtype in TYPES.items()
        }
        return cls(
            kind=np.array([text.kind for text in texts]),
            prompt_tokens=np.array([len(text.prompt) for text in texts]),
            output_tokens=np.array([len(text.output) for text in texts]),
            limit=np.array([text.limit for text in texts]),
            **columns,
        )

    @classmethod
    def joined(cls, parts: "Sequence[Part]") -> "Part":
        """The texts of all parts, in their order."""
        return cls(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)))

    def save(self, path: Path) -> None:
        """To a file of our own, whole or not at all."""
        unfinished = path.with_suffix(".part")
        with unfinished.open("wb") as file:
            np.savez_compressed(file, **{f.name: getattr(self, f.name) for f in fields(self)})
        unfinished.rename(path)

    @classmethod
    def load(cls, path: Path) -> "Part":
        """From such a file."""
        with np.load(path) as columns:
            return cls(**{f.name: columns[f.name] for f in fields(cls)})

    def trace(self, about: About) -> Trace:
        """These texts as a trace. A draft that is not drawn needs nothing to be known of what is behind it: greedy
        ones, and those that are copied."""
        features, behind = self.features.astype(np.float32), None
        drafted = drafted_of(about.features, features)
        if about.temperature > 0 and drafted is None:
            behind = behind_of(self.behind.astype(np.float32), features)
        first = np.cumsum(self.output_tokens - 1) - (self.output_tokens - 1)
        return Trace(
            about=about,
            kind=self.kind.astype(object),
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            limit=self.limit,
            first=first,
            accepted=self.accepted.astype(np.int64),
            features=features,
            acceptance=self.acceptance.astype(np.float32),
            behind=behind,
            drafted=drafted,
        )
