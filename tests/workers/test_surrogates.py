"""Half of a surrogate pair anywhere in a frame or a setting does no harm: no text outside may hold one."""

import pytest

from avlab.config import ConfigError, RunConfig
from avlab.wire import codec, commands, frames

HALF = "a\ud800b"


def test_a_frame_with_half_a_pair_arrives_with_a_question_mark():
    for frame in (
        frames.Event("warning", HALF, HALF, 1.0, 2),
        frames.Hello(
            HALF, 1, 0.0, {HALF: [HALF, {"deep": (HALF, 3)}]}, HALF, "", None, None, 7, HALF, {HALF: HALF}
        ),
        frames.Drafts(1, b"\xff\x00"),
        frames.Bye(HALF, False, 1.0),
    ):
        envelope = codec.Envelope("r", 3, frame)
        found = codec.decode_frame(codec.encode(envelope))
        assert type(found.frame) is type(frame) and found.sequence == 3
        assert "\ud800" not in repr(found) and "d800" not in repr(found)
    assert codec.decode_frame(
        codec.encode(codec.Envelope("r", 0, frames.Drafts(1, b"\xff\x00")))
    ).frame.batch == (b"\xff\x00")


def test_a_command_with_half_a_pair_arrives():
    found = codec.decode_command(codec.encode(commands.SetWorkload(f"file:{HALF}", "closed:1")))
    assert found.workload == "file:a?b"


@pytest.mark.parametrize("name", ["target", "drafter", "workload", "costs", "database"])
def test_a_setting_that_is_not_text_is_refused(name):
    with pytest.raises(ConfigError, match="it must be text") as caught:
        RunConfig.make(**{name: f"/tmp/{HALF}"})
    str(caught.value).encode("utf-8")
