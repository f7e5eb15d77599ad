"""The pages of the dashboard: each is one file in the folder beside app.py, which says its title, icon and place."""

import ast
import functools
from dataclasses import dataclass
from pathlib import Path

NAMES = ("TITLE", "ICON", "ORDER")


class PageFileError(Exception):
    """A file among the pages does not say what the navigation needs."""


@dataclass(frozen=True, slots=True, order=True)
class PageFile:
    """order: smaller ones stand first, and the first is what opens. name: of the file, without .py."""

    order: int
    name: str
    title: str
    icon: str

    @property
    def path(self) -> str:
        """As Streamlit wants it: relative to app.py."""
        return f"pages/{self.name}.py"


@functools.cache
def page_files(folder: Path) -> tuple[PageFile, ...]:
    """The pages in a folder, in the navigation's order; read once a process. Raises PageFileError."""
    return tuple(sorted(_read(path) for path in folder.glob("*.py") if path.stem != "__init__"))


def _read(path: Path) -> PageFile:
    """The constants of a page; the file is not run."""
    found = {}
    for statement in ast.parse(path.read_text(encoding="utf-8"), str(path)).body:
        match statement:
            case ast.Assign([ast.Name(name)], ast.Constant(value)) if name in NAMES:
                found[name] = value
    match found:
        case {"TITLE": str(title), "ICON": str(icon), "ORDER": int(order)}:
            return PageFile(order, path.stem, title, icon)
    raise PageFileError(f"{path} needs TITLE and ICON, which are strings, and ORDER, a whole number.")
