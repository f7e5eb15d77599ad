"""`avlab machine`: step costs by name. `show` draws a machine's table; `import` makes one of a file or of a run."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from avlab.commands import terminal
from avlab.commands.asking import answer, path_of
from avlab.commands.options import Database, Json
from avlab.files import write_new

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from avlab.machines import Machine
    from avlab.machines.imported import Imported

app = typer.Typer(
    help="Machines: step costs with a name and a source, which replays and the Budget page use.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,60}")
DEPTH = 7  # of the drafts that are shown and checked
BARS = 40  # characters of the longest bar
OWN_PREFILL = 256  # prompt tokens of a step of the lab's own engine, by default
OWN_KINDS = ("reference",)  # of worker: profiled by the lab's own engine


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A machine's name, or a TOML file.")],
    depth: Annotated[int, typer.Option("--depth", min=1, max=32, help="Of the drafts shown.")] = DEPTH,
    cached: Annotated[int, typer.Option("--cached", min=0, help="Tokens in the requests' caches.")] = 0,
    as_json: Json = False,
) -> None:
    """Draw a machine's table: the target's pass by tokens, drafts by requests, and what to know of it."""
    from avlab.machines import machine

    found = machine(name, depth)
    about = found.about
    sizes, loads = _sizes(about.most_tokens), _sizes(about.most_requests)
    passes = {size: found.milliseconds(0, 0, size, cached)[1] for size in sizes}
    drafts = {load: found.milliseconds(load, depth, 1, cached)[0] for load in loads}
    if as_json:
        plain = about.model_dump(mode="json", exclude={"draft", "verify"})
        tables = {"verify_ms": passes, "draft_ms": drafts, "depth": depth, "cached": cached}
        terminal.print_json({"name": found.name, **plain, "notes": list(found.notes), **tables})
        return
    out = terminal.answers()
    out.print(
        f"{about.title}: {about.model}, {about.gpu} × {about.gpus}, {about.engine or 'engine unknown'}."
    )
    out.print(f"Source: {about.source} ({about.trust}; {about.licence}).", soft_wrap=True)
    out.print(_bars("tokens in the target's pass", passes))
    out.print(_bars(f"requests, draft of {depth}", drafts))
    for sentence in _facts(found):
        out.print(sentence, soft_wrap=True)


def _sizes(most: int) -> list[int]:
    return [*(size for size in (2**i for i in range(20)) if size < most), most]


def _bars(title: str, costs: dict[int, float]) -> Table:
    table, largest = Table(title, "ms", ""), max(costs.values()) or 1.0
    for size, ms in costs.items():
        table.add_row(f"{size:,}", f"{ms:.3g}", "█" * round(BARS * ms / largest))
    return table


def _facts(found: "Machine") -> list[str]:
    about = found.about
    beyond = (
        f"Sizes are padded to the next captured one up to {about.captured:,} tokens; beyond it straight lines."
        if about.captured
        else "Sizes are not padded."
    )
    besides = (
        f"A step takes {about.step_ms:g} ms besides, and {about.row_ms:g} ms a row that is sampled from."
    )
    cached = f"A token in the cache adds {1e6 * (found.verify_cached_ms + found.draft_cached_ms):.3g} ns."
    most = f"At most {about.most_requests:,} requests, {about.prefill_tokens:,} prompt tokens a step."
    return [beyond, besides, *([cached] if found.knows_cached else []), most, *found.notes]


@app.command("import")
def import_(
    source: Annotated[
        str,
        typer.Argument(
            help='A JSON file of avlab, SGLang or TensorRT-LLM; or a run that timed its steps, or "last".'
        ),
    ],
    name: Annotated[str, typer.Option("--name", help="What --machine is given.")] = "this-machine",
    model: Annotated[str | None, typer.Option("--model", help="Whose costs they are.")] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", help="The GPU they were timed on.")] = None,
    gpus: Annotated[int, typer.Option("--gpus", min=1, max=10_000, help="How many of them.")] = 1,
    captured: Annotated[
        int | None, typer.Option("--captured", min=0, help="Largest size that a CUDA graph was captured for.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Write over a machine of this name.")] = False,
    database: Database = None,
    as_json: Json = False,
) -> None:
    """Make a machine of step costs: of a file, or of a run (the lab's own engine, or vLLM with the extension)."""
    from avlab.machines import FOLDER, MachineError, machine, own_folder
    from avlab.machines.imported import read_table

    if not NAME.fullmatch(name):
        raise MachineError(
            f"{name[:70]!r} is no name of a machine: use small letters, digits, dots and dashes."
        )
    if (FOLDER / f"{name}.toml").exists():
        raise MachineError(f"The machine {name} ships with avlab: give another name.")
    path = own_folder() / f"{name}.toml"
    settings: dict[str, Any]
    if Path(source).expanduser().suffix == ".json" or Path(source).expanduser().is_file():
        file = Path(source).expanduser()
        table, settings = (
            read_table(file),
            {"source": f"imported from {file.name}"[:300], "model": "unknown model"},
        )
    else:
        table, settings = _of_run(source, database)
    given: dict[str, Any] = {"model": model, "gpu": gpu, "captured": captured}
    settings |= {key: value for key, value in given.items() if value is not None}
    settings |= {"title": f"{name}: {settings['model']}'s costs"[:100], "gpus": gpus}
    _write(path, table, settings, replace)
    found = machine(str(path), DEPTH)
    if as_json:
        terminal.print_json({"file": str(path), "name": name, "notes": [*table.missing, *found.notes]})
        return
    out = terminal.answers()
    out.print(f"{path}: give it as --machine {name}.", soft_wrap=True)
    for note in (*table.missing, *found.notes):
        out.print(note, soft_wrap=True)


def _of_file(file: Path) -> dict[str, Any]:
    return {"source": f"imported from {file.name}"[:300], "model": "unknown model"}


def _of_run(run: str, database: Path | None) -> "tuple[Imported, dict[str, Any]]":
    """What a run says of its machine: a table, and settings of the machine's file."""
    from avlab.machines.imported import Imported
    from avlab.machines.in_serving import prompt_saving, rest_line, served_draft, served_verify

    def read(con: "DuckDBPyConnection") -> dict[str, Any]:
        from avlab.store import queries

        return queries.step_costs(con, queries.find_run(con, run))

    told = answer(path_of(database), "step_costs", read, run=run)
    own = told["kind"] in OWN_KINDS
    passes = [(int(t), int(p), float(ms), int(n)) for t, p, ms, n in told["passes"]]
    drafts = [(int(r), int(d), float(ms), int(n)) for r, d, ms, n in told["drafts"]]
    draft = served_draft([(int(r), int(d), float(ms)) for r, d, ms in told["draft"]], drafts)
    table = Imported(
        draft=draft or [(1, 1, 0.0)],
        verify=served_verify([(int(tokens), float(ms)) for tokens, ms in told["verify"]], passes),
        by_depth=own,
        engine="avlab" if own else "vLLM",
        missing=() if draft else ("The run drafted nothing: drafts cost nothing here.",),
    )
    rest, each = rest_line([(int(r), float(ms), int(steps)) for r, ms, steps in told["rest"]])
    config, machine = told["config"], told["machine"]
    device = machine.get("device")  # a GPU's name, where the run was on one
    processor = device if device and device != "cpu" else machine.get("processor") or "unknown"
    settings: dict[str, Any] = {
        "model": str(told["target"])[:100] or "unknown model",
        "gpu": str(processor)[:60],
        "source": f"run {run}: steps timed by {table.engine}"[:300],
        "trust": "profiled here" if own else "imported",
        "captured": int(told["captured"]),
        "step_ms": rest,
        "row_ms": each,
        "prompt_saves_ms": prompt_saving(table.verify, passes),
    }
    if own and config.get("max_num_seqs"):
        K, most = int(told["K"] or 0), int(config["max_num_seqs"])
        batched = config.get("max_num_batched_tokens")
        settings["prefill_tokens"] = int(batched) - most * (K + 1) if batched else OWN_PREFILL
    return table, settings


def _write(path: Path, table: "Imported", settings: dict[str, Any], replace: bool) -> None:
    from avlab.machines.imported import text_of

    path.parent.mkdir(parents=True, exist_ok=True)
    if replace:
        path.unlink(missing_ok=True)
    write_new(path, lambda: text_of(table, **settings))
