"""The worker that serves with vLLM: `python -m avlab.workers.vllm`, its order as JSON on standard input.

Imports are absolute, so that `vllm` is the package of that name; it is imported when the engine is opened.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
from typing import Any

import psutil

from avlab.vllm.doctor.look import installed_version
from avlab.vllm.engine import EngineError, VllmEngine, VllmText
from avlab.vllm.reporting import VllmReporter
from avlab.vllm.serving_config import VllmConfig
from avlab.workers import messages as m
from avlab.workers.about import code_version, processor
from avlab.workers.entry import Order, Stopped, work
from avlab.workers.processes import end_children
from avlab.workers.serving import Server, open_traffic

PHASES = (  # what a line of vLLM's log says about how far its start is; the last that matches stands
    (r"Starting to load model|Loading .*checkpoint shards", "loading weights"),
    (r"Loading drafter model|Loading draft", "loading the drafter"),
    (r"torch\.compile|Dynamo bytecode|Compiling a graph", "compiling"),
    (r"[Mm]emory profiling|Available KV cache memory|KV cache size", "measuring memory"),
    (r"Capturing CUDA ?graph|Graph capturing", "capturing graphs and timing steps"),
)
FAULT = re.compile(r"(?:\w+\.)*(\w*(?:Error|Exception)): (.+)")
HOLLOW = "Engine core initialization failed"  # says only that another line says it
LEFT_MB = 512  # of GPU memory above what was in use before, that is worth a warning


def serve(order: Order) -> str:
    """Start vLLM, greet, serve to the end, and leave nothing of it."""
    config: VllmConfig = order.config
    workload = open_traffic(config)
    os.environ.update(config.line.environment)
    used = gpu_memory()
    engine, log = VllmEngine(config), Log()
    order.progress("starting vLLM", 0, 0)
    try:
        try:
            engine.open(lambda ready: _wait(order, log, ready))
        except EngineError as error:
            raise EngineError(log.reason(str(error))) from None
        _greet(order, engine)
        reporter = VllmReporter(order.outbox.put, order.clock, engine)
        server = Server(order, engine, VllmText(engine.tokenizer), workload, engine.K, report=reporter)
        for sentence in engine.about["missing"]:
            order.event("info", "not told", sentence)
        return server.run()
    finally:
        order.state = "stopping vLLM"
        engine.close()
        end_children()
        left = [after - before for before, after in zip(used, gpu_memory(), strict=False)]
        if order.outbox.greeted and max(left, default=0) > LEFT_MB:
            order.event(
                "warning",
                "memory",
                f"{max(left)} MB of a GPU's memory are still in use: nvidia-smi says by whom.",
            )


def _wait(order: Order, log: "Log", ready: bool) -> None:
    """Tell how far a start is; a stop that comes meanwhile ends it."""
    if order.asked_to_stop.is_set():
        raise Stopped
    if ready and order.outbox.greeted:
        order.state = "serving"
    else:
        order.progress("ready" if ready else log.phase, 0, 0)


def _greet(order: Order, engine: VllmEngine) -> None:
    config, spec = order.config, engine.line.speculative
    values = config.model_dump(mode="json") | {"policy": str(config.arm)}
    drafter = str(spec.get("model") or spec.get("method") or "unnamed") if spec else None
    order.outbox.put(
        m.Hello(
            kind=VllmConfig.kind,
            pid=os.getpid(),
            wall=time.time() - order.clock(),
            config=values,
            target=engine.line.model,
            target_hash="",
            drafter=drafter,
            drafter_hash=None,
            K=engine.K,
            code=code_version(),
            machine=_machine(engine),
        )
    )


def _machine(engine: VllmEngine) -> dict[str, Any]:
    import torch
    from vllm.platforms import (
        current_platform,
    )  # asks the driver, and opens no context on a GPU, as torch would

    model = engine.vllm_config.model_config
    return {
        "processor": processor(),
        "cores": psutil.cpu_count(logical=False),
        "logical_cores": psutil.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "device": current_platform.get_device_name(),
        "dtype": str(model.dtype).removeprefix("torch."),
        "runner": engine.about.get("runner", ""),
        "adaptive": engine.about.get("adaptive", False),
        "told": True,
        "system": platform.platform(),
        "versions": {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "vllm": installed_version(),
        },
    }


class Log:
    """Reads what vLLM's processes write to this process's output, and passes it on to where it went before."""

    def __init__(self) -> None:
        self.phase = "starting vLLM"
        self._reasons: list[str] = []
        self._out = os.dup(1)
        reader, writer = os.pipe()
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        os.close(writer)
        threading.Thread(target=self._read, args=(reader,), name="log", daemon=True).start()

    def reason(self, sentence: str) -> str:
        """Why a start failed: the last error that the log names, where the sentence only points to it."""
        time.sleep(0.2)  # the pipe's last lines
        if HOLLOW not in sentence or not self._reasons:
            return sentence
        return f"vLLM did not start: {self._reasons[-1]}"

    def _read(self, pipe: int) -> None:
        with os.fdopen(pipe, "rb", buffering=0) as lines:
            rest = b""
            while data := lines.read(65536):
                os.write(self._out, data)
                *whole, rest = (rest + data).replace(b"\r", b"\n").split(b"\n")
                for line in whole:
                    self._look(line.decode("utf-8", "replace"))

    def _look(self, line: str) -> None:
        for pattern, phase in PHASES:
            if re.search(pattern, line):
                self.phase = phase
        found = FAULT.search(line)
        if found and HOLLOW not in line:
            self._reasons = [*self._reasons[-20:], found[2].strip()]


def gpu_memory() -> list[int]:
    """Megabytes in use on each NVIDIA GPU; [] where there is none."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    asked = [command, "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, timeout=20).stdout
        return [int(line) for line in said.split()]
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return []


if __name__ == "__main__":
    sys.exit(work(serve, VllmConfig.kind))
