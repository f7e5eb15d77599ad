"""Processes that are spoken to in lines of JSON: how one is started and heard, and what its module's main does.

A process is given its order as the first line, says what it finds line by line, and `error` last: "" where it is done.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from avlab import plugins, temporary
from avlab.errors import is_ours
from avlab.processes import end_tree, start_child, tail, worker_environment

Said = dict[str, Any]


class LineChild:
    """`python -m module` with one thread, and the thread of ours that hears it."""

    def __init__(
        self,
        module: str,
        order: Mapping[str, object],
        title: str,
        heard: Callable[[LineChild, Said], None],
        ended: Callable[[str], None],
    ):
        """title: of the process in a sentence, as "A replay's process". heard: takes each line but the last. ended:
        takes why it could not go on, or ""."""
        self._title, self._heard, self._ended = title, heard, ended
        self._log = temporary.file("avlab-process-")
        self._process = start_child(module, worker_environment(1, 0), self._log)
        self.tell(json.dumps(order))
        threading.Thread(target=self._listen, daemon=True).start()

    def tell(self, line: str) -> None:
        """Send a further line."""
        assert self._process.stdin
        with contextlib.suppress(OSError):  # it has ended: the thread says why
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def finish(self) -> None:
        """There are no more lines for it."""
        assert self._process.stdin
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def end(self) -> None:
        """End the process if it still runs."""
        if self._process.poll() is None:
            end_tree(self._process.pid)

    def _listen(self) -> None:
        assert self._process.stdout
        error = None
        for line in self._process.stdout:
            said = json.loads(line)
            if "error" in said:
                error = said["error"]
            else:
                self._heard(self, said)
        self._process.wait()
        if error is None:
            last = tail(self._log)
            error = f"{self._title} ended early ({last[-1].strip() if last else 'without a word'})."
        self._log.unlink(missing_ok=True)
        self._ended(error)


def serve_lines(serve: Callable[[Said], None], title: str) -> None:
    """The main of such a process. serve: takes the order. title: of the work in a sentence, as "A replay"."""
    order = json.loads(sys.stdin.readline())
    try:
        plugins.load_named()
        serve(order)
        say({"error": ""})
    except BrokenPipeError:  # nobody listens any more
        os._exit(0)
    except Exception as error:
        if not is_ours(error):
            traceback.print_exc()
        sentence = f"{title} failed ({type(error).__name__}: {error})."
        say({"error": str(error) if is_ours(error) else sentence})


def say(said: Mapping[str, object]) -> None:
    """Tell whoever gave the order."""
    print(json.dumps(said), flush=True)
