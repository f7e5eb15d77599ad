"""No command prints a traceback, whatever the database holds, is called, or has become."""

import sys

import pytest
import store_frames as frames

from avlab.commands import cli
from avlab.store.database import Database
from avlab.store.ids import new_run_id
from avlab.store.recorder import Recorder

COMMANDS = (
    ("runs",), ("runs", "--json"), ("show", "last"), ("show", "last", "--json"), ("export", "last"), ("report", "last"),
    ("costs", "last"), ("window",), ("machine", "import", "last"), ("trace", "served", "last"), ("show", "[/x]"),
)  # fmt: skip


def recorded(path):
    with Recorder(path) as recorder:
        for envelope in frames.envelopes(frames.whole_run(), new_run_id()):
            recorder.record(envelope)


def said(monkeypatch, capsys, folder, *words):
    """Exit code, standard output and standard error of a command in a folder."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["avlab", *words])
    try:
        cli.main()
        code = 0
    except SystemExit as left:
        code = left.code or 0
    return (code, *capsys.readouterr())


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_folder_with_markup_in_its_name_breaks_no_command(monkeypatch, capsys, tmp_path, words):
    folder = tmp_path / "[/x][red]:smile:"
    folder.mkdir(parents=True)
    recorded(folder / "lab.duckdb")
    code, out, err = said(monkeypatch, capsys, folder, *words, "--database", str(folder / "lab.duckdb"))
    assert "Traceback" not in out + err and code != cli.FAULT
    if words == ("runs",):
        assert code == 0 and f"Read from {folder / 'lab.duckdb'}." in err.replace("\n", "")


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_damaged_database_is_said_by_every_command(monkeypatch, capsys, tmp_path, words):
    path = tmp_path / "lab.duckdb"
    recorded(path)
    Database(path).close()
    whole = path.read_bytes()
    codes = set()
    for at in range(12288, len(whole), 262_144):
        path.write_bytes(
            whole[:at] + bytes(255 - byte for byte in whole[at : at + 4096]) + whole[at + 4096 :]
        )
        code, out, err = said(monkeypatch, capsys, tmp_path, *words, "--database", str(path))
        assert "Traceback" not in out + err and code != cli.FAULT, err
        codes.add(code)
    assert codes - {0}


def test_a_path_with_a_question_mark_is_refused_by_every_command(monkeypatch, capsys, tmp_path):
    for words in (("runs",), ("run", "--duration", "1"), ("ab",), ("frontier",)):
        code, out, err = said(monkeypatch, capsys, tmp_path, *words, "--database", str(tmp_path / "a?b"))
        assert code not in (0, cli.FAULT) and "Traceback" not in out + err
    assert list(tmp_path.iterdir()) == []
