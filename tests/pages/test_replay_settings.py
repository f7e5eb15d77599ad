"""The form of a replay: its presets run and say that their speeds are emulated, and what is chosen is what runs."""

import pytest

from avlab.kinds.replay import ReplayConfig
from avlab.ui import replay_settings
from avlab.ui.presets import REPLAY_PRESETS


@pytest.mark.parametrize("preset", REPLAY_PRESETS, ids=lambda preset: preset.name)
def test_a_preset_is_a_replay_and_says_what_is_emulated(preset):
    config = ReplayConfig.make(preset.values)
    assert config.emulated and config.recorded.anchors
    assert "emulated" in preset.shows and "×" in preset.shows
    words = replay_settings.command_line(config).split()
    assert words[:2] == ["avlab", "run"]
    given = dict(zip(words[2::2], words[3::2], strict=True))
    assert given.pop("--duration") == "forever"
    again = ReplayConfig.make({name[2:].replace("-", "_"): value for name, value in given.items()})
    assert again.changed(database=config.database) == config


def test_presets_show_a_gain_and_a_loss():
    names = [preset.name for preset in REPLAY_PRESETS]
    assert "Adaptive wins" in names and "Adaptive loses" in names


def test_every_setting_of_a_replay_is_in_the_form():
    shown = {*replay_settings.FIRST, *(name for names in replay_settings.GROUPS.values() for name in names)}
    assert shown == set(ReplayConfig.model_fields) - {"database"}
