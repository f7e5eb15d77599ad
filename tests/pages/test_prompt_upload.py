"""Prompts that a reader uploads: kept where they can be served, refused in a sentence where they cannot."""

import pytest
from dashboard import opened
from streamlit.testing.v1 import AppTest

from avlab.config import RunConfig
from avlab.ui import prompt_upload
from avlab.workloads.base import WorkloadError

GOOD = b'{"prompt": "Why is it so?"}\n{"prompt": "And now?"}\n{"odd": 1}\n'


def test_an_upload_becomes_a_workload_that_a_run_takes(tmp_path):
    workload, told = prompt_upload.kept(GOOD, "../../my own ü.jsonl", tmp_path / "prompts")
    (path,) = (tmp_path / "prompts").iterdir()
    assert workload == f"file:{path}" and path.name.startswith("my-own-") and path.read_bytes() == GOOD
    assert "2 prompts of ../../my own ü.jsonl can be served." in told and "passed over 1" in told
    assert RunConfig.make(workload=workload).has_file
    assert prompt_upload.kept(GOOD, "again.txt", tmp_path / "prompts")[0] != workload


@pytest.mark.parametrize("content", [b"", b"\x00\xff", b"[1, 2", b"nothing\n"])
def test_what_cannot_be_served_is_refused_and_not_kept(content, tmp_path):
    with pytest.raises(WorkloadError):
        prompt_upload.kept(content, "p.jsonl", tmp_path / "prompts")
    assert list((tmp_path / "prompts").iterdir()) == []


def test_an_upload_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(prompt_upload, "MOST_MB", 0)
    with pytest.raises(WorkloadError, match="name it as file:PATH"):
        prompt_upload.kept(b"x", "p.jsonl", tmp_path / "prompts")
    assert not (tmp_path / "prompts").exists()


def alone():
    from avlab.ui import prompt_upload

    prompt_upload.field()


def test_an_upload_in_the_settings_fills_in_the_workload(tmp_path):
    with opened(tmp_path / "lab.duckdb"):
        app = AppTest.from_function(alone).run()
        app.file_uploader(key="prompt-upload").upload("mine.jsonl", GOOD, "application/jsonl").run()
        assert not app.exception
        assert app.session_state["form-workload"].startswith(f"file:{tmp_path / 'prompts' / 'mine-'}")
        assert "2 prompts of mine.jsonl can be served" in app.caption[0].value.replace("\\", "")
        app.file_uploader(key="prompt-upload").upload("bad.jsonl", b"[1, 2", "application/jsonl").run()
        assert len(app.error) == 1 and app.session_state["form-workload"].startswith("file:")
