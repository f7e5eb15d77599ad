"""`avlab serve`: the dashboard, from any folder."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from avlab.commands.asking import path_of
from avlab.commands.options import Database

ADDRESS, PORT = "127.0.0.1", 8501
# A folder of its own: Streamlit puts it first on the import path, where avlab's modules would hide others (`vllm`).
APP = Path(__file__).parents[1] / "dashboard" / "app.py"


def server_command(port: int = PORT, address: str = ADDRESS, script: Path = APP) -> list[str]:
    """The command that serves the dashboard. What else Streamlit is told stands beside the script, in .streamlit."""
    options = ["--server.port", str(port), "--server.address", address]
    return [sys.executable, "-m", "streamlit", "run", str(script), *options]


def serve(
    port: Annotated[int, typer.Option("--port", help="Port of the page.", min=1, max=65535)] = PORT,
    address: Annotated[
        str, typer.Option("--address", help="Where to listen; whoever reaches it can use the lab.")
    ] = ADDRESS,
    database: Database = None,
) -> None:
    """Open the dashboard, with a lab of its own, until Ctrl-C."""
    command = server_command(port, address)
    environment = os.environ | {"AVLAB_DATABASE": str(path_of(database))}
    os.execve(command[0], command, environment)  # Ctrl-C reaches the server itself, which ends its worker
