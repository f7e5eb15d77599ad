"""A dashboard of its own in a process of its own, and Debian's Chromium to look at it with."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest

PROJECT = Path(__file__).parents[2]
STAND_IN = PROJECT / "tests" / "browser" / "stand_in_app.py"
PATIENCE = 300  # seconds; machines of tests are busy ones


class Dashboard:
    """`streamlit run app.py` on a free port over a database of its own."""

    def __init__(self, folder: Path, script: Path):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / "dashboard.log"
        environment = os.environ | {"AVLAB_DATABASE": str(folder / "lab.duckdb"), "PYTHONPATH": str(PROJECT)}
        command = [sys.executable, "-m", "streamlit", "run", str(script), "--server.port", str(self.port)]
        command += ["--server.headless", "true", "--server.fileWatcherType", "none"]
        began = time.monotonic()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=PROJECT, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        self._wait()
        self.seconds_to_start = time.monotonic() - began

    def _wait(self) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=5)
                return
            except OSError:
                assert self.process.poll() is None and time.monotonic() < end, self.log.read_text()
                time.sleep(0.1)

    def workers(self) -> list[psutil.Process]:
        """Worker processes of this dashboard that are alive."""
        found = []
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.status() != psutil.STATUS_ZOMBIE:
                    found.append(child)
        return found

    def stop(self, number: int = signal.SIGINT) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(PATIENCE)


@pytest.fixture
def dashboard(tmp_path):
    found = Dashboard(tmp_path, STAND_IN)
    yield found
    found.stop()


@pytest.fixture
def real_dashboard(tmp_path):
    found = Dashboard(tmp_path, PROJECT / "app.py")
    yield found
    found.stop()


@pytest.fixture(scope="session")
def chromium():
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("there is no Chromium here: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium):
    context = chromium.new_context(viewport={"width": 1280, "height": 1000})
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE * 1000)
    yield opened
    context.close()
