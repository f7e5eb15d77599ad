"""`avlab trace parametric`: a trace from acceptance rates by position alone."""

from pathlib import Path
from typing import Annotated

import typer

from avlab.commands import terminal
from avlab.commands.options import Json
from avlab.config import ConfigError

LARGEST_METRICS = 64 << 20  # bytes of a saved page


def parametric_trace(
    file: Annotated[Path, typer.Argument(help="A new Parquet file.")],
    rates: Annotated[
        str | None,
        typer.Option(
            "--rates", help="Chances of acceptance given all before, by position, such as 0.8,0.7,0.6."
        ),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option("--profile", help="A speculation_profile.json, as Model Optimizer writes it."),
    ] = None,
    metrics: Annotated[
        str | None, typer.Option("--metrics", help="A vLLM server's address, or its saved page /metrics.")
    ] = None,
    auc: Annotated[
        float, typer.Option("--auc", help="How well the feature ranks at each position, 0.5 to below 1.")
    ] = 0.8,
    correlation: Annotated[
        float, typer.Option("--correlation", help="How alike a request's slots are, 0 to below 1.")
    ] = 0.0,
    texts: Annotated[int, typer.Option("--texts", help="Texts to draw.")] = 200,
    tokens: Annotated[int, typer.Option("--tokens", help="Output tokens of each.")] = 256,
    prompt_tokens: Annotated[int, typer.Option("--prompt-tokens", help="Prompt tokens of each.")] = 256,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of all that is drawn.")] = 0,
    as_json: Json = False,
) -> None:
    """Draw a trace that has these acceptance rates by position and this AUC: no text, no draft, and it says so."""
    from avlab.replay.parametric import Acceptance, parametric
    from avlab.replay.trace import write_trace

    given = [each for each in (rates, profile, metrics) if each is not None]
    if len(given) != 1:
        raise ConfigError(["Rates come from one of --rates, --profile and --metrics: give one of them."])
    by_position, source = _rates(rates, profile, metrics)
    trace = parametric(Acceptance(by_position, auc, correlation, source), texts, tokens, prompt_tokens, seed)
    path = file.expanduser().absolute()
    write_trace(trace, path)
    if as_json:
        counts = {"texts": trace.texts, "anchors": trace.anchors, "bytes": path.stat().st_size}
        terminal.print_json(
            {"file": str(path), "rates": by_position, "tokens_per_step": trace.tokens_per_step()} | counts
        )
        return
    terminal.answers().print(
        f"{path}: {trace.about.text()}; {trace.size()}, "
        f"{trace.tokens_per_step():.2f} tokens a step where all drafts are verified.",
        soft_wrap=True,
    )


def _rates(rates: str | None, profile: Path | None, metrics: str | None) -> tuple[tuple[float, ...], str]:
    """Rates by position and where they are from. Raises ConfigError, TraceError, or an error of the server."""
    from avlab.replay.rates import of_profile

    if profile is not None:
        return of_profile(profile.expanduser())
    if rates is not None:
        return typed_rates(rates), "rates as given"
    assert metrics is not None
    return _measured(metrics)


def typed_rates(text: str) -> tuple[float, ...]:
    """Rates with commas between. Raises ConfigError."""
    try:
        return tuple(float(each) for each in text.split(","))
    except ValueError:
        raise ConfigError(["--rates needs numbers with commas between, such as 0.8,0.7,0.6."]) from None


def _measured(metrics: str) -> tuple[tuple[float, ...], str]:
    """Rates since a vLLM server started: of its counters, all engines together."""
    from avlab.replay.about import TraceError
    from avlab.replay.parametric import conditional
    from avlab.vllm.metrics import read, total
    from avlab.vllm.server import Server, base_url

    path = Path(metrics).expanduser()
    if path.is_file():
        if path.stat().st_size > LARGEST_METRICS:
            raise TraceError(f"{path} holds more than {LARGEST_METRICS:,} bytes: that is no page of metrics.")
        text, source = path.read_text(errors="replace"), f"rates of {path.name[:60]}"
    else:
        try:
            address = base_url(metrics)
        except ValueError as error:
            raise ConfigError([str(error)]) from None
        text, source = Server(address).metrics(), f"rates of {address[:60]}"
    counters = total(list(read(text).engines.values()))
    if not counters.drafts or not counters.accepted_by_position:
        raise TraceError(
            "The server has counted no drafts yet: let it serve with speculation, and ask again."
        )
    return conditional([count / counters.drafts for count in counters.accepted_by_position]), source
