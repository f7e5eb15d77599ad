"""`avlab sidecar`: Prometheus metrics of what a vLLM server's worker writes beside it."""

import shutil
import signal
import threading
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import generate_latest, start_http_server
from prometheus_client.registry import CollectorRegistry

from avlab.commands import terminal
from avlab.config import ConfigError
from avlab.vllm.ring import RingError, ring_files
from avlab.vllm.sidecar import FILES, FOLDER
from avlab.vllm.sidecar.exporter import Exporter

ADDRESS, PORT = "127.0.0.1", 9478  # a port that Prometheus's list of exporters does not give to anybody
LOOK_SECONDS = 5.0


def sidecar(
    telemetry: Annotated[
        Path | None,
        typer.Option("--telemetry", help="The folder of the server's AVLAB_TELEMETRY, or one file there."),
    ] = None,
    port: Annotated[int, typer.Option("--port", help="Port of /metrics.", min=1, max=65535)] = PORT,
    address: Annotated[
        str, typer.Option("--address", help="Where to listen; whoever reaches it can read.")
    ] = ADDRESS,
    once: Annotated[bool, typer.Option("--once", help="Print the metrics once, and end.")] = False,
    write_dashboard: Annotated[
        Path | None,
        typer.Option(
            "--write-dashboard", help="Write Grafana's dashboard and Prometheus's alert rules there, and end."
        ),
    ] = None,
) -> None:
    """Serve Prometheus metrics of adaptive verification from a vLLM server's telemetry, until Ctrl-C."""
    if write_dashboard is not None:
        _write(write_dashboard)
        return
    if telemetry is None:
        raise ConfigError(["--telemetry is missing: name the folder of the server's AVLAB_TELEMETRY."])
    exporter = Exporter(telemetry)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(exporter)
    if once:
        ring_files(telemetry)  # its sentence is the answer where there is none
        text = generate_latest(registry).decode()
        if not text:
            raise RingError(" ".join(sorted(exporter.said)))
        typer.echo(text, nl=False)
        return
    try:
        server, thread = start_http_server(port, address, registry)
    except OSError as error:
        raise ConfigError(
            [f"{address}:{port} cannot be listened at ({error.strerror}): choose another --port."]
        ) from None
    terminal.errors().print(
        f"http://{address}:{port}/metrics serves {telemetry} until Ctrl-C.", soft_wrap=True
    )
    end, said = threading.Event(), set[str]()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: end.set())
    while True:
        for sentence in sorted(exporter.said - said):
            terminal.errors().print(sentence, soft_wrap=True)
        said |= exporter.said
        if end.wait(LOOK_SECONDS):
            break
    server.shutdown()
    thread.join()


def _write(folder: Path) -> None:
    """The files for Grafana and Prometheus. Raises ConfigError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            shutil.copyfile(FOLDER / name, folder / name)
    except OSError as error:
        raise ConfigError([f"{folder} cannot be written ({error.strerror})."]) from None
    for name in FILES:
        typer.echo(folder / name)
