"""The settings form: the command line it shows starts the same run; a wrong value is said by its field."""

import shlex

import pytest
from parsing import parse

from avlab.commands.options import limited, plain_settings
from avlab.config import RunConfig
from avlab.ui import settings
from avlab.ui.cost_file import CostFileError, read_costs
from avlab.ui.presets import PRESETS


def parsed(line):
    """What the command line makes of a call."""
    words = shlex.split(line)
    assert words.pop(0) == "avlab"
    name, options = parse(words)
    assert name == "run" and not options.pop("as_json") and options.pop("concurrency") is None
    given = {name: value for name, value in options.items() if value is not None}
    return RunConfig.make(limited(plain_settings(given)))


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_a_preset_is_valid_and_its_command_line_starts_the_same(preset):
    config, wrong = settings.check(preset.values)
    assert not wrong and parsed(settings.command_line(config)).changed(database=config.database) == config


@pytest.mark.parametrize(
    "values",
    [
        {"policy": "adaptive+depth+explore=0.02", "K": 5, "temperature": 0.7, "top_p": 0.95, "duration": 30},
        {
            "workload": "drift:code,essays@60s",
            "keep_text": True,
            "head": False,
            "tokens": 1000,
            "costs": "a b.json",
        },
    ],
)
def test_any_settings_survive_the_command_line(values):
    config = RunConfig.make(values)
    assert parsed(settings.command_line(config)).changed(database=config.database) == config


@pytest.mark.parametrize(
    ("values", "field", "word"),
    [
        ({"temperature": "-1"}, "temperature", "at least 0"),
        ({"top_p": "2"}, "top_p", "at most 1"),
        ({"K": "many"}, "K", "a whole number"),
        ({"policy": "adaptve"}, "policy", "no policy"),
        ({"policy": "fixed:9"}, "policy", "K = 7"),
        ({"arrival": "sometimes"}, "arrival", "no arrival pattern"),
        ({"max_new_tokens": "4000"}, "max_new_tokens", "raise max_model_len"),
    ],
)
def test_a_wrong_value_is_said_by_its_field(values, field, word):
    config, wrong = settings.check(values)
    assert config is None and set(wrong) == {field} and word in wrong[field]


def test_every_setting_is_in_the_form():
    assert {name for names in settings.GROUPS.values() for name in names} == set(RunConfig.model_fields) - {
        "database"
    }


def test_costs_from_a_file():
    tables = read_costs(b"phase,size,ms\ndraft,1,2\nverify,1,20\nverify,11,40\n")
    assert tables.draft_at(7)[5] == 2.0 and tables.verify[6] == pytest.approx(30.0)
    tables = read_costs(b"phase,size,ms,depth\ndraft,1,2,1\ndraft,1,8,4\nverify,1,20,\nverify,11,40,\n")
    assert tables.draft_at(4)[1] == 8.0 and tables.draft_at(2)[1] == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "first line"),
        (b"a,b\n1,2\n", "first line"),
        (b"phase,size,ms\nverify,one,2\n", "Line 2"),
        (b"phase,size,ms\nverify,1,-2\n", "above 0"),
        (b"phase,size,ms\nverify,1,2\n", "no rows of phase 'draft'"),
        (b"phase,size,ms,depth\ndraft,1,2,deep\nverify,1,2,\n", "a whole depth"),
        (b"phase,size,ms,depth\ndraft,1,2,\ndraft,1,2,3\nverify,1,2,\n", "give all or none"),
        (b"\xff\xfe\x00", "UTF-8"),
    ],
)
def test_a_file_that_holds_no_costs_is_refused_with_a_sentence(data, word):
    with pytest.raises(CostFileError, match=word):
        read_costs(data)
