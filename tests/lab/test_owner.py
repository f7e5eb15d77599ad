"""Whoever holds a database answers for it, to this user alone."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time

import pytest
from places import SUPPORT

from avlab.lab import owner as module
from avlab.lab.lab import Lab
from avlab.lab.owner import Owner, OwnerError, ask
from avlab.store.errors import DatabaseHeld, UnknownRun
from avlab.wire.sockets import is_private

COMMAND = (sys.executable, str(SUPPORT / "stand_in_worker.py"))


def refuse(why):
    raise UnknownRun(why)


@pytest.fixture
def owner(tmp_path):
    handlers = {
        "double": lambda number: 2 * number,
        "refuse": refuse,
        "fail": lambda: 1 / 0,
        "set": lambda: {1},
    }
    owner = Owner(tmp_path / "lab.duckdb", handlers)
    yield owner
    owner.close()


def test_a_question_is_answered(owner, tmp_path):
    assert ask(tmp_path / "lab.duckdb", "double", number=21) == 42
    assert ask(tmp_path / "." / "lab.duckdb", "double", number=1) == 2  # the same file by another name


def test_a_link_leads_to_the_same_owner(owner, tmp_path):
    (tmp_path / "lab.duckdb").touch()
    (tmp_path / "other").symlink_to(tmp_path / "lab.duckdb")
    assert ask(tmp_path / "other", "double", number=21) == 42


def test_refusals_and_faults_are_sentences(owner, tmp_path):
    with pytest.raises(OwnerError, match=r"^No such run\.$"):
        ask(tmp_path / "lab.duckdb", "refuse", why="No such run.")
    with pytest.raises(OwnerError, match="ZeroDivisionError"):
        ask(tmp_path / "lab.duckdb", "fail")
    with pytest.raises(OwnerError, match="does not know 'paint'"):
        ask(tmp_path / "lab.duckdb", "paint")
    with pytest.raises(OwnerError, match="TypeError"):
        ask(tmp_path / "lab.duckdb", "double", count=1)
    with pytest.raises(OwnerError, match="TypeError"):
        ask(tmp_path / "lab.duckdb", "set")  # which JSON cannot hold
    assert ask(tmp_path / "lab.duckdb", "double", number=2) == 4  # still there


def test_several_may_ask_at_once(owner, tmp_path):
    answers = []
    threads = [
        threading.Thread(target=lambda n=n: answers.append(ask(tmp_path / "lab.duckdb", "double", number=n)))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [0, 2, 4, 6, 8, 10, 12, 14]


def asking(path, what, said, **arguments):
    """A thread that asks, and adds the answer or the refusal to `said`."""

    def guest():
        try:
            said.append(ask(path, what, **arguments))
        except OwnerError as error:
            said.append(str(error))

    thread = threading.Thread(target=guest, daemon=True)
    thread.start()
    return thread


def test_an_answer_under_way_is_given_before_the_owner_closes(tmp_path):
    begun, said = threading.Event(), []
    owner = Owner(tmp_path / "lab.duckdb", {"slow": lambda: begun.set() or time.sleep(0.5) or 42})
    guest = asking(tmp_path / "lab.duckdb", "slow", said)
    assert begun.wait(30)
    owner.close()
    guest.join(30)
    assert said == [42]


def test_a_lab_closes_without_waiting_for_a_guests_report(tmp_path, monkeypatch):
    begun, release, said, path = threading.Event(), threading.Event(), [], tmp_path / "lab.duckdb"
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.3)
    monkeypatch.setattr(Lab, "report", lambda self: begun.set() or release.wait(300))
    lab = Lab(path, worker_commands={"reference": COMMAND})
    lab.run({"target": "plain"})
    guest, other = asking(path, "report", said), None
    try:
        assert begun.wait(30)
        other = asking(path, "runs", said)  # waits behind it
        closing = threading.Thread(target=lab.close, daemon=True)
        closing.start()
        closing.join(60)
        assert not closing.is_alive() and lab.supervisor.status().state == "ended"
        guest.join(30)
        other.join(30)
        assert len(said) == 2 and all("closed before it could answer" in sentence for sentence in said)
    finally:
        release.set()


def test_nobody_there_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    with pytest.raises(OwnerError, match="No lab answers"):
        ask(tmp_path / "lab.duckdb", "double", number=1)
    owner = Owner(tmp_path / "lab.duckdb", {})
    path = owner.path
    assert is_private(path.parent)
    owner.close()
    assert not path.exists()
    path.touch()  # what a killed owner leaves
    with pytest.raises(OwnerError, match="No lab answers"):
        ask(tmp_path / "lab.duckdb", "double", number=1)
    Owner(tmp_path / "lab.duckdb", {}).close()  # and the next owner takes over


def test_a_folder_that_others_can_enter_is_not_used(tmp_path, monkeypatch):
    folder = tmp_path / f"avlab-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setattr(module, "_folders", lambda: [folder])
    with pytest.raises(OwnerError, match="socket"):
        Owner(tmp_path / "lab.duckdb", {})


def test_another_process_asks_the_lab(tmp_path):
    path = tmp_path / "lab.duckdb"
    code = (
        "import json, sys; from avlab.lab.owner import ask; "
        "print(json.dumps(ask(sys.argv[1], sys.argv[2], **json.loads(sys.argv[3]))))"
    )

    def other(what, arguments="{}"):
        command = [sys.executable, "-c", code, str(path), what, arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    with Lab(path, worker_commands={"reference": COMMAND}) as lab:
        with pytest.raises(DatabaseHeld):
            Lab(path)
        answer = other("run", '{"config": {"target": "plain", "tokens": 40}}')
        run = answer.stdout.strip().strip('"')
        assert lab.supervisor.wait(60)
        assert lab.progress()["status"]["outcome"] == "done" and lab.progress()["tally"]["tokens"] == 40
        assert run in other("runs").stdout
        assert '"state": "finished"' in other("show", '{"run": "last"}').stdout
        assert "seed is -1" in other("run", '{"config": {"seed": -1}}').stderr
        folder = tmp_path / "exported"
        assert other("export", f'{{"run": "last", "folder": "{folder}"}}').returncode == 0
        assert (folder / "steps.parquet").is_file()


def test_a_suspended_owner_is_there_though_it_takes_no_more_connections(tmp_path):
    path = tmp_path / "owner.sock"
    with contextlib.ExitStack() as stack:
        suspended = stack.enter_context(socket.socket(socket.AF_UNIX))
        suspended.bind(str(path))
        suspended.listen(1)
        with contextlib.suppress(BlockingIOError):
            for _ in range(10):
                asker = stack.enter_context(socket.socket(socket.AF_UNIX))
                asker.setblocking(False)
                asker.connect(str(path))
        began = time.monotonic()
        assert module._listens(path) and time.monotonic() - began < 5
    assert not module._listens(path)
