"""The worker that serves with vLLM: `python -m avlab.workers.vllm`, its order as JSON on standard input.

Imports are absolute, so that `vllm` is the package of that name; it is imported when the engine is opened.
"""

import contextlib
import os
import platform
import re
import sys
import threading
import time
from typing import Any

import psutil

from avlab.about import code_version, processor
from avlab.vllm.doctor.look import installed_version
from avlab.vllm.engine import VllmEngine, VllmText
from avlab.vllm.instance import EngineError
from avlab.vllm.reporting import VllmReporter
from avlab.vllm.serving_config import VllmConfig
from avlab.wire import frames
from avlab.workers.entry import Order, Stopped, work
from avlab.workers.intake import open_traffic
from avlab.workers.serving import Server

BEGINNING = "starting vLLM"
PHASES = (  # what a line of vLLM's log says about how far its start is; the last that matches stands
    (r"Starting to load model|Loading .*checkpoint shards", "loading weights"),
    (r"Loading drafter model|Loading draft", "loading the drafter"),
    (r"torch\.compile|Dynamo bytecode|Compiling a graph", "compiling"),
    (r"[Mm]emory profiling|Available KV cache memory|KV cache size", "measuring memory"),
    (r"Capturing CUDA ?graph|Graph capturing", "capturing graphs and timing steps"),
)
FAULT = re.compile(r"(?:\w+\.)*(\w*(?:Error|Exception)): (.+)")
VALUE = re.compile(
    r"^\s*Value error, (.+?)(?: \[type=|$)"
)  # what pydantic wraps, below a line that only counts
HOLLOW = (  # say only that another line says it
    "Engine core initialization failed",
    "WorkerProc initialization failed",
    "validation error",
)
FREE_SECONDS = 5.0  # at the end, for a GPU's memory; a Stop waits for it


def serve(order: Order[VllmConfig]) -> str:
    """Start vLLM, greet, serve to the end, and leave nothing of it."""
    config = order.config
    workload = open_traffic(config)
    os.environ.update(config.line.environment)
    engine, log = VllmEngine(config), Log()
    order.progress(BEGINNING, 0, 0)
    try:
        engine.open(lambda ready: _wait(order, log, ready))
        _greet(order, engine)
        reporter = VllmReporter(order.outbox.put, order.clock, engine)
        server = Server(order, engine, VllmText(engine.instance.tokenizer), workload, reporter)
        for sentence in engine.about["missing"]:
            order.event("info", "not told", sentence)
        try:
            return server.run()
        except (EngineError, Stopped):  # what is known by now is not lost
            if server.conductor:
                server.conductor.close()
            server.intake.cancel_all()
            reporter.flush()
            raise
    except EngineError as error:
        raise EngineError(log.reason(str(error))) from None
    finally:
        order.state = "stopping vLLM"
        left = engine.close(FREE_SECONDS)
        if left and order.outbox.greeted:
            text = f"{left:,} MB of a GPU's memory are still in use: nvidia-smi says by whom."
            order.event("warning", "memory", text)
        log.close()


def _wait(order: Order, log: "Log", ready: bool) -> None:
    """Tell how far a start is; a stop that comes meanwhile ends it."""
    if order.asked_to_stop.is_set() or order.outbox.stop_came.is_set():
        raise Stopped
    if ready:
        log.phase = BEGINNING
    if ready and order.outbox.greeted:
        order.state = "serving"
    else:
        order.progress("ready" if ready else log.phase, 0, 0)


def _greet(order: Order, engine: VllmEngine) -> None:
    config, spec = order.config, engine.line.speculative
    values = config.model_dump(mode="json") | {"policy": str(config.arm)}
    drafter = str(spec.get("model") or spec.get("method") or "unnamed") if spec else None
    order.outbox.put(
        frames.Hello(
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

    model = engine.instance.vllm_config.model_config
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
        self.phase = BEGINNING
        self._reasons: list[str] = []
        self._out = os.dup(1)
        reader, writer = os.pipe()
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        os.close(writer)
        self._thread = threading.Thread(target=self._read, args=(reader,), name="log", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let output go where it went before, behind all that was written until now."""
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(self._out, 1)
        os.dup2(self._out, 2)
        self._thread.join(1.0)

    def reason(self, sentence: str) -> str:
        """Why a start failed: the last error that the log names, where the sentence only points to it."""
        time.sleep(0.2)  # the pipe's last lines
        if not any(each in sentence for each in HOLLOW) or not self._reasons:
            return sentence
        return f"vLLM did not start: {self._reasons[-1]}"

    def _read(self, pipe: int) -> None:
        with os.fdopen(pipe, "rb", buffering=0) as lines:
            rest = b""
            while data := lines.read(65536):
                with contextlib.suppress(
                    OSError
                ):  # a full disk: vLLM would wait for a pipe that nobody reads
                    os.write(self._out, data)
                *whole, rest = (rest + data).replace(b"\r", b"\n").split(b"\n")
                for line in whole:
                    self._look(line.decode("utf-8", "replace"))

    def _look(self, line: str) -> None:
        for pattern, phase in PHASES:
            if re.search(pattern, line):
                self.phase = phase
        found = FAULT.search(line)
        said = found[2] if found and not any(each in line for each in HOLLOW) else ""
        if wrapped := VALUE.search(line):
            said = wrapped[1]
        if said:
            self._reasons = [*self._reasons[-20:], said.strip()]


if __name__ == "__main__":
    sys.exit(work(serve, VllmConfig.kind))
