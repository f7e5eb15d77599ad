"""The command line: `avlab COMMAND`, one file a command, listed here.

Answers go to standard output, everything else to standard error; with --json the answer is one JSON object. What
goes wrong is one sentence on standard error and an exit code other than 0: 2 for wrong usage, 130 for Ctrl-C, 70 for a
fault of our own, whose traceback goes to a file, else 1.
"""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
import typer.main

from avlab import faults, plugins
from avlab.bias.grammar import CaseError
from avlab.commands import bias, encoding, interchange, lab, machine, replay, terminal, trace, vllm
from avlab.commands.ab import ab
from avlab.commands.attach import attach
from avlab.commands.canary import canary
from avlab.commands.doctor import doctor
from avlab.commands.export import costs, export, report
from avlab.commands.frontier import frontier
from avlab.commands.maintenance import bench, fetch
from avlab.commands.run import run
from avlab.commands.runs import runs, show
from avlab.commands.serve import serve
from avlab.commands.sidecar import sidecar
from avlab.commands.window import window
from avlab.config import ConfigError
from avlab.errors import is_ours

FAULT = 70  # of sysexits.h: an internal error
COMMANDS: dict[str, Callable[..., None] | typer.Typer] = {
    "serve": serve,
    "fetch": fetch,
    "run": run,
    "ab": ab,
    "frontier": frontier,
    "replay": replay.app,
    "trace": trace.app,
    "lab": lab.app,
    "machine": machine.app,
    "bias": bias.app,
    "vllm": vllm.app,
    "attach": attach,
    "canary": canary,
    "interchange": interchange.app,
    "sidecar": sidecar,
    "doctor": doctor,
    "runs": runs,
    "show": show,
    "export": export,
    "report": report,
    "costs": costs,
    "window": window,
    "bench": bench,
}

app = typer.Typer(
    name="avlab",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, _command in COMMANDS.items():
    if isinstance(_command, typer.Typer):
        app.add_typer(_command, name=_name)
    else:
        app.command(_name)(_command)


@app.callback()
def first(
    plugin: Annotated[
        Path | None,
        typer.Option(
            "--plugin",
            help="A Python file of your own that adds a feature, an estimator or a rule; anywhere in the command. "
            "It runs as your code does. Else $AVLAB_PLUGIN.",
        ),
    ] = None,
) -> None:
    """A lab bench for adaptive verification in speculative decoding."""
    if plugin is not None:
        plugins.name(plugin)
    plugins.load_named()


def main() -> None:
    """The entry point: errors of ours become their sentence."""
    encoding.tolerate()
    try:
        app(plugin_first(sys.argv[1:]))
    except (ConfigError, CaseError) as error:
        terminal.fail(_by_options(str(error)))
        sys.exit(2)
    except BrokenPipeError:  # whoever read the answer has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        terminal.fail(str(error) if is_ours(error) else faults.sentence(error))
        sys.exit(1 if is_ours(error) else FAULT)


def plugin_first(words: list[str]) -> list[str]:
    """The words of a command line with --plugin FILE in front, wherever it stood; behind a bare -- nothing is ours."""
    end = words.index("--") if "--" in words else len(words)
    mine: list[str] = []
    others: list[str] = []
    rest = iter(words[:end])
    for word in rest:
        if word == "--plugin":
            mine += [word, *([value] if (value := next(rest, None)) is not None else [])]
        elif word.startswith("--plugin="):
            mine.append(word)
        else:
            others.append(word)
    return [*mine, *others, *words[end:]]


def _by_options(sentences: str) -> str:
    """Settings that sentences begin with by the names of their options: "top_p is 2" as "--top-p is 2"."""
    group = typer.main.get_group(app)
    options = {str(each.name): each.opts[0] for command in group.commands.values() for each in command.params}
    return re.sub(r"^(\w+)(?= is )", lambda match: options.get(match[1], match[1]), sentences, flags=re.M)
