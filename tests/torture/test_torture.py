"""The short form of `make torture`: a few rounds with the real model."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROUNDS = 3


@pytest.mark.model
@pytest.mark.slow
def test_no_acknowledged_row_is_lost(tmp_path):
    command = [sys.executable, str(Path(__file__).with_name("torture.py"))]
    done = subprocess.run(
        [*command, "--rounds", str(ROUNDS), "--folder", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    rounds = [json.loads(line) for line in (tmp_path / "rounds.jsonl").read_text().splitlines()]
    assert len(rounds) == ROUNDS and not [each for each in rounds if each["wrong"]], done.stdout
    assert done.returncode == 0
