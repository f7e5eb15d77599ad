"""How K + 1 numbers learn, from a bad start."""

import functools

import numpy as np

from avlab.figures import calibration
from avlab.speculation.calibration import scores
from avlab.speculation.estimators.base import named
from avlab.speculation.features import Features, probability
from avlab.speculation.labels import Labels
from avlab.speculation.regression import Coefficients
from avlab.tour.base import Control, Scene, View
from avlab.tour.material import FEATURE, feature, labels, sums_of, trace

REFITS = 12
SLOPE, INTERCEPT = 1.6, 1.5  # the bad start: far too sure of everything
REQUESTS, STEPS = 16, 25  # of a round
HELD_OUT = slice(0, 8000)  # anchors that the scene judges on; it learns from the others


@functools.cache
def learnt() -> tuple[Coefficients, ...]:
    """The coefficients before the first refit and after each, learnt from whole drafts of other texts."""
    K = trace().about.K
    estimator = named("converged")(K, STEPS)
    estimator.coefficients = Coefficients(SLOPE, np.full(K, INTERCEPT))
    found = [estimator.coefficients]
    label, labelled = labels()
    order = np.random.default_rng(3).permutation(np.arange(HELD_OUT.stop, trace().anchors))
    for step in range(REFITS * STEPS):
        rows = order[step * REQUESTS : (step + 1) * REQUESTS]
        features = Features((FEATURE,), feature()[rows][..., None])
        estimator.observe(
            features, probability(estimator.predict(features)), Labels(label[rows], labelled[rows])
        )
        if estimator.end_step() is not None:
            found.append(estimator.coefficients)
    return tuple(found)


def draw(refit: int) -> View:
    now = learnt()[refit]
    sums = sums_of(now.predict_log_odds(feature()), HELD_OUT)
    found = scores(sums)
    seen = refit * STEPS * REQUESTS
    beta = ", ".join(f"{value:.1f}" for value in now.intercepts)
    start = "The bad start: it is sure of everything. " if not refit else f"After {seen:,} drafts: "
    return View(
        "Do estimates mean what they say?",
        calibration.reliability_diagram({"converged": sums}),
        f"{start}slope {now.slope:.2f}, intercepts {beta}. Calibration error {found.ece:.3f}, on texts that it has "
        "not seen.",
        "On the dashed line an estimate of 80 % means 80 % accepted. Below it the estimator promises too much. Bars: "
        "95 % intervals.",
    )


SCENE = Scene(
    order=4,
    name="learning",
    title="How K + 1 numbers learn",
    question="Eight numbers make a probability of the drafter's confidence. How fast do they leave a bad start?",
    control=Control("Refits", tuple(map(str, range(REFITS + 1))), 0),
    draw=draw,
    notes=(
        "One slope says how far to trust the drafter's confidence, one intercept a position corrects it there.",
        "Move right one refit at a time: each has seen 400 drafts more. Labels cost nothing, they are the accepts and "
        "refusals of serving.",
        "Press Forget to begin again. Ask how many refits the class would have waited before trusting it.",
    ),
)
