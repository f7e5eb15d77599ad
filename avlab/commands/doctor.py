"""`avlab doctor`: will adaptive verification start there, and will it pay, before the weights are loaded."""

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from avlab.commands import terminal
from avlab.commands.options import Json
from avlab.commands.vllm import with_arguments
from avlab.config import ConfigError
from avlab.vllm import SERVED
from avlab.vllm.doctor import Finding, Traffic
from avlab.vllm.doctor.command import examine_line
from avlab.vllm.doctor.look import installed_version
from avlab.vllm.doctor.machines import machine_for
from avlab.vllm.doctor.matrix import GPUS, matrix
from avlab.vllm.doctor.running import examine_running
from avlab.vllm.launch import Launch, launch
from avlab.vllm.launch_files import launches_in
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
    show_matrix: Annotated[
        bool,
        typer.Option("--matrix", help="Every model that ships with the doctor, on each generation of GPUs."),
    ] = False,
    engine: Annotated[str, typer.Option("--engine", help="What is examined: vllm.")] = "vllm",
    preset_name: Annotated[
        str | None, typer.Option("--preset", help="A published system: `avlab vllm presets`.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            help="A script, a compose file, a manifest, a systemd unit or a Dockerfile that starts vLLM.",
            dir_okay=False,
        ),
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

    avlab doctor --preset muse-glimmer-dflash2 --gpu h100, or avlab doctor -- vllm serve MODEL ... (docker run ... too),
    or avlab doctor --file compose.yaml, or avlab doctor --url http://HOST:8000. The exit code is 1 where something
    refuses.
    """
    if engine != "vllm":
        raise ConfigError([f"engine is {engine!r}; only vllm can be examined."])
    given = [name for name, value in (
        ("--preset", preset_name), ("--url", url), ("--file", file), ("--matrix", show_matrix or None),
    ) if value is not None]  # fmt: skip
    if len(given) > 1:
        raise ConfigError([f"{' and '.join(given)} examine different things: give one of them."])
    if show_matrix:
        _show_matrix(command or [], gpu, version, as_json)
        return
    traffic = Traffic(dataset, temperature, tuple(filter(None, sampling.split(","))), concurrency)
    if url is not None:
        if command:
            raise ConfigError(["--url examines a running server; give no command beside it."])
        found = [Examined("", "", examine_running(_server(url, key_variable, ca_file), traffic))]
    else:
        asked = _launches(preset_name, command or [], file)
        known = preset(preset_name).model_type if preset_name else ""
        found = []
        for each in asked:
            named = None if capability else gpu or each.gpu or None
            machine = machine_for(named, gpus or each.gpus, memory_gib, capability)
            taken = version or each.version or installed_version() or SERVED
            line = each.line if each.contained else _inheriting(each.line)
            findings = examine_line(line, machine, taken, traffic, known, weights_gib)
            found.append(Examined(each.name, f"vLLM {taken} on {machine.described}", findings))
    _show(found, as_json)
    if any(finding.verdict == "refuses" for each in found for finding in each.findings):
        raise typer.Exit(1)


@dataclass(frozen=True)
class Examined:
    """One server's findings. name: of its service or container; where: version and machine that they are for."""

    name: str
    where: str
    findings: list[Finding]


def _launches(preset_name: str | None, command: list[str], file: Path | None) -> list[Launch]:
    """The commands to examine: a preset's, one behind --, those of a file."""
    if file is None and len(command) == 1 and command[0].endswith((".yaml", ".yml", ".sh")):
        file, command = Path(command[0]), []
    if file is not None:
        if command:
            raise ConfigError(["--file holds the command; give none beside it."])
        return launches_in(file)
    if preset_name is None and not command:
        raise ConfigError(
            [
                "Say what to examine: --preset NAME, --file FILE, --url URL, or -- vllm serve MODEL and its arguments."
            ]
        )
    if preset_name:
        return [Launch(with_arguments(preset(preset_name).line, command))]
    return [launch(command)]


def _inheriting(line: ServeLine) -> ServeLine:
    """The command with the variables that vLLM would inherit from this environment."""
    inherited = {
        name: value for name, value in os.environ.items() if name.startswith("VLLM_") and "KEY" not in name
    }
    return replace(line, environment=inherited | dict(line.environment))


def _server(url: str, key_variable: str, ca_file: str | None) -> Server:
    try:
        return Server(base_url(url), key_variable, ca_file)
    except ValueError as error:
        raise ConfigError([str(error)]) from None


def _show(found: list[Examined], as_json: bool) -> None:
    if as_json:
        told = [
            {"name": each.name, "for": each.where, "findings": [asdict(f) for f in each.findings]}
            for each in found
        ]
        terminal.print_json({"findings": told[0]["findings"], "servers": told})
        return
    out = terminal.answers()
    for each in found:
        if each.name:
            out.print(each.name, style="bold")
        if each.where:
            out.print(f"For {each.where}.")
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
        for finding in each.findings:
            words = finding.reason if not finding.remedy else f"{finding.reason}\n→ {finding.remedy}"
            table.add_row(WORDS[finding.verdict], finding.gate, Text(words))
        out.print(table)
        count = sum(finding.verdict == "refuses" for finding in each.findings)
        out.print(f"{count} of {len(each.findings)} would refuse." if count else "Nothing here refuses.")


def _show_matrix(models: list[str], gpu: str | None, version: str | None, as_json: bool) -> None:
    """A row a model, a column a GPU. Models may be named behind --."""
    gpus = tuple(gpu.split(",")) if gpu else GPUS
    cells = matrix(models, gpus, version or SERVED)
    if as_json:
        terminal.print_json({"version": version or SERVED, "cells": [asdict(each) for each in cells]})
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for column in ("model", *gpus):
        table.add_column(column)
    by_model: dict[str, list[str]] = {}
    for each in cells:
        by_model.setdefault(each.model, []).append(each.short)
    for model, verdicts in by_model.items():
        table.add_row(model, *verdicts)
    out = terminal.answers()
    out.print(f"Adaptive verification under vLLM {version or SERVED}, with its defaults.")
    out.print(table)
    out.print("Reasons and remedies: --json, or `avlab doctor --gpu GPU -- vllm serve MODEL ...`.")
