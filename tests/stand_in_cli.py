"""The command line with a worker that needs no model."""

import functools
import os
import sys
from pathlib import Path

import avlab.checks
import avlab.cli
import avlab.lab

KIND = os.environ.get("AVLAB_STAND_IN", "worker")  # or "serving", with the real serving loop
COMMAND = (sys.executable, str(Path(__file__).with_name(f"stand_in_{KIND}.py")))
avlab.checks.target_folder = lambda target: None
avlab.lab.Lab = functools.partial(avlab.lab.Lab, command=COMMAND)

if __name__ == "__main__":
    avlab.cli.main()
