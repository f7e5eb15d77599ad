"""What the real command line makes of words, without running the command."""

from typing import Any

import typer.main

from avlab.commands.cli import app, plugin_first

GROUP = typer.main.get_command(app)


def parse(words: list[str]) -> tuple[str, dict[str, Any]]:
    """The command's full name and its parameters, of the words behind `avlab`. Raises the parser's own errors."""
    command: Any = GROUP
    name, rest = "", plugin_first(list(words))
    if rest[:1] == ["--plugin"]:
        rest = rest[2:]
    while hasattr(command, "commands"):
        word = rest.pop(0)
        assert word in command.commands, f"there is no command {name} {word}".replace("  ", " ")
        command, name = command.commands[word], f"{name} {word}".strip()
    with command.make_context(name, rest) as context:
        return name, dict(context.params)
