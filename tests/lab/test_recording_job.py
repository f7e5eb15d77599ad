"""Recording a trace as a job: it goes on by itself, is stopped with all that it started, and goes on where it was."""

import time

import pytest
from tiny_models import write_block_drafter, write_llama, write_tokenizer

from avlab.lab import recording_job
from avlab.replay.about import TraceError
from avlab.replay.traces import trace_named


@pytest.fixture
def pair(tmp_path, monkeypatch):
    monkeypatch.setenv("AVLAB_DATABASE", str(tmp_path / "lab.duckdb"))
    target = write_llama(tmp_path / "target", max_position_embeddings=1024, eos_token_id=1)
    write_tokenizer(target)
    drafter = write_block_drafter(tmp_path / "drafter", target)
    yield ["--target", str(target), "--drafter", str(drafter), "--K", "3", "--max-new-tokens", "6"]
    recording_job.stop()


def wait(until, seconds=120):
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.slow
def test_a_job_is_stopped_and_goes_on(pair):
    job = recording_job.start("own", 70, pair)
    with pytest.raises(TraceError, match="own is being recorded"):
        recording_job.start("other", 70, pair)
    wait(lambda: job.done > 0 or not job.running)
    recording_job.stop()
    assert not job.running and "go on" in job.said() and job.done > 0
    again = recording_job.start("own", 70, pair)
    wait(lambda: not again.running)
    assert "is recorded" in again.said() and again.done == again.due
    assert trace_named("own").texts > 50
    with pytest.raises(TraceError, match="trace own already"):
        recording_job.start("own", 70, pair)


@pytest.mark.slow
def test_what_cannot_be_recorded_is_its_sentence(pair):
    job = recording_job.start("none", 5, [*pair[:2], "--drafter", "none"])
    wait(lambda: not job.running)
    assert "drafts along a known text" in job.said()
    with pytest.raises(TraceError, match="no name of a trace"):
        recording_job.start("../x", 5, pair)
