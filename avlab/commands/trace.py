"""`avlab trace`: recorded texts with a draft at every position, and what stands in for them."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from avlab.commands import terminal
from avlab.commands.options import Json
from avlab.commands.recording import record
from avlab.commands.trace_kept import export_trace, import_trace
from avlab.commands.trace_rates import parametric_trace
from avlab.commands.trace_served import served_trace

app = typer.Typer(
    help="Traces: recorded texts with a draft at every position, which a replay serves under any policy.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("record")(record)
app.command("parametric")(parametric_trace)
app.command("served")(served_trace)
app.command("import")(import_trace)
app.command("export")(export_trace)


@app.command("list")
def list_traces(as_json: Json = False) -> None:
    """List the traces that ship and your own: whose texts, at which sampling, and how much of them a draft follows."""
    from avlab.replay.about import TraceError
    from avlab.replay.traces import known, trace_named

    found = {}
    for name in known():
        try:
            found[name] = trace_named(name)
        except TraceError as error:
            terminal.errors().print(str(error), soft_wrap=True)
    if as_json:
        terminal.print_json(
            {
                name: asdict(each.about) | {"texts": each.texts, "anchors": each.anchors}
                for name, each in found.items()
            }
        )
        return
    table = Table("name", "target", "sampling", "texts", "anchors", "tokens a step, all drafts verified")
    for name, each in found.items():
        numbers = f"{each.texts:,}", f"{each.anchors:,}", f"{each.tokens_per_step():.2f}"
        table.add_row(name, each.about.target, each.about.sampling(), *numbers)
    terminal.answers().print(table)


@app.command()
def show(
    trace: Annotated[str, typer.Argument(help="A trace's name, or a Parquet file.")],
    as_json: Json = False,
) -> None:
    """Say what a trace holds: where it is from, its texts, and the rate of acceptance at each position."""
    from avlab.replay.rates import rates_of
    from avlab.replay.traces import trace_named

    found = trace_named(trace)
    about, rates = found.about, rates_of(found)
    if as_json:
        counts = {"texts": found.texts, "anchors": found.anchors, "tokens_per_step": found.tokens_per_step()}
        terminal.print_json(asdict(about) | counts | {"rates": rates})
        return
    out = terminal.answers()
    out.print(
        f"{about.text()}: {found.size()}, K = {about.K}, drafts of {about.drafter}. "
        f"{found.tokens_per_step():.2f} tokens a step where all drafts are verified.",
        soft_wrap=True,
    )
    shown = ", ".join("none" if rate is None else f"{rate:.3f}" for rate in rates)
    out.print(f"Accepted, given that all before were, by position: {shown}.", soft_wrap=True)
    out.print(f"Features: {', '.join(about.features)}. {about.note}".strip(), soft_wrap=True)
