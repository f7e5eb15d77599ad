"""What a trace says of itself: whose texts and drafts it holds, under which sampling, and where they are from."""

from dataclasses import dataclass

from avlab.speculation.sampling import Sampling

VERSION = 1
RECORDED, SERVED, PARAMETRIC = ORIGINS = ("recorded", "served", "parametric")


class TraceError(ValueError):
    """A trace that cannot be read or served. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class About:
    """Where a trace is from. features: names of the F features recorded, as in `speculation.features`.

    origin: recorded (drafts at every position), served (only at those that a run visited) or parametric (no text and no
    draft: drawn from rates). note: what else a reader must know, in a few words. draws: how often each text was drafted
    for; its copies stand side by side.
    """

    K: int
    features: tuple[str, ...]
    target: str
    drafter: str
    seed: int
    temperature: float
    top_p: float
    top_k: int
    origin: str = RECORDED
    note: str = ""
    draws: int = 1

    def sampling(self) -> str:
        """The sampling in words: "greedy", or "temperature 0.6, top-p 0.95"."""
        return Sampling(self.temperature, self.top_k, self.top_p).words()

    def text(self) -> str:
        """Whose text it is, in words: what every sentence about a replay's speed says."""
        if self.origin == PARAMETRIC:
            return f"parametric acceptance ({self.note})" if self.note else "parametric acceptance"
        sampling = self.sampling()
        text = (
            f"{self.target}'s greedy text" if sampling == "greedy" else f"{self.target}'s text at {sampling}"
        )
        return f"{text}, as far as a run visited it" if self.origin == SERVED else text
