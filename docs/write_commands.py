"""Writes docs/commands.md from the command line itself, so that the page cannot drift from the code.

python docs/write_commands.py            write the page
"""

from pathlib import Path

import typer.main
from typer.core import TyperArgument

from avlab.commands.cli import app

PAGE = Path(__file__).parent / "commands.md"


def page() -> str:
    """The page as text: every command, its arguments, its options with their defaults."""
    command = typer.main.get_command(app)
    parts = [
        "# Commands",
        "This page is written by `python docs/write_commands.py` from the command line itself. Answers go to standard "
        "output, everything else to standard error; an error is one sentence and a non-zero exit code.",
    ]
    shared = "\n".join(_row(parameter) for parameter in command.params)
    parts.append(f"## Every command\n\n| option | default | |\n| --- | --- | --- |\n{shared}")
    for name, each in leaves(command):
        parts.append(f"## avlab {name}\n\n{(each.help or '').strip()}")
        rows = [_row(parameter) for parameter in each.params]
        if rows:
            parts.append("\n".join(["| option | default | |", "| --- | --- | --- |", *rows]))
    return "\n\n".join(parts) + "\n"


def leaves(group, before: str = "") -> list:
    """Every command by its full name, groups opened: [("run", command), ("bias exact", command), ..]."""
    found = []
    for name, each in group.commands.items():
        found += leaves(each, f"{before}{name} ") if hasattr(each, "commands") else [(before + name, each)]
    return found


def _row(parameter) -> str:
    if isinstance(parameter, TyperArgument):
        name = parameter.metavar or parameter.name.upper()
    else:
        name = ", ".join(parameter.opts)
    default = parameter.default
    shown = (
        "" if default is None or default is ... or callable(default) or default is False else f"`{default}`"
    )
    text = (getattr(parameter, "help", None) or "").replace("|", "\\|").replace("\n", " ")
    return f"| `{name}` | {shown} | {text} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
