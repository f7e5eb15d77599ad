"""The dashboard's JavaScript and CSS: files under static/, read when they are first asked for."""

from pathlib import Path

STATIC = Path(__file__).with_name("static")


def read(*names: str) -> str:
    """The text of these files, one after the other: what the browser gets is one script, or one sheet."""
    return "\n".join((STATIC / name).read_text(encoding="utf-8") for name in names)
