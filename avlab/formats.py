"""Numbers and times as people read them; a dash where there is none."""

import json
import math
import re
from datetime import datetime
from numbers import Real
from typing import Any, TypeGuard

DASH = "–"


LARGEST = 1e15  # of a number that is written out; beyond it in powers of ten


def number(value: float | None, digits: int = 3, unit: str = "") -> str:
    """A number with a fixed number of digits and thousands apart."""
    if not _is_finite(value):
        return DASH
    shown = f"{value:,.{digits}f}" if abs(value) < LARGEST else f"{value:.2e}"
    return f"{shown}{unit and ' ' + unit}"


def _is_finite(value: object) -> TypeGuard[float]:
    """Whether it is a number that can be shown; a database may hold anything."""
    try:
        return isinstance(value, Real) and math.isfinite(value)
    except OverflowError:  # a whole number that no float holds
        return False


def counted(count: float, noun: str) -> str:
    """A number and what it counts: "1 step", "2.5 seconds", "1,000 rounds"."""
    return f"{count:,.10g} {noun}{'s' if count != 1 else ''}"


def as_json(value: Any, most: int = 40) -> str:
    """A foreign value as a sentence can show it: short, in JSON's spelling, in characters that every terminal has."""
    shown = json.dumps(value, default=repr)
    return shown if len(shown) <= most else f"{shown[: most - 3]}..."


def share(value: float | None) -> str:
    """A share as a percentage."""
    return f"{value:.1%}".replace("%", " %") if _is_finite(value) and abs(value) < LARGEST else DASH


def emulated(text: str, emulation: str) -> str:
    """A sentence that states a speed; where that is emulated, it begins by saying so. emulation: what is, or ""."""
    return f"Emulated: {text}" if text and emulation else text


def unbroken(text: str) -> str:
    """A sentence whose numbers stay in one line with their % sign."""
    return re.sub(r"(?<=[\d\]…]) %", "\u00a0%", text)


def seconds(value: float | None) -> str:
    """A length of time: 4.2 s, 3 min 20 s, 2 h 5 min."""
    if not _is_finite(value) or abs(value) > LARGEST:
        return DASH
    if value < 10:
        return f"{value:.1f} s"
    if value < 60:
        return f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def moment(wall: float | None, form: str = "%d %b %Y, %H:%M") -> str:
    """A time of day with its date, on this machine's clock; a dash for one that no calendar has."""
    try:
        return datetime.fromtimestamp(wall).strftime(form) if _is_finite(wall) else DASH
    except (ValueError, OverflowError, OSError):
        return DASH


def run_label(run: dict) -> str:
    """A run in a list: when it began, its policy and workload, how it is."""
    when = moment(run["started"], "%d %b %H:%M:%S")
    emulated = " · emulated" if run["emulated"] else ""
    return f"{when} · {run['policy']} · {run['workload']} · {run['state']}{emulated}"
