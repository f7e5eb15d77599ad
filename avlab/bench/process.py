"""The benchmark's side of the processes in which measures are taken."""

import json
import threading
from pathlib import Path
from typing import Any

from avlab.bench.base import Outcome, Progress
from avlab.processes import end_tree, start_child, tail


class Child:
    """A process with a worker's environment that takes one measure after another. Its messages go to `log`."""

    def __init__(self, environment: dict[str, str], log: Path):
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        self.process = start_child("avlab.bench.child", environment, log)

    def take(self, order: dict[str, Any], progress: Progress, limit: float) -> Outcome:
        """The outcome of one measure; limit: seconds after which the process is ended."""
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            self.close()

        timer = threading.Timer(limit, expire)
        timer.daemon = True
        timer.start()
        try:
            outcome = self._ask(order, progress)
        except (OSError, ValueError):  # it ended before it read its order, or in the middle of a line
            outcome = None
        finally:
            timer.cancel()
        if outcome is None:
            self.close()
            last = tail(self.log)
            why = f"its process ended ({last[-1].strip()})" if last else "its process ended without a word"
            problem = f"it took more than {limit:.0f} s and was given up" if expired.is_set() else why
            outcome = Outcome(order["measure"], problem=f"failed: {problem}", failed=True)
        return outcome

    def _ask(self, order: dict[str, Any], progress: Progress) -> Outcome | None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            said, name = json.loads(line), order["measure"]
            if "progress" in said:
                progress(*said["progress"])
            elif "absent" in said:
                return Outcome(name, problem=said["absent"])
            elif "error" in said:
                return Outcome(name, problem=f"failed: {said['error']}", failed=True)
            else:
                return Outcome.from_dict({"measure": name, "machine": said["machine"], **said["result"]})
        return None

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        """End the process and all that it started."""
        end_tree(self.process.pid)
        self.process.wait()
