"""`avlab trace import` and `export`: the reader's own traces, by name."""

import re
from pathlib import Path
from typing import Annotated

import typer

from avlab.commands import terminal
from avlab.commands.options import Json


def import_trace(
    file: Annotated[Path, typer.Argument(help="A trace's Parquet file.")],
    name: Annotated[
        str | None, typer.Option("--name", help="What --trace is given; else the file's name.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a trace's file and keep a copy beside the lab's database: it then has a name, on the pages too."""
    from avlab.replay.traces import content_hash, keep, path_of

    file = file.expanduser()
    chosen = re.sub(r"[^a-z0-9.-]+", "-", file.stem.lower()).strip("-.") if name is None else name
    found = keep(file, chosen)
    if as_json:
        counts = {"texts": found.texts, "anchors": found.anchors, "sha256": content_hash(chosen)}
        terminal.print_json({"name": chosen, "file": str(path_of(chosen))} | counts)
        return
    terminal.answers().print(
        f"{path_of(chosen)}: {found.about.text()}; {found.size()}. Give it as --trace {chosen}.",
        soft_wrap=True,
    )


def export_trace(
    trace: Annotated[str, typer.Argument(help="A trace's name.")],
    file: Annotated[Path, typer.Argument(help="A new Parquet file.")],
    as_json: Json = False,
) -> None:
    """Write a trace that has a name to a Parquet file."""
    from avlab.replay.traces import content_hash, copy, path_of

    path = file.expanduser().absolute()
    copy(path_of(trace), path)
    if as_json:
        terminal.print_json({"file": str(path), "bytes": path.stat().st_size, "sha256": content_hash(trace)})
        return
    terminal.answers().print(f"{path}: {path.stat().st_size:,} bytes.", soft_wrap=True)
