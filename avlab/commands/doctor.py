"""`avlab doctor`: will adaptive verification start there, and will it pay, before the weights are loaded."""

import os
from dataclasses import asdict, replace
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from avlab.commands import terminal
from avlab.commands.options import Json
from avlab.commands.vllm import with_arguments
from avlab.config import ConfigError
from avlab.vllm.doctor import Finding, Traffic
from avlab.vllm.doctor.command import examine_line
from avlab.vllm.doctor.machines import machine_for
from avlab.vllm.doctor.running import examine_running
from avlab.vllm.presets import preset
from avlab.vllm.serve_line import ServeLine
from avlab.vllm.server import Server, base_url

WORDS = {"refuses": "will not start", "warns": "take care", "unknown": "not known here", "passes": "fine"}


def doctor(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="A vllm serve command behind --, or more arguments for a preset.", metavar="[COMMAND]..."
        ),
    ] = None,
    engine: Annotated[str, typer.Option("--engine", help="What is examined: vllm.")] = "vllm",
    preset_name: Annotated[
        str | None, typer.Option("--preset", help="A published system: `avlab vllm presets`.")
    ] = None,
    url: Annotated[str | None, typer.Option("--url", help="A server that runs already.")] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", help="h100, b200, ..; else this machine's own.")] = None,
    capability: Annotated[
        str | None, typer.Option("--capability", help="An NVIDIA GPU by its compute capability: 9.0, 12.0.")
    ] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", help="How many GPUs.", min=1)] = None,
    memory_gib: Annotated[
        float | None, typer.Option("--memory-gib", help="Memory of one GPU.", min=1)
    ] = None,
    weights_gib: Annotated[
        float | None, typer.Option("--weights-gib", help="Size of the weights of target and drafter.", min=0)
    ] = None,
    version: Annotated[
        str | None, typer.Option("--version", help="Version of vLLM; else the one installed, else 0.33.0.")
    ] = None,
    dataset: Annotated[
        str, typer.Option("--dataset", help="What you will measure with, such as random.")
    ] = "",
    temperature: Annotated[
        float | None, typer.Option("--temperature", help="Sampling temperature of your requests.", min=0)
    ] = None,
    sampling: Annotated[
        str, typer.Option("--sampling", help="Parameters that your requests use, with commas.")
    ] = "",
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", help="Requests under way.", min=1)
    ] = None,
    key_variable: Annotated[
        str, typer.Option("--key-variable", help="Environment variable with the server's key.")
    ] = "",
    ca_file: Annotated[
        str | None, typer.Option("--ca-file", help="Certificates to trust, for https.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say before 100 GB of weights are loaded what vLLM would refuse, and what would start but disappoint.

    avlab doctor --preset muse-glimmer-dflash2 --gpu h100, or avlab doctor -- vllm serve MODEL ..., or avlab doctor
    --url http://HOST:8000. The exit code is 1 where something refuses.
    """
    if engine != "vllm":
        raise ConfigError([f"engine is {engine!r}; only vllm can be examined."])
    traffic = Traffic(dataset, temperature, tuple(filter(None, sampling.split(","))), concurrency)
    if url is not None:
        if command or preset_name:
            raise ConfigError(["--url examines a running server; give no command and no preset beside it."])
        findings = examine_running(_server(url, key_variable, ca_file), traffic)
    else:
        line = _line(preset_name, command or [])
        machine = machine_for(gpu, gpus, memory_gib, capability)
        known = preset(preset_name).model_type if preset_name else ""
        findings = examine_line(line, machine, version or "", traffic, known, weights_gib)
    _show(findings, as_json)
    if any(finding.verdict == "refuses" for finding in findings):
        raise typer.Exit(1)


def _line(preset_name: str | None, command: list[str]) -> ServeLine:
    """The command to examine. Variables that vLLM would inherit from this environment count too."""
    if preset_name is None and not command:
        raise ConfigError(
            ["Say what to examine: --preset NAME, --url URL, or -- vllm serve MODEL and its arguments."]
        )
    line = with_arguments(preset(preset_name).line, command) if preset_name else ServeLine.parse(command)
    inherited = {
        name: value for name, value in os.environ.items() if name.startswith("VLLM_") and "KEY" not in name
    }
    return replace(line, environment=inherited | dict(line.environment))


def _server(url: str, key_variable: str, ca_file: str | None) -> Server:
    try:
        return Server(base_url(url), key_variable, ca_file)
    except ValueError as error:
        raise ConfigError([str(error)]) from None


def _show(findings: list[Finding], as_json: bool) -> None:
    if as_json:
        terminal.print_json({"findings": [asdict(each) for each in findings]})
        return
    out = terminal.answers()
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    for finding in findings:
        told = finding.reason if not finding.remedy else f"{finding.reason}\n→ {finding.remedy}"
        table.add_row(WORDS[finding.verdict], finding.gate, Text(told))
    out.print(table)
    count = sum(finding.verdict == "refuses" for finding in findings)
    out.print(f"{count} of {len(findings)} would refuse." if count else "Nothing here refuses.")
