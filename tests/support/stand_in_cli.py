"""The command line with a worker that needs no model."""

import functools
import os
import sys
from pathlib import Path

import avlab.commands.cli
import avlab.kinds.reference
import avlab.lab.lab

KIND = os.environ.get("AVLAB_STAND_IN", "worker")  # or "serving", with the real serving loop
COMMAND = (sys.executable, str(Path(__file__).with_name(f"stand_in_{KIND}.py")))
avlab.kinds.reference.target_folder = lambda target: None
avlab.lab.lab.Lab = functools.partial(avlab.lab.lab.Lab, worker_commands={"reference": COMMAND})

if __name__ == "__main__":
    avlab.commands.cli.main()
