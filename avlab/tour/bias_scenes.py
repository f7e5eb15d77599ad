"""The Sampling bias page for a browser without a server: its cases, each with its question first.

Two tokens, drafts and targets of three tokens, and every ready-made scene under each of its rules, all computed
beforehand. The parts that sample for minutes or run the engine stay in the dashboard.
"""

import functools
import math
from collections.abc import Sequence

import numpy as np

from avlab.bias import scenes
from avlab.bias.cases import bias
from avlab.bias.grammar import parse_rule
from avlab.bias.ready_made_scenes import SCENES
from avlab.bias.scenes import LETTERS, Outcome
from avlab.figures import bias as figures
from avlab.formats import number
from avlab.tour.base import Control, Quiz, Scene, View

PART = "Sampling bias"
THRESHOLDS = tuple(round(0.1 * step, 1) for step in range(11))
SEEDS = tuple(range(8))
ALL, NONE = "all of them", "none of them"
GREEN = "Grey: what is due. Green rules are sound, red ones are not."


@functools.cache
def bias_scenes() -> tuple[Scene, ...]:
    """All cases, in the order of the page; names begin with "bias-"."""
    made = (_ready_made(place, short, make()) for place, (short, make) in enumerate(SCENES.items()))
    return (_thresholds(), _any_rows(), *made)


def _needs(outputs: float) -> str:
    return (
        "nobody can notice"
        if math.isinf(outputs)
        else f"an auditor needs {number(outputs, 0)} outputs to notice"
    )


def _two_rules(target: np.ndarray, draft: np.ndarray, threshold: float, title: str, told: str) -> View:
    """What comes out under the rule of the drawn token and under that of the row's maximum."""
    drawn, maximum = (
        bias(target, draft, parse_rule(f"{kind}:{threshold:g}")) for kind in ("drawn", "maximum")
    )
    bent = drawn.total_variation > 1e-9
    said = (
        f"Under the drawn token's q the output is off by a total variation of {drawn.total_variation:.3f}: "
        f"{_needs(drawn.sample_size)} (1 % level, power 90 %). Under the maximum it stays what is due."
        if bent
        else "Both rules verify the same drafts here, or none: what comes out is what is due."
    )
    bars = [("drawn token's q", drawn.output, False), ("maximum of q", maximum.output, True)]
    return View(title, figures.outputs(LETTERS[: len(target)], target, bars), f"{told} {said}", GREEN)


def _thresholds() -> Scene:
    target, draft = np.array([0.5, 0.5]), np.array([0.2, 0.8])

    def draw(place: int) -> View:
        told = f"Target (0.5, 0.5), draft (0.2, 0.8), threshold {THRESHOLDS[place]:g}."
        return _two_rules(target, draft, THRESHOLDS[place], "What comes out, exactly", told)

    return Scene(
        order=101,
        name="bias-two-tokens",
        title="Two tokens",
        question="A draft is verified only if its own probability reaches a threshold. What comes out?",
        control=Control("Threshold", tuple(f"{t:g}" for t in THRESHOLDS), 5),
        draw=draw,
        notes=(
            "Move the threshold past 0.2 and 0.8: in between, only one of the two tokens is ever verified.",
            "A rule of the row, such as its maximum, is known before the draw and never bends the output.",
        ),
        quiz=Quiz(
            "Target (0.5, 0.5), draft (0.2, 0.8); only drafts with a probability of 0.5 or more are verified. Then a",
            ("comes out as often as due", "comes out too rarely", "comes out too often"),
            2,
        ),
    )


def _any_rows() -> Scene:
    def draw(place: int) -> View:
        random = np.random.default_rng(SEEDS[place])
        target, draft = random.dirichlet([1.0] * 3), random.dirichlet([1.0] * 3)
        rows = "; ".join(
            f"{name} ({', '.join(f'{value:.2f}' for value in row)})"
            for name, row in (("target", target), ("draft", draft))
        )
        return _two_rules(
            target, draft, 0.4, "Three tokens, exactly", f"Drawn at random: {rows}; threshold 0.4."
        )

    return Scene(
        order=102,
        name="bias-any-rows",
        title="Any distributions",
        question="Is it only those two tokens, or does it happen with other probabilities too?",
        control=Control("Distributions", tuple(str(seed + 1) for seed in SEEDS), 0),
        draw=draw,
        notes=(
            "Eight targets and drafts of three tokens, drawn at random. Most bend under the drawn token's rule.",
            "In the dashboard, part 2 of Sampling bias takes rows of your own.",
        ),
    )


def _ready_made(place: int, short: str, scene: scenes.Scene) -> Scene:
    found = scenes.outcomes(scene)
    names = tuple(each.arm.name for each in found)
    bend = tuple(each.arm.name for each in found if each.bends)

    def draw(which: int) -> View:
        if not which:
            figure = figures.variations([(e.arm.name, e.total_variation, e.arm.sound) for e in found], 0.0)
            return View(
                "How far from the target", figure, scene.shows, "Total variation; 0 is exact. " + GREEN
            )
        return _of_rule(scene, found[which - 1])

    return Scene(
        order=103 + place,
        name=f"bias-{short.replace(' ', '-')}",
        title=scene.name,
        question=scene.sentence,
        control=Control("Rule", ("all", *names), 0, slider=False),
        draw=draw,
        notes=(scene.try_this, "Every draw was enumerated: these bars are exact, not sampled."),
        quiz=_which_bend(names, bend),
    )


def _of_rule(scene: scenes.Scene, outcome: Outcome) -> View:
    """The outputs under one rule."""
    bars = [(outcome.arm.name, outcome.token, outcome.arm.sound)]
    says = (
        f"{outcome.arm.name}: off by a total variation of {outcome.total_variation:.4f} over "
        f"{scene.length * len(scene.starts)} output tokens together; {_needs(outcome.sample_size)}."
        if outcome.bends
        else f"{outcome.arm.name}: exactly what is due."
    )
    which = ("first", "second", "third")[scene.position]
    figure = figures.outputs(list(LETTERS[: scene.pair.V]), outcome.token_due, bars)
    return View(f"The {which} token", figure, says, GREEN)


def _which_bend(names: Sequence[str], bend: Sequence[str]) -> Quiz:
    """Which rules bend the output: each alone, all, none, and the true answer where it is another."""
    answers = [*names, ALL, NONE]
    right = ALL if len(bend) == len(names) else " and ".join(bend) or NONE
    if right not in answers:
        answers.insert(-1, right)
    return Quiz("Which rules bend the output?", tuple(answers), answers.index(right))
