"""A dashboard in a process of its own, over a database of its own, to be measured or tested."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from avlab.bench.base import NotMeasured
from avlab.commands.serve import APP, server_command
from avlab.installation import PROJECT

PATIENCE = 300.0  # seconds; machines of tests are busy ones


class Dashboard:
    """The server of `avlab serve`, or of another script, on a free port. Use as a context manager.

    began: when it was started, on the monotonic clock. Raises RuntimeError, with the server's log, when it ends at once
    or does not answer.
    """

    def __init__(self, folder: Path, script: Path = APP, **environment: str):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.log, self.database = folder / "dashboard.log", folder / "lab.duckdb"
        values = {"AVLAB_DATABASE": str(self.database), "PYTHONPATH": str(PROJECT), "AVLAB_STORY": "no"}
        values |= environment
        command = server_command(self.port, script=script)
        command += ["--server.headless", "true", "--server.fileWatcherType", "none"]
        self.began = time.monotonic()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=PROJECT, env=os.environ | values, stdout=log, stderr=log, start_new_session=True
            )

    def __enter__(self) -> "Dashboard":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait(self) -> "Dashboard":
        """Until it answers."""
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=5).close()
                return self
            except OSError:
                if self.process.poll() is not None or time.monotonic() - self.began > PATIENCE:
                    raise RuntimeError(self.log.read_text()) from None
                time.sleep(0.02)

    def workers(self) -> list[psutil.Process]:
        """Processes that it started and that are alive."""
        found = []
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.status() != psutil.STATUS_ZOMBIE:
                    found.append(child)
        return found

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it in good order. Ctrl-C's SIGINT does the same, but jobs in the background may have to ignore it."""
        if self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(PATIENCE)


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser of playwright's. Raises NotMeasured where there is none."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise NotMeasured("playwright is missing: pip install -r requirements-dev.txt.") from None
    if path is None:
        raise NotMeasured("there is no Chromium here: apt-get install chromium.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()
