"""The process that audits: `python -m avlab.bias.audit`, its order as one JSON line on standard input.

What can be ordered stands in `avlab.bias.audit.tasks`. It answers in JSON lines: {"progress": [text, done, total]},
{"found": row} while a row grows, {"ended": true} at the end, or {"error": sentence}. It ends when its standard input is
closed, so that it does not outlive whoever asked.
"""

import json
import os
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import TextIO

from avlab.errors import is_ours


class Lines:
    """Answers as lines of JSON: the `Answer` of every task."""

    def __init__(self, file: TextIO):
        self._file = file

    def progress(self, text: str, done: int, total: int) -> None:
        self.say(progress=[text, done, total])

    def found(self, row: Mapping[str, object]) -> None:
        self.say(found=row)

    def say(self, **line: object) -> None:
        """One line."""
        print(json.dumps(line), file=self._file)


def main() -> None:
    """Audit as ordered, and say so."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints goes to the log

    answer = Lines(answers)
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        from avlab.bias.audit.tasks import TASKS

        TASKS[order["task"]](order, answer)
        answer.say(ended=True)
    except Exception as error:
        traceback.print_exc()
        answer.say(
            error=str(error) if is_ours(error) else f"The audit failed ({type(error).__name__}: {error})."
        )
    answers.flush()
    os._exit(0)  # the thread still waits for input


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
