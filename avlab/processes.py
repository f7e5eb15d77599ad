"""Processes: what a worker's threads are, and how a process and all that it started are ended for certain."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from avlab.installation import IN_CHECKOUT, PROJECT, import_path

LOG_LINES = 40
RUN_VARIABLE = "AVLAB_RUN"  # marks a worker and all that it starts


def usable_cores() -> int:
    """Physical cores that this process may use, by the machine, its affinity and its container."""
    quota = _quota()
    cores = _cores_of_affinity()
    return cores if quota is None else min(cores, max(1, round(quota)))


def idle_cores(seconds: float = 1.0, busy: Callable[[float], list[float]] | None = None) -> int:
    """Usable cores that do little else now, at least 1. Looks for so long, or until a tenth of it says that all do.

    What else runs counts from 0.7 of a core on: the short work of a desktop holds no core. Only processors that this
    process may run on are looked at: what others do beyond its affinity or quota takes nothing. busy: asked for so
    many seconds, says how busy each processor of the machine is, in percent; psutil unless given.
    """
    usable, cores, look = usable_cores(), _cores_of_affinity(), busy or _busy
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    seen = taken = 0.0  # shares of the time, and of it times the processors
    for share in (0.1, 0.9):
        loads = look(seconds * share)
        if allowed is not None:
            loads = [load for number, load in enumerate(loads) if number in allowed] or loads
        seen, taken = seen + share, taken + share * sum(loads) / (100 * len(loads))
        idle = cores - int(cores * taken / seen + 0.3)
        if idle >= usable:
            return usable
    return max(1, idle)


def _busy(seconds: float) -> list[float]:
    return psutil.cpu_percent(interval=seconds, percpu=True)


def _cores_of_affinity() -> int:
    cores = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    return min(cores, len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else cores


def _quota() -> float | None:
    """Cores that the container may use, on control groups of version 2 or 1; None without a limit."""
    group = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError, ValueError):
        quota, period = (group / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        quota_us = int((group / "cpu/cpu.cfs_quota_us").read_text())
        return None if quota_us < 0 else quota_us / int((group / "cpu/cpu.cfs_period_us").read_text())
    return None


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
