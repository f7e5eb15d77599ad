"""An audit of the engine's step, asked for: the process that makes it, and what it has said so far."""

import contextlib
import json
import tempfile
import threading
from pathlib import Path
from typing import Any

from avlab.config import RunConfig
from avlab.workers.processes import end_tree, start_child, tail, worker_environment

PROMPT = "What is the capital of France?"
SOUND_RULES = ("adaptive", "adaptive:raw", "fixed:2", "maximum:0.2", "budget:earlier")
# glibc gives large blocks back at once and asks for them again at each step; kept, a step takes a fifth less (measured)
KEEPS_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "2000000000", "MALLOC_TRIM_THRESHOLD_": "2000000000"}
UNSOUND_RULES = ("drawn:0.2", "budget:same-step", "noise:correction")


class AuditFailed(RuntimeError):
    """An audit that could not be made. The message is one sentence."""


class AuditProcess:
    """Makes an audit in a process of its own and keeps the newest row of each rule and seed."""

    def __init__(
        self,
        rules: list[str],
        seeds: list[int],
        continuations: int,
        prompt: str = PROMPT,
        config: RunConfig | None = None,
        K: int = 2,
    ):
        config = config or RunConfig.make()
        self.progress: tuple[str, int, int] = ("starting", 0, 0)
        self.rows: dict[tuple[str, int], dict[str, Any]] = {}
        self.error = ""
        self.done = threading.Event()
        self._log = Path(tempfile.mkstemp(prefix="avlab-audit-", suffix=".log")[1])
        self._process = start_child(
            "avlab.workers.audit", worker_environment(config) | KEEPS_MEMORY, self._log
        )
        order = {
            "config": config.model_dump(mode="json"),
            "rules": rules,
            "seeds": seeds,
            "continuations": continuations,
            "prompt": prompt,
            "K": K,
        }
        assert self._process.stdin
        with contextlib.suppress(OSError):
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout
        finished = False
        for line in self._process.stdout:
            said = json.loads(line)
            if "progress" in said:
                self.progress = tuple(said["progress"])
            elif "found" in said:
                self.rows[said["found"]["rule"], said["found"]["seed"]] = said["found"]
            else:
                self.error, finished = said.get("error", ""), True
        if not finished and not self.error:
            last = tail(self._log)
            self.error = f"The audit's process ended ({last[-1].strip() if last else 'without a word'})."
        self._process.wait()
        self._log.unlink(missing_ok=True)
        self.done.set()

    def close(self) -> None:
        """End the process, whatever it is doing."""
        if not self.done.is_set():
            self.error = "The audit was stopped."
            end_tree(self._process.pid)
            self.done.wait(10)
