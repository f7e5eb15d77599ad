"""Numbers that are typed into forms: taken as they stand there, and nothing starts on a wrong one."""

import re

import pytest
from dashboard import opened, page, said
from places import ROOT

from avlab.config import ConfigError
from avlab.ui.typed import number, whole


@pytest.mark.parametrize("text", ["5000", "0", "-3", "30.5", "thirty", "1e3", "1e400", "nan", "1_0", "", " "])
def test_what_is_no_whole_number_in_bounds_is_a_sentence(text):
    with pytest.raises(ConfigError, match=r"^Rounds is .*: give a whole number from 1 to 2,000\.$"):
        whole(text, "Rounds", 1, 2000)


@pytest.mark.parametrize("text", ["10.1", "-0.1", "nan", "inf", "0,5", "1_0", "warm", ""])
def test_what_is_no_number_in_bounds_is_a_sentence(text):
    with pytest.raises(ConfigError, match=r"^Temperature is .*: give a number from 0 to 10\.$"):
        number(text, "Temperature", 0.0, 10.0)


def test_numbers_are_taken_as_they_are_typed():
    assert whole(" 30 ", "Rounds", 1, 2000) == 30 and number("0.7", "Temperature", 0.0, 10.0) == 0.7
    assert whole("2000", "Rounds", 1, 2000) == 2000 and number("1e1", "Temperature", 0.0, 10.0) == 10.0


@pytest.mark.parametrize(
    ("name", "key", "typed", "start"),
    [
        ("ab", "ab-rounds", "5000", "ab-start"),
        ("ab", "ab-concurrency", "16x", "ab-start"),
        ("ab", "ab-washout", "0", "ab-start"),
        ("ab", "ab-learn", "-1", "ab-start"),
        ("frontier", "frontier-repeats", "1000", "frontier-start"),
        ("frontier", "frontier-learn", "1e9", "frontier-start"),
        ("vllm", "attach-interval", "0", "attach-start"),
    ],
)
def test_a_form_starts_nothing_on_a_wrong_number(tmp_path, name, key, typed, start):
    with opened(tmp_path / "lab.duckdb") as lab:
        app = page(name)
        app.text_input(key=key).set_value(typed).run()
        label = app.text_input(key=key).label
        assert (
            f"{label} is" in said(app).replace("\\", "") and not app.main.error
        )  # beside its field, at once
        app.button(key=start).click().run()
        assert not app.exception and not lab.supervisor.status().alive
        assert any(error.value.startswith(f"{label} is {typed!r}: give a ") for error in app.main.error)


def test_no_form_has_a_number_field_that_keeps_to_itself_what_is_out_of_its_bounds():
    files = [*(ROOT / "pages").glob("*.py"), *(ROOT / "avlab" / "ui").glob("*.py")]
    assert not [
        file.name for file in files if re.search(r"\bnumber_input\(", file.read_text(encoding="utf-8"))
    ]
