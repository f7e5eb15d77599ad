"""Processes: what a worker's threads are, and how a process and all that it started are ended for certain."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from avlab.installation import IN_CHECKOUT, PROJECT, import_path
from avlab.kinds import Config, other_python
from avlab.vllm.serving_config import VllmConfig
from avlab.wire.sockets import FOLDER_PREFIX, is_private

LOG_LINES = 40
RUN_VARIABLE = "AVLAB_RUN"  # marks a worker and all that it starts
SAME_PROCESS_SECONDS = 2.0  # start times are read with the clock's own error; a pid is not reused so fast


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


def worker_environment(config: Config, inherited: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment a worker starts with. OpenMP reads threads and waiting when it is loaded, so not later.

    Threads: the configuration's, else OMP_NUM_THREADS where it is set, else one a physical core. PYTHONPATH: so that a
    worker runs this very code, from any folder and in another environment; an installed package is found without it.
    """
    environment = dict(os.environ if inherited is None else inherited)
    set_outside = environment.get("OMP_NUM_THREADS", "")
    threads = config.threads or (int(set_outside) if set_outside.isdigit() else 0) or usable_cores()
    environment.update(
        OMP_NUM_THREADS=str(threads),
        MKL_NUM_THREADS=str(threads),
        GOMP_SPINCOUNT=str(config.spin),
        TOKENIZERS_PARALLELISM="false",
        PYTHONUNBUFFERED="1",
    )
    if IN_CHECKOUT or (isinstance(config, VllmConfig) and other_python()):
        paths = [str(import_path()), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    environment.pop("OMP_WAIT_POLICY", None)
    if config.spin == 0:
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


@dataclass(frozen=True, slots=True)
class Trace:
    """A worker as written beside the database, so that the next lab finds one that outlived its own."""

    pid: int
    created: float  # seconds since the epoch
    run: str
    folder: str

    @classmethod
    def of(cls, pid: int, run: str, folder: Path) -> "Trace":
        try:
            created = psutil.Process(pid).create_time()
        except psutil.Error:
            created = time.time()
        return cls(pid, created, run, str(folder))

    def write(self, path: Path) -> None:
        """Write it whole or not at all. Raises OSError, with the file's name."""
        temporary = path.with_name(path.name + ".new")
        try:
            temporary.write_text(json.dumps(asdict(self)))
            temporary.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise OSError(error.errno, error.strerror, str(path)) from None

    @classmethod
    def read(cls, path: Path) -> "Trace | None":
        """The trace in a file; None when there is none or it cannot be read."""
        try:
            values = json.loads(path.read_text())
            return cls(
                int(values["pid"]), float(values["created"]), str(values["run"]), str(values["folder"])
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def process(self) -> psutil.Process | None:
        """The process if it is still the one that was written down."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.created) < SAME_PROCESS_SECONDS
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.Error:
            return None


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


def _serves(process: psutil.Process, run: str) -> bool:
    try:
        return process.environ().get(RUN_VARIABLE) == run
    except psutil.Error:
        return False


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


def recover(trace_file: Path) -> str | None:
    """End the worker that an earlier lab left behind, if it still runs; the run it served, or None.

    Only for the owner of the database: then no other lab can be using that worker.
    """
    trace = Trace.read(trace_file)
    if trace is None:
        return None
    process = trace.process()
    if process is not None:
        end_tree(trace.pid)
    else:  # what it started may have outlived it, and has its run in the environment
        left = [each for each in members(trace.pid) if _serves(each, trace.run)]
        if left:
            sweep(trace.pid, left)
    folder = Path(trace.folder)
    if folder.name.startswith(FOLDER_PREFIX) and is_private(folder):
        shutil.rmtree(folder, ignore_errors=True)
    trace_file.unlink(missing_ok=True)
    return trace.run if process is not None else None


def tail(log: Path) -> list[str]:
    """The last lines of a log that are not empty."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 20_000))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [line for line in lines if line.strip()][-LOG_LINES:]
