"""What a run was made by and on: this project's commit, the processor, installed packages. No engine."""

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from avlab.installation import IN_CHECKOUT, PROJECT


def installed(package: str) -> str | None:
    """The version of an installed package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def processor() -> str:
    """The processor's name, as the system gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def code_version() -> str:
    """The commit of this project, "-dirty" behind it where files differ; the version where it is installed."""
    if not IN_CHECKOUT:  # git would find whatever repository the environment lies in
        return installed("avlab") or "unknown"
    command = ["git", "-C", str(PROJECT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return found.stdout.strip() or "unknown"
