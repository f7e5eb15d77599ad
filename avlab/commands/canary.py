"""`avlab canary`: two vLLM servers that somebody else started, control and candidate, compared round by round."""

import secrets
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from avlab.commands import terminal
from avlab.commands.options import Json
from avlab.config import ConfigError
from avlab.formats import number
from avlab.vllm.load import ClosedLoop, Prompts
from avlab.vllm.server import Server, base_url
from avlab.vllm.watched import Watched, names_of

if TYPE_CHECKING:
    from avlab.experiments.answers import Comparison
    from avlab.experiments.canary import Canary, Pair


def canary(
    control: Annotated[str, typer.Argument(help="The server that serves as before, as http://HOST:PORT.")],
    candidate: Annotated[str, typer.Argument(help="The server that is on trial.")],
    load: Annotated[
        int,
        typer.Option(
            "--load", min=0, max=1024, help="Serve so many requests at once ourselves; 0 only watches."
        ),
    ] = 0,
    measure: Annotated[
        str, typer.Option("--measure", help="Watching: interactivity, throughput or first-token.")
    ] = "interactivity",
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, max=100000, help="Rounds of both that count.")
    ] = 30,
    block: Annotated[float, typer.Option("--block", min=0.5, max=3600, help="Seconds of a block.")] = 10.0,
    model: Annotated[
        str | None, typer.Option("--model", help="Whose numbers, where a server serves several models.")
    ] = None,
    workload: Annotated[str, typer.Option("--workload", help="With --load: kind of prompts.")] = "mixed",
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", min=1, max=1 << 20, help="With --load: most of an answer.")
    ] = 128,
    temperature: Annotated[float, typer.Option("--temperature", min=0.0, help="With --load.")] = 0.0,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Of prompts and of the order; else drawn, and told.")
    ] = None,
    key_variable: Annotated[
        str, typer.Option("--key-variable", help="Environment variable that holds the servers' key.")
    ] = "",
    ca_file: Annotated[
        str | None, typer.Option("--ca-file", help="Certificates to trust for https, beside the system's.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, max=600, help="Seconds for each answer.")
    ] = 30.0,
    as_json: Json = False,
) -> None:
    """Compare two servers, a canary against its control, with an interval that may be watched at every round.

    With --load each round serves both in an order drawn at random, with the same prompts, and nobody else should use
    them meanwhile. Without, the counters of both are watched under somebody's traffic, and what that cannot tell is
    said. Ctrl-C ends it with what is known.
    """
    from avlab.experiments.canary import MEASURES, Canary, Watching, loaded, sentences
    from avlab.experiments.statistics import least_rounds

    if measure not in MEASURES:
        raise ConfigError([f"measure is {measure!r}; it must be {', '.join(MEASURES)}."])
    try:
        urls = base_url(control), base_url(candidate)
    except ValueError as error:
        raise ConfigError([str(error)]) from None
    if urls[0] == urls[1]:
        raise ConfigError(["Control and candidate have one address: give two servers."])
    seed = secrets.randbits(31) if seed is None else seed
    servers = [
        Watched(Server(url, key_variable, ca_file, timeout), name, None, model or "")
        for url, name in zip(urls, names_of(urls), strict=True)
    ]
    found = Canary("throughput" if load else measure, randomised=load > 0)
    say = terminal.errors().print

    def tell(text: str) -> None:
        found.events.append(text)
        say(text)

    watching = Watching(servers, found.measure, tell)
    watching.begin()
    pairs: Iterator[Pair]
    if load:
        prompts = Prompts(workload, seed, max_new_tokens, temperature)
        loops = [ClosedLoop(each.server, each.model, load, prompts) for each in servers]
        pairs = loaded(loops, rounds, block, seed)
    else:
        pairs = watching.rounds(rounds, block)
    if rounds < least_rounds():
        say(f"With {rounds} rounds there is no interval: at least {least_rounds()} are needed.")
    try:
        for pair in pairs:
            found.pairs.append(pair)
            if pair.rates is None:
                tell(f"Round {pair.number + 1} does not count: {pair.reason}")
            else:
                ratio = pair.rates[1] / pair.rates[0]
                say(f"round {pair.number + 1}: {ratio:.3f} in this one. {sentences(found)[0]}")
    except KeyboardInterrupt:
        say("Stopped; what is known by now:")
    answer = found.comparison()
    if as_json:
        terminal.print_json(_plain(found, answer, urls, [each.model for each in servers], load, block, seed))
        return
    _show(found, answer, urls)


def _plain(
    found: "Canary",
    answer: "Comparison",
    urls: tuple[str, str],
    models: list[str],
    load: int,
    block: float,
    seed: int,
) -> dict[str, Any]:
    from avlab.experiments.canary import MEASURES, SIDES, sentences
    from avlab.experiments.values import to_values

    return {
        **dict(zip(SIDES, urls, strict=True)),
        "models": models,
        "measure": found.measure,
        "unit": MEASURES[found.measure],
        "load": load,
        "block_s": block,
        "seed": seed,
        "randomised": found.randomised,
        "medians": found.medians(),
        "comparison": to_values(answer),
        "verdict": sentences(found),
        "caveats": list(found.caveats),
        "events": found.events,
        "rounds": [to_values(asdict(pair)) for pair in found.pairs],
    }


def _show(found: "Canary", answer: "Comparison", urls: tuple[str, str]) -> None:
    from avlab.experiments.canary import MEASURES, SIDES, sentences

    out = terminal.answers()
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("", "server", f"{MEASURES[found.measure]}, median"):
        table.add_column(name)
    for side, url in zip(SIDES, urls, strict=True):
        table.add_row(side, url, number(found.medians()[side], 2))
    out.print(table)
    fixed = ", ".join(
        "no bound" if each is None else f"{each:.3f}" for each in (answer.fixed_low, answer.fixed_high)
    )
    for sentence in (*sentences(found), f"Planned 95 %, if looked at once: {fixed}.", *found.caveats):
        out.print(sentence, soft_wrap=True)
