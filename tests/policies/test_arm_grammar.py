"""A policy has one spelling everywhere, and a wrong one is refused with a sentence."""

import pytest

from avlab.policies.adaptive import Adaptive
from avlab.policies.arm import Arm, PolicyError
from avlab.policies.fixed import NONE, Fixed


@pytest.mark.parametrize(
    ("text", "arm"),
    [
        ("adaptive", Adaptive(source="online")),
        ("adaptive:online", Adaptive(source="online")),
        ("adaptive:head", Adaptive(source="head")),
        ("adaptive:raw+depth", Adaptive(source="raw", depth=True)),
        ("adaptive+explore=0.02", Adaptive(source="online", explore=0.02)),
        (
            "adaptive:online+depth+explore=0.02",
            Adaptive(source="online", depth=True, explore=0.02),
        ),
        ("fixed:3", Fixed(3)),
        ("fixed:0", NONE),
        ("verify:0", Fixed(0, drafts_all=True)),
        ("verify:7", Fixed(7, drafts_all=True)),
        (" none ", NONE),
    ],
)
def test_every_form_of_the_grammar(text, arm):
    assert Arm.parse(text) == arm
    assert Arm.parse(str(arm)) == arm


@pytest.mark.parametrize(
    "text",
    ["", "adaptve", "adaptive:", "adaptive:oracle", "adaptive+", "adaptive+depth=2", "adaptive+depth+depth"]
    + ["adaptive+explore", "adaptive+explore=2", "adaptive+explore=nan", "adaptive+explore=-0.1"]
    + ["fixed", "fixed:", "fixed:-1", "fixed:2.5", "fixed:3+depth", "verify:x", "none:1", "none+depth"],
)
def test_anything_else_is_one_sentence(text):
    with pytest.raises(PolicyError) as error:
        Arm.parse(text)
    assert "\n" not in str(error.value) and str(error.value).endswith(".")


def test_a_length_beyond_the_drafter_is_refused():
    assert Arm.parse("fixed:7", K=7).k == 7
    with pytest.raises(PolicyError, match="K = 7"):
        Arm.parse("fixed:8", K=7)


def test_what_an_arm_does():
    assert Arm.parse("adaptive").learns and Arm.parse("adaptive").drafts
    assert not Arm.parse("adaptive:raw").learns
    assert not Arm.parse("fixed:2").learns
    assert not Arm.parse("none").drafts
