"""A checkpoint's chat template in a process of its own: foreign code, whose time and memory come to an end.

`chat_template.py` says what a template may read and write. What it cannot say is how long a filter works, or how much a
sum of texts holds, so the operating system does: a process that needs more than its limits is ended, and the request is
refused. The next one starts another.
"""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from avlab import temporary
from avlab.engine.chat_template import ChatTemplate, Message
from avlab.engine.checkpoint_files import CheckpointError
from avlab.errors import is_ours
from avlab.processes import start_child, worker_environment

SECONDS = 3.0  # of a processor, for one prompt; templates take milliseconds
MEMORY = 1 << 30  # bytes; jinja and a template of 16 million characters take less than half


class GuardedTemplate:
    """`ChatTemplate`, elsewhere: the same words, the same errors. Raises CheckpointError as it does."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], special: Mapping[str, str]):
        self._order = json.dumps({"folder": str(folder), "settings": settings, "special": special})
        self._lock = threading.Lock()
        said = self._begin()
        self.exists: bool = said["exists"]
        self._read = frozenset(said["read"])

    def reads(self, name: str) -> bool:
        """Whether one of the templates reads what is given by this name."""
        return name in self._read

    def render(self, messages: Sequence[Message], given: Mapping[str, Any]) -> str:
        """As `ChatTemplate.render`. Raises CheckpointError also for a template that does not come to an end."""
        with self._lock:
            if self._process.poll() is not None:
                self._end()
                self._begin()
            return str(self._asked(json.dumps({"messages": list(messages), "given": dict(given)}))["text"])

    def _begin(self) -> dict[str, Any]:
        """Start a process; what it says of the template."""
        log = temporary.file("avlab-template-")
        self._process = start_child("avlab.engine.template_child", worker_environment(1, 0), log)
        log.unlink(missing_ok=True)  # it is read by nobody; the process holds it open
        self._end = weakref.finalize(self, _end, self._process)
        return self._asked(self._order)

    def _asked(self, line: str) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        answer = ""
        with contextlib.suppress(OSError):  # it has ended
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        if not answer.endswith("\n"):
            self._end()
            raise CheckpointError(
                f"The checkpoint's chat template does not come to an end: it took more than {SECONDS:.0f} s of a "
                f"processor, or {MEMORY >> 30} GB of memory, for one prompt."
            )
        said: dict[str, Any] = json.loads(answer)
        if "error" in said:
            raise CheckpointError(said["error"])
        return said


def _end(process: subprocess.Popen[str]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream:
            with contextlib.suppress(OSError):
                stream.close()
    process.kill()
    process.wait()


def _serve() -> None:
    """The process's main: the template's description, then a text for each line."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    template: ChatTemplate | None = None
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of this process alone; it ends it
        try:
            asked = json.loads(line)
            if template is None:
                template = ChatTemplate(Path(asked["folder"]), asked["settings"], asked["special"])
                said: dict[str, Any] = {"exists": template.exists, "read": template.variables}
            else:
                said = {"text": template.render(asked["messages"], asked["given"])}
        except Exception as error:
            if not is_ours(error):
                raise
            said = {"error": str(error)}
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    _serve()
