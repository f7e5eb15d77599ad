"""The command line as a process of its own, by default with a worker that needs no model."""

import subprocess
import sys

from places import SUPPORT

STAND_IN = (sys.executable, str(SUPPORT / "stand_in_cli.py"))


def avlab(*arguments, program=STAND_IN):
    return subprocess.run([*program, *arguments], capture_output=True, text=True, check=False, timeout=180)


def one_sentence(result):
    assert result.stdout == "" and "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if not line.startswith(("run ", "starting"))]
    assert len(lines) == 1 and lines[0].endswith("."), result.stderr
    return lines[0]
