"""A user never sees a traceback: the last door of the command line and of the pages."""

import sys

import pytest

from avlab import faults
from avlab.commands import cli, terminal


def test_a_fault_on_the_command_line_is_a_sentence(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(faults.platformdirs, "user_cache_dir", lambda *_, **__: str(tmp_path))
    monkeypatch.setattr(terminal, "show_runs", lambda runs: 1 / 0)
    monkeypatch.setattr(sys, "argv", ["avlab", "runs", "--database", "x"])
    monkeypatch.setattr(cli, "app", lambda words: terminal.show_runs([]))
    with pytest.raises(SystemExit) as left:
        cli.main()
    said = capsys.readouterr().err
    assert left.value.code == cli.FAULT
    assert "Traceback" not in said and said.startswith(
        "avlab failed here (ZeroDivisionError: division by zero)"
    )
    (kept,) = (tmp_path / "faults").iterdir()
    assert "ZeroDivisionError" in kept.read_text() and str(kept) in said


def test_no_more_than_twenty_faults_are_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(faults.platformdirs, "user_cache_dir", lambda *_, **__: str(tmp_path))
    (tmp_path / "faults").mkdir()
    for number in range(40):
        (tmp_path / "faults" / f"2000-{number}.txt").write_text("")
    faults.sentence(ValueError("two\nlines"))
    assert len(list((tmp_path / "faults").iterdir())) == faults.KEPT


def test_a_fault_where_nothing_can_be_written_is_a_sentence_still(monkeypatch):
    monkeypatch.setattr(faults, "_kept", lambda error: None)
    assert faults.sentence(KeyError("a")).endswith("Please report it.")


def test_a_fault_of_a_page_is_a_sentence(monkeypatch, capsys, tmp_path):
    from avlab.ui import streamlit_repairs

    monkeypatch.setattr(faults.platformdirs, "user_cache_dir", lambda *_, **__: str(tmp_path))
    streamlit_repairs._say_fault(RuntimeError("[red]\x1b[31m"))
    said = capsys.readouterr().err
    assert "Traceback" not in said and "avlab failed here (RuntimeError: [red]\\x1b[31m)" in said
