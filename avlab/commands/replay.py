"""`avlab replay`: what a recorded trace says of every policy and load on a machine, without a model."""

import typer
from rich.table import Table

from avlab.commands import terminal
from avlab.commands.options import Json
from avlab.commands.replay_ab import ab
from avlab.commands.replay_frontier import frontier
from avlab.commands.replay_plan import plan
from avlab.commands.replay_published import published
from avlab.commands.replay_rules import compare_rules
from avlab.commands.replay_sweep import sweep

app = typer.Typer(
    help="Recorded texts on another machine's costs: emulated, exact but for the costs, in seconds.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


app.command("frontier")(frontier)
app.command("ab")(ab)
app.command("sweep")(sweep)
app.command("plan")(plan)
app.command("rules")(compare_rules)
app.command("published")(published)


@app.command()
def machines(as_json: Json = False) -> None:
    """List the machines that ship: whose costs they are, from where, and how far to trust them."""
    from avlab.machines import known, path_of, read

    found = {name: read(path_of(name)) for name in known()}
    if as_json:
        terminal.print_json(
            {name: each.model_dump(mode="json", exclude={"draft", "verify"}) for name, each in found.items()}
        )
        return
    table = Table("name", "costs of", "GPUs", "most requests", "trust")
    for name, each in found.items():
        table.add_row(name, each.model, f"{each.gpu} × {each.gpus}", f"{each.most_requests:,}", each.trust)
    terminal.answers().print(table)
