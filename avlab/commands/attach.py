"""`avlab attach`: watch a vLLM server that somebody else started, and record it as a run."""

import re
import time
from datetime import datetime
from typing import Annotated

import typer
from rich.table import Table
from typer.models import OptionInfo

from avlab.commands import terminal
from avlab.commands.following import Answer, serve
from avlab.commands.options import Json, duration_of, flag_of, plain_settings
from avlab.config import ConfigError, default_database
from avlab.formats import number
from avlab.vllm.attach_config import AttachConfig
from avlab.vllm.unknown import cannot_know

FIELDS = AttachConfig.model_fields


def _option(name: str) -> OptionInfo:
    found: OptionInfo = typer.Option(flag_of(name), help=FIELDS[name].description)
    return found


def attach(
    urls: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[URL]...",
            help="A server, as http://HOST:PORT, or several side by side; none where --telemetry alone is read.",
        ),
    ] = None,
    model: Annotated[str | None, _option("model")] = None,
    engine: Annotated[str | None, _option("engine")] = None,
    interval: Annotated[float, _option("interval")] = 1.0,
    verification: Annotated[str, _option("verification")] = "ask",
    telemetry: Annotated[str | None, _option("telemetry")] = None,
    key_variable: Annotated[str, _option("key_variable")] = "",
    ca_file: Annotated[str | None, _option("ca_file")] = None,
    timeout: Annotated[float, _option("timeout")] = 5.0,
    patience: Annotated[float, _option("patience")] = 60.0,
    wait: Annotated[float, _option("wait")] = 0.0,
    duration: Annotated[str | None, _option("duration")] = None,
    tokens: Annotated[int | None, _option("tokens")] = None,
    requests: Annotated[int | None, _option("requests")] = None,
    prometheus: Annotated[
        str | None, typer.Option("--prometheus", help="Read the past from this Prometheus server instead.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--from", help="With --prometheus: as 2026-01-31T14:00, or 2h for two hours ago."),
    ] = None,
    until: Annotated[str, typer.Option("--to", help="With --prometheus, as --from.")] = "now",
    step: Annotated[float, _option("step")] = 15.0,
    selector: Annotated[str, _option("selector")] = "",
    database: Annotated[str | None, _option("database")] = None,
    as_json: Json = False,
) -> None:
    """Watch vLLM servers that somebody else started: their counters, interval by interval, until Ctrl-C.

    Several servers are one run, engine by engine. Nothing is changed there. What counters cannot tell is said: under
    adaptive verification trimming looks like rejection in them.
    """
    urls = urls or []
    if prometheus is None and not urls and not telemetry:
        raise ConfigError(
            ["Give the address of a server, of a Prometheus server with --prometheus, or --telemetry FOLDER."]
        )
    if prometheus is not None and urls:
        raise ConfigError(["Give the address of a server, or of a Prometheus server with --prometheus."])
    if prometheus is not None and since is None:
        raise ConfigError(["--prometheus needs --from, as 2026-01-31T14:00, or 2h for two hours ago."])
    url, *others = [prometheus] if prometheus is not None else urls or [""]
    given = {
        "url": url, "others": others, "history": prometheus is not None, "step": step, "selector": selector,
        "since": moment_of(since) if prometheus is not None and since else None,
        "until": moment_of(until) if prometheus is not None else None,
        "model": model, "engine": engine, "interval": interval,
        "verification": verification, "telemetry": telemetry,
        "key_variable": key_variable, "ca_file": ca_file, "timeout": timeout, "patience": patience, "wait": wait,
        "duration": duration_of(duration), "tokens": tokens,
        "requests": requests, "database": database if database is not None else str(default_database()),
    }  # fmt: skip
    serve(AttachConfig.make(plain_settings(given)), as_json, show_watched)


def moment_of(text: str) -> float:
    """Seconds since the epoch, of "now", a time ago (90s, 30m, 2h, 7d), such seconds, or a time in ISO 8601, which is
    local where it names no zone. Raises ConfigError.
    """
    text = text.strip()
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text):
        return time.time() - float(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]
    try:
        if text == "now":
            return time.time()
        return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ConfigError(
            [f"{text[:40]!r} is no time: write 2026-01-31T14:00, or 2h for two hours ago."]
        ) from None


def show_watched(summary: Answer) -> None:
    """A watched server's run on standard output: rates, engines, acceptance by position, what is not told."""
    console = terminal.answers()
    reason = f" ({summary['reason']})" if summary.get("reason") not in (None, "done", "stopped") else ""
    head = Table(show_header=False, box=None, pad_edge=False)
    watched = summary["watched"] or {}
    for name, value in (
        ("run", f"{summary['run_id']}, {summary['state']}{reason}"),
        ("server", summary["server"] or "–"),
        ("model", f"{summary['target']}, drafter {summary['drafter'] or 'none'}, K = {summary['K']}"),
        ("throughput", f"{number(summary['tokens_per_s'], 1)} tokens/s"),
        ("tokens per step", number(summary["tokens_per_step"])),
        (
            "first token",
            f"{number(watched.get('first_token_ms'), 0)} ms, mean{_percentiles(watched, 'first_token')}",
        ),
        (
            "later outputs",
            f"{number(watched.get('later_output_ms'), 1)} ms apart, mean{_percentiles(watched, 'between_outputs')}",
        ),
        ("whole requests", _percentiles(watched, "request").removeprefix("; ") or "–"),
        ("engine steps", f"{number(watched.get('engine_steps_per_s'), 1)} a second and engine"),
        ("requests ended", number(watched.get("finished"), 0)),
        ("accepted / scheduled", number(watched.get("accepted_per_scheduled"))),
        ("tokens per draft", number(watched.get("tokens_per_draft"))),
        ("accepted by position", " ".join(number(each) for each in watched.get("positions", ())) or "–"),
    ):
        head.add_row(name, value)
    console.print(head)
    terminal.say_stuck(summary)
    engines = watched.get("engines", ())
    if len(engines) > 1:
        console.print(_engines(engines))
    if not summary["extension"]:
        speculates = bool(summary["K"])
        for sentence in cannot_know(summary["adaptive"], speculates, summary["told"], summary["unread"]):
            console.print(sentence, soft_wrap=True)
    for event in summary["events"]:
        if event["level"] != "info":
            console.print(f"{event['level']}: {event['text']}")


def _percentiles(watched: Answer, name: str) -> str:
    """What the server's histogram says, behind the mean; "" without one."""
    found = watched.get("percentiles", {}).get(name, {})
    known = [
        f"{each} {number(found[f'{each}_ms'], 1)}"
        for each in ("p50", "p95", "p99")
        if found.get(f"{each}_ms")
    ]
    if not known:
        return ""
    beyond = found["beyond_ms"]
    more = f" (its buckets end at {number(beyond, 0)} ms: what is there lies above)" if beyond else ""
    return f"; {', '.join(known)} ms{more}"


def _engines(engines: list[Answer]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("engine", "tokens/s", "outputs", "drafts", "accepted / scheduled"):
        table.add_column(name, justify="right")
    for each in engines:
        scheduled = each["draft_tokens"]
        table.add_row(
            each["engine"],
            number(each["tokens"] / each["seconds"], 1),
            number(each["outputs"], 0),
            number(each["drafts"], 0),
            number(each["accepted"] / scheduled if scheduled else None),
        )
    return table
