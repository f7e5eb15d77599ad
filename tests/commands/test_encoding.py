"""On a terminal that is not UTF-8 every answer is written, in signs that the terminal has."""

import io
import os
import subprocess
import sys

import click
import pytest
import typer.main
from command_line import STAND_IN

from avlab import sample
from avlab.commands import cli, encoding
from avlab.machines import DEFAULT_MACHINE
from avlab.store import queries
from avlab.store.database import Database


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    path = tmp_path_factory.mktemp("lab") / "lab.duckdb"
    with Database(path) as opened:
        sample.add(opened)
        with opened.cursor() as con:
            runs = [run["run_id"] for run in queries.runs(con)]
    return path, runs


@pytest.fixture
def answered(monkeypatch):
    """A function that runs a command under an encoding, in this process: exit code, output, errors."""

    def run(coding, *arguments):
        out, errors = (io.TextIOWrapper(io.BytesIO(), encoding=coding) for _ in range(2))
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", errors)
        monkeypatch.setattr(sys, "argv", ["avlab", *arguments])
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code
        for stream in (out, errors):
            stream.flush()
        written, said = (stream.buffer.getvalue().decode(coding) for stream in (out, errors))
        return code, written, said

    return run


@pytest.mark.parametrize("coding", ["ascii", "latin-1", "cp437"])
def test_every_command_answers(answered, database, coding):
    path, runs = database
    asked = [
        ["runs"],
        ["trace", "list"],
        ["machine", "show", DEFAULT_MACHINE],
        ["runs", "--json"],
    ]
    for run in runs:
        asked.append(["show", run])
    for arguments in asked:
        more = ["--database", str(path)] if arguments[0] in ("runs", "show") else []
        code, written, said = answered(coding, *arguments, *more)
        assert not code and written.strip(), (arguments, said)
        assert "Traceback" not in said


def every_command(group, names=()):
    for name, command in group.commands.items():
        if isinstance(command, click.Group) or hasattr(command, "commands"):
            yield from every_command(command, (*names, name))
        else:
            yield (*names, name)


def test_every_help_is_written(answered):
    for names in every_command(typer.main.get_group(cli.app)):
        code, written, _ = answered("ascii", *names, "--help")
        assert not code and "Usage" in written, names


def test_signs_that_are_missing_have_plain_ones():
    encoding.tolerate()
    assert "2 – 3 … × → ±".encode("ascii", "avlab.plain") == b"2 - 3 ... x -> +-"
    assert "┌─┐│└┘█ λ 語".encode("ascii", "avlab.plain") == b"+-+|++# lambda ?"
    assert "\ud800 é".encode("latin-1", "avlab.plain") == b"? \xe9"
    assert "\ud800 –".encode("utf-8", "avlab.plain") == "? –".encode()


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
        {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_a_run_and_its_summary_on_such_a_terminal(tmp_path, environment):
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("LC_ALL", "LANG", "PYTHONIOENCODING")
    }
    result = subprocess.run(
        [*STAND_IN, "run", "--target", "plain", "--tokens", "40", "--database", str(tmp_path / "lab.duckdb")],
        capture_output=True, env=clean | environment, timeout=120,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert b"throughput" in result.stdout and b"mean ms a step" in result.stdout
    assert b"Traceback" not in result.stderr
    (result.stdout + result.stderr).decode("ascii")
