"""What of a replayed run is emulated, in words: no speed of it is stated without them."""

from avlab.machines import Description
from avlab.replay.about import About

EMULATED = "emulated"  # the word that goes with every speed of a replay, and the name of the sentence in a run's record


def emulation(machine: Description, trace: About) -> str:
    """Whose costs and whose text: "emulated: B300 × 4, DeepSeek-V4-Flash's costs, SmolLM2's greedy text"."""
    return f"{EMULATED}: {machine.title}, {trace.text()}"
