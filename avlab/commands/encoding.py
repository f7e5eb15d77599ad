"""Output on a terminal that is not UTF-8: signs that it lacks are written with those that it has."""

import codecs
import sys
from io import TextIOWrapper

PLAIN = {
    "–": "-", "—": "-", "‑": "-", "−": "-", "…": "...", "·": ".", "•": "*", "×": "x", "≤": "<=", "≥": ">=", "≈": "~",
    "→": "->", "←": "<-", "▸": ">", "±": "+-", "λ": "lambda", "β": "beta", "σ": "sigma", "Δ": "delta", "µ": "u",
    "μ": "u", "\u00a0": " ", "“": '"', "”": '"', "‘": "'", "’": "'", "⏎": "\\n", "␣": "_",
}  # fmt: skip
BOXES = range(0x2500, 0x25A0)  # lines, corners and blocks


def _plain(error: UnicodeError) -> tuple[str, int]:
    """What is written in place of signs that an encoding lacks, and where to go on."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    return "".join(map(_sign, signs)), error.end


def _sign(sign: str) -> str:
    if sign in PLAIN:
        return PLAIN[sign]
    if ord(sign) in BOXES:
        return (
            "-"
            if sign in "─━╌╍┄┅┈┉═╴╶╸╺╼╾"
            else "|"
            if sign in "│┃║╎╏┆┇┊┋"
            else "+"
            if ord(sign) < 0x2580
            else "#"
        )
    return "?"


def tolerate() -> None:
    """Have standard output and standard error write something for every sign, whatever their encoding."""
    codecs.register_error("avlab.plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="avlab.plain")
