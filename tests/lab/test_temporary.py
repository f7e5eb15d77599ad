"""Where no temporary file can be written, one sentence says so, and sockets find another place."""

import tempfile

import pytest

from avlab import temporary
from avlab.lab import owner
from avlab.wire.sockets import LinkError, private_folder


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No temporary folder that can be written to, and none of this user's own."""

    def refused(*_, **__):
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", refused)
    monkeypatch.setattr(tempfile, "mkdtemp", refused)
    monkeypatch.setattr(tempfile, "mkstemp", refused)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return tmp_path


def test_a_file_or_folder_that_cannot_be_made_is_one_sentence(nowhere):
    with pytest.raises(temporary.TemporaryError, match=r"set TMPDIR to a folder that you may write to\.$"):
        temporary.file("avlab-")
    with pytest.raises(temporary.TemporaryError, match="No usable temporary directory"), temporary.folder():
        pass


def test_a_worker_without_a_place_for_its_socket_is_one_sentence(nowhere):
    with pytest.raises(LinkError, match="set TMPDIR to a folder that you may write to"):
        private_folder()
    owner._folders()  # asking whether somebody holds a file needs no place of one's own


def test_what_can_be_made_is_made_and_removed():
    made = temporary.file("avlab-")
    assert made.read_bytes() == b"" and made.name.startswith("avlab-")
    made.unlink()
    with temporary.folder() as passing:
        (passing / "a").write_text("x")
    assert not passing.exists()
