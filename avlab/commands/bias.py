"""`avlab bias`: when trimming bends the output, exactly, by sampling and on the engine."""

import math
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from avlab.bias.cases import Bias, bias, check_pair, distribution, parse_distribution, sampled_bias
from avlab.bias.grammar import CaseError, parse_rule
from avlab.commands import terminal
from avlab.commands.audit import audit, text
from avlab.commands.options import Json

app = typer.Typer(
    help="When trimming biases the output: exactly, by sampling, and on the engine.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Normalise = Annotated[bool, typer.Option("--normalise", help="Scale probabilities that do not sum to one.")]
MOST_DRAWS = 100_000_000  # minutes
WAYS_OUT = {"normalise": " (Add --normalise.)", "sample": " (Add --sample 200000.)"}


@app.command("two-token")
def two_token(
    target: Annotated[float, typer.Option("--target", help="Target's probability of the first token.")] = 0.5,
    draft: Annotated[float, typer.Option("--draft", help="Draft's probability of the first token.")] = 0.2,
    rule: Annotated[str, typer.Option("--rule", help="As in `avlab bias exact`.")] = "drawn:0.5",
    as_json: Json = False,
) -> None:
    """Two tokens, and a draft that is verified only if its own probability is high: the article's example."""
    _show(bias(_two(target, "target"), _two(draft, "draft"), parse_rule(rule)), as_json)


def _two(chance: float, name: str) -> np.ndarray:
    """A distribution over two tokens."""
    if not 0 <= chance <= 1:
        raise CaseError(f"--{name} is {chance:g}: give a probability, from 0 to 1.")
    return distribution((chance, 1 - chance), name)


@app.command()
def exact(
    target: Annotated[str, typer.Option("--target", help="Probabilities of the target's next token.")],
    draft: Annotated[
        str, typer.Option("--draft", help="Draft probabilities that the draft token is sampled from.")
    ],
    rule: Annotated[
        str,
        typer.Option(
            "--rule",
            help="drawn:t, maximum:t, entropy:t, margin:t, head-drawn:t, head-prefix:t (t from 0 to 1, or chance), "
            "random:share, all, none",
        ),
    ] = "drawn:0.5",
    K: Annotated[int, typer.Option("--K", min=1, help="Draft positions, the same row at each.")] = 1,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="Output tokens looked at together.")] = 1,
    sample: Annotated[
        int,
        typer.Option(
            "--sample", min=0, max=MOST_DRAWS, help="Sample this many outputs instead of enumerating them."
        ),
    ] = 0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the sampled outputs.")] = 0,
    normalise: Normalise = False,
    as_json: Json = False,
) -> None:
    """The output for any target and draft row under a rule, and how many outputs an auditor needs to notice a bias."""
    named = parse_rule(rule)
    try:
        p, q = parse_distribution(target, "target", normalise), parse_distribution(draft, "draft", normalise)
        check_pair(p, q)
        drawn = sample and sampled_bias(p, q, named, sample, seed, K, tokens)
        found = drawn or bias(p, q, named, K, tokens)
    except CaseError as error:
        raise CaseError(f"{error}{WAYS_OUT.get(error.way_out, '')}") from None
    _show(found, as_json)


app.command()(audit)
app.command()(text)


def _show(found: Bias, as_json: bool) -> None:
    if as_json:
        terminal.print_json(found.as_json())
        return
    V = len(found.draft)
    length = round(math.log(len(found.target)) / math.log(V))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in (
        "token" if length == 1 else "tokens",
        "target",
        *(["draft"] if length == 1 else []),
        "output",
        "change",
    ):
        table.add_column(name, justify="right")
    order = sorted(range(len(found.target)), key=lambda x: -abs(found.output[x] - found.target[x]))
    shown = sorted(order[:SHOWN]) if len(order) > SHOWN else range(len(order))
    for x in shown:
        p, o = found.target[x], found.output[x]
        drafted = [f"{found.draft[x]:.4f}"] if length == 1 else []
        table.add_row(name_of(x, V, length), f"{p:.4f}", *drafted, f"{o:.4f}", f"{o - p:+.4f}")
    console = terminal.answers()
    console.print(table)
    if len(order) > SHOWN:
        console.print(f"(the {SHOWN} outputs that changed most, of {len(order):,})")
    console.print(_verdict(found), soft_wrap=True)


SHOWN = 16  # rows of a table


def _verdict(found: Bias) -> str:
    said = f"{found.rule}: total variation {found.total_variation:.4g}"
    if found.fit:
        test = f"G-test on {found.fit.cells} cells: p = {found.fit.p_value:.3g}"
        draws = "draw" if found.fit.outputs == 1 else "draws"
        there, alone = found.fit.total_variation, found.fit.noise_floor
        return (
            f"{found.rule}, {found.fit.outputs:,} {draws}: {test}; total variation on them {there:.4g}, from "
            f"sampling alone {alone:.4g}."
        )
    if math.isinf(found.sample_size):
        why = "" if found.sound else " here, though this rule looks at the drawn token and bends other cases"
        return f"{said}; the output is the target's{why}."
    return f"{said}; UNSOUND: an auditor needs {found.sample_size:,.0f} outputs to notice (1 % level, power 90 %)."


def name_of(number: int, V: int, length: int) -> str:
    """An output as letters, or numbers where there are more tokens than letters."""
    digits = [number // V**k % V for k in reversed(range(length))]
    return "".join(chr(97 + x) for x in digits) if V <= 26 else " ".join(map(str, digits))
