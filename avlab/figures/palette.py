"""One colour for one thing, on every page; each can be told apart from the others on white and on near-black."""

from zlib import crc32

# what happens to draft tokens
SCHEDULED = "#9aa7b8"
ADMITTED = "#3f83f8"
ACCEPTED = "#12a37f"
REJECTED = "#e0533d"
BONUS = "#d99a1c"

# where acceptance estimates come from; an estimator that is not among these has one of OTHERS
SOURCES = {
    "online": "#8b5cf6",
    "raw": "#d97f1c",
    "head": "#d6478b",
    "cut": "#12a37f",
    "converged": "#56b4c9",
    "monotone": "#3f83f8",
    "combined": "#e0533d",
}
OTHERS = ("#12a37f", "#56b4c9", "#d99a1c", "#e0533d")

# where a step's time goes
PHASES = {
    "draft": "#56b4c9",
    "verify": "#3f83f8",
    "sample": "#12a37f",
    "decide": "#8b5cf6",
    "report": "#d99a1c",
    "idle": "#9aa7b8",
}
PROMPTS = "#c79a5b"

RATE = "#3f83f8"  # tokens in a time
USER = "#d6478b"  # what one user gets
EVENT = "#8391a1"  # markers of what changed, lines to compare with
CHOSEN = "#e0533d"  # the one point that matters
RUNS = ("#3f83f8", "#12a37f", "#d97f1c", "#8b5cf6", "#d6478b", "#56b4c9")  # runs side by side
HEAT = [[0, "rgba(128,138,150,0.16)"], [0.15, "rgba(63,131,248,0.45)"], [0.55, "#3f83f8"], [1, "#f5a742"]]

_FIRST, _LAST = (245, 158, 66), (63, 81, 181)  # from the first position to the last


def source(name: str) -> str:
    """The colour of an estimator's estimates, the same on every page and in every process."""
    return SOURCES.get(name) or OTHERS[crc32(name.encode()) % len(OTHERS)]


def position(k: int, K: int) -> str:
    """The colour of draft position k of K: from orange (first) to indigo (last)."""
    share = k / max(K - 1, 1)
    parts = (round(a + (b - a) * share) for a, b in zip(_FIRST, _LAST, strict=True))
    return "#" + "".join(f"{part:02x}" for part in parts)


def faint(colour: str, opacity: float) -> str:
    """The same colour, see-through."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


# what comes out under a rule, beside what is due
TARGET = "#9aa7b8"
SOUND = "#12a37f"
UNSOUND = "#e0533d"
TOKENS = (
    "#3f83f8",
    "#d99a1c",
    "#8b5cf6",
    "#12a37f",
    "#d6478b",
    "#56b4c9",
    "#e0533d",
    "#9aa7b8",
)  # a, b, c, ..


def verdict(sound: bool) -> str:
    """The colour of a rule's output: whether the rule is sound."""
    return SOUND if sound else UNSOUND
