"""A trace recorded by several processes: the same whoever shares it, also after it was ended half way."""

import numpy as np
import pytest
from tiny_models import write_block_drafter, write_llama, write_tokenizer

from avlab.config import RunConfig
from avlab.lab.recording import Recording
from avlab.replay.about import TraceError
from avlab.replay.trace import read_trace

TEXTS = 70  # three parts


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recording")
    target = write_llama(folder / "target", max_position_embeddings=1024, eos_token_id=1)
    write_tokenizer(target)
    drafter = write_block_drafter(folder / "drafter", target)
    return RunConfig.make(
        target=str(target),
        drafter=str(drafter),
        K=3,
        policy="none",
        max_model_len=1024,
        max_new_tokens=6,
        dtype="float32",
    )


def recorded(config, path, processes, draws=1):
    with Recording(config, TEXTS, path, processes, draws) as recording:
        assert recording.wait(120)
        trace = recording.finish()
    assert recording.done == recording.due == TEXTS and not recording.folder.exists()
    return trace


@pytest.mark.slow
def test_processes_share_a_recording_and_do_not_change_it(config, tmp_path):
    alone = recorded(config, tmp_path / "alone.parquet", 1)
    assert alone.texts > 50 and read_trace(tmp_path / "alone.parquet").anchors == alone.anchors
    with Recording(config, TEXTS, tmp_path / "shared.parquet", 2) as recording:
        while not recording.done:
            assert not recording.wait(0.05), recording.error
    assert "goes on where it was" in recording.error and recording.folder.is_dir()
    with pytest.raises(TraceError, match="goes on"):
        recording.finish()
    recorded(config, tmp_path / "shared.parquet", 2)
    assert (tmp_path / "alone.parquet").read_bytes() == (tmp_path / "shared.parquet").read_bytes()


@pytest.mark.slow
def test_draws_are_of_the_same_texts_and_the_first_is_as_if_alone(config, tmp_path):
    once = recorded(config, tmp_path / "once.parquet", 1)
    twice = recorded(config, tmp_path / "twice.parquet", 2, draws=2)
    assert twice.texts == 2 * once.texts and twice.about.draws == 2
    np.testing.assert_array_equal(twice.output_tokens, np.repeat(once.output_tokens, 2))
    text = np.repeat(np.arange(twice.texts), twice.output_tokens - 1)
    np.testing.assert_array_equal(twice.features[text % 2 == 0], once.features)
    assert (twice.features[text % 2 == 1] != once.features).any()


@pytest.mark.slow
def test_what_cannot_be_recorded_is_one_sentence(config, tmp_path):
    with Recording(config.changed(drafter="none"), TEXTS, tmp_path / "none.parquet", 2) as recording:
        assert recording.wait(120)
    with pytest.raises(TraceError, match="drafts along a known text"):
        recording.finish()
    assert not (tmp_path / "none.parquet").exists()
