"""The command line with a worker that needs no model."""

import functools
import sys
from pathlib import Path

import avlab.cli
import avlab.lab

COMMAND = (sys.executable, str(Path(__file__).with_name("stand_in_worker.py")))
avlab.lab.Lab = functools.partial(avlab.lab.Lab, command=COMMAND)

if __name__ == "__main__":
    avlab.cli.main()
