"""A worker without a model that speaks the real messages over the real link; `target` says how it ends."""

import os
import re
import signal
import subprocess
import sys
import time

from avlab.lab.supervisor import WorkerError
from avlab.wire import commands, frames
from avlab.workers.entry import Order, work

VARIABLES = ("OMP_NUM_THREADS", "GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def serve(order: Order) -> str:
    config, outbox = order.config, order.outbox
    mood = config.target
    if mood == "missing":
        raise WorkerError("The target 'missing' is not here: fetch it.")
    if mood == "slow to start":
        time.sleep(600)
    if mood == "broken":
        raise RuntimeError("a fault of ours")
    machine = {name: os.environ.get(name) for name in VARIABLES}
    plain = config.model_dump(mode="json")
    outbox.put(
        frames.Hello(
            "reference", os.getpid(), time.time(), plain, mood, "t" * 16, None, None, 2, "x", machine
        )
    )
    outbox.put(frames.Block(0, config.policy, "serve", 0, 0.0, config.workload))
    order.state = "serving"
    if mood == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if mood in ("child", "deaf"):
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"
        child = subprocess.Popen([sys.executable, "-c", code])
        order.event("info", "child", str(child.pid))
    if mood == "orphan":
        code = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])"
        subprocess.run([sys.executable, "-c", code], check=True)
    while config.tokens is None or order.step * 4 < config.tokens:
        if outbox.lost:
            return outbox.lost
        asked = any(isinstance(command, commands.Stop) for command in outbox.commands())
        if mood != "deaf" and (asked or order.asked_to_stop.is_set()):
            return "stopped"
        if mood == "sleepy" and order.step == 3:
            os.kill(os.getpid(), signal.SIGSTOP)
        if mood == "hung" and order.step == 3:
            re.match("(a+)+$", "a" * 64 + "b")  # works for ever, and lets no other thread run
        if mood == "failing" and order.step == 3:
            raise WorkerError("The engine failed: a fault in step 3.")
        time.sleep(0.02)
        step = frames.Step(
            step=order.step, time=order.clock(), block=0, running=2, waiting=0, emitting=2, prompt_tokens=0,
            target_tokens=5, drafted=2, budget=3, tokens=4,
            scheduled=(2, 2), admitted=(2, 1), accepted=(1, 1), labelled=(2, 1),
            expected_tokens=3.5, expected_ms=20.0, draft_ms=1.0, verify_ms=15.0, sample_ms=1.0, decide_ms=0.5,
            report_ms=0.1, idle_ms=0.0,
        )  # fmt: skip
        outbox.put(frames.Steps([step]))
        order.step += 1
    return "done"


if __name__ == "__main__":
    sys.exit(work(serve))
