"""`avlab fetch` and `avlab bench`: the default target, and the project's measures."""

from pathlib import Path
from typing import Annotated

import typer

from avlab.commands import terminal
from avlab.commands.options import Json


def fetch(
    verify: Annotated[bool, typer.Option("--verify", help="Compare the hash of every file.")] = False,
    as_json: Json = False,
) -> None:
    """Download the default target once and convert it; later runs need no network."""
    from avlab.engine import fetch as fetching

    try:
        with terminal.bar() as progress:
            folder = fetching.fetch(progress)
            if verify:
                progress("comparing hashes", 0, 0)
                fetching.check(folder, thorough=True)
    except KeyboardInterrupt:
        terminal.fail(
            "Interrupted: `avlab fetch` goes on from a download that came whole, and begins any other again."
        )
        raise typer.Exit(130) from None
    if as_json:
        terminal.print_json({"folder": str(folder), "verified": verify})
    else:
        terminal.answers().print(f"The default target is in {folder}.", soft_wrap=True)


def bench(
    quick: Annotated[bool, typer.Option("--quick", help="The short form, at most ten minutes.")] = False,
    only: Annotated[list[str] | None, typer.Option("--only", help="A measure; may be given again.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The page to write; a full run in a checkout writes docs/benchmarks.md."),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what was measured before.")] = False,
    drafter: Annotated[str, typer.Option("--drafter", help="As in a run.")] = "default",
    as_json: Json = False,
) -> None:
    """Measure speed, memory and calibration against the project's bars; goes on where it was interrupted."""
    from avlab import bench as benchmark

    raise typer.Exit(benchmark.main(quick, as_json, only or (), out, fresh, drafter))
