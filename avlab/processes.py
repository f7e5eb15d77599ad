"""Processes: what a worker's threads are, and how a process and all that it started are ended for certain."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from avlab.installation import IN_CHECKOUT, PROJECT, import_path

LOG_LINES = 40
RUN_VARIABLE = "AVLAB_RUN"  # marks a worker and all that it starts


def usable_cores() -> int:
    """Physical cores that this process may use, by the machine, its affinity and its container."""
    cores = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = min(cores, len(os.sched_getaffinity(0)))
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            cores = min(cores, max(1, round(int(quota) / int(period))))
    return cores


def worker_environment(
    threads: int | None,
    spin: int,
    other_environment: bool = False,
    inherited: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment variables a worker starts with. OpenMP reads threads and waiting when it is loaded, so not later.

    threads: None for OMP_NUM_THREADS where it is set, else one a physical core. spin: GOMP_SPINCOUNT; 0 for threads
    that sleep. other_environment: the worker's interpreter is not this one. inherited: else this process's variables.
    PYTHONPATH: so that a worker runs this very code, from any folder and in another environment; an installed package
    is found without it.
    """
    environment = dict(os.environ if inherited is None else inherited)
    set_outside = environment.get("OMP_NUM_THREADS", "")
    number = threads or (int(set_outside) if set_outside.isdigit() else 0) or usable_cores()
    environment.update(
        OMP_NUM_THREADS=str(number),
        MKL_NUM_THREADS=str(number),
        GOMP_SPINCOUNT=str(spin),
        TOKENIZERS_PARALLELISM="false",
        PYTHONUNBUFFERED="1",
    )
    if IN_CHECKOUT or other_environment:
        paths = [str(import_path()), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    environment.pop("OMP_WAIT_POLICY", None)
    if spin == 0:
        environment["OMP_WAIT_POLICY"] = "PASSIVE"
    return environment


def start_child(module: str, environment: Mapping[str, str], log: Path) -> subprocess.Popen[str]:
    """`python -m module` in a session of its own, spoken to in lines; its messages go to `log`."""
    with log.open("wb") as messages:
        return subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
            text=True,
            cwd=PROJECT,
            env=environment,
            start_new_session=True,
        )


def members(pid: int) -> list[psutil.Process]:
    """A process's descendants and whatever else is in the session that it leads."""
    found: dict[int, psutil.Process] = {}
    with contextlib.suppress(psutil.Error):
        found = {child.pid: child for child in psutil.Process(pid).children(recursive=True)}
    for other in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):
            if other != pid and os.getsid(other) == pid:
                found[other] = psutil.Process(other)
    return list(found.values())


def end_tree(pid: int, grace: float = 3.0) -> None:
    """End a session leader and all that it started: SIGTERM, `grace` seconds, SIGKILL to whoever is left."""
    others = members(pid)
    with contextlib.suppress(psutil.Error):
        leader = psutil.Process(pid)
        leader.terminate()
        with contextlib.suppress(psutil.TimeoutExpired):
            leader.wait(grace)
        others.append(leader)
    sweep(pid, others)


def sweep(pid: int, known: list[psutil.Process]) -> None:
    """Kill these processes and what is left of the session that `pid` leads, or led."""
    for _ in range(3):  # again for those that were being started meanwhile
        rest = members(pid)
        if rest:  # a group with members keeps its number, so nobody else's is hit
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
        left = [process for process in {*known, *rest} if process.is_running()]
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        if not left:
            return
        psutil.wait_procs(left, timeout=2)


def end_children() -> None:
    """Kill everything that this process has started, and what its dead children have left in the session that it leads;
    for a worker about to end.
    """
    for _ in range(3):  # again for those that were being started meanwhile
        left = [process for process in members(os.getpid()) if _lives(process)]
        if not left:
            return
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=2)


def _lives(process: psutil.Process) -> bool:
    """Whether it runs; one that only waits to be collected does not."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def tail(log: Path) -> list[str]:
    """The last lines of a log that are not empty."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 20_000))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [line for line in lines if line.strip()][-LOG_LINES:]
