"""Calibration against ranking: two virtues of an estimate that do not come together."""

import functools

import numpy as np

from avlab.figures import calibration
from avlab.speculation.calibration import scores
from avlab.speculation.features import log_odds
from avlab.tour.base import Control, Scene, View
from avlab.tour.material import feature, labels, sums_of
from avlab.tour.scenes.learning import learnt

NAMES = (
    "learnt online",
    "three times as sure",
    "each position's mean",
    "the drafter's own maximum",
)


@functools.cache
def estimates(place: int) -> np.ndarray:
    """Log-odds [A, K]."""
    best = learnt()[-1].predict_log_odds(feature())
    match place:
        case 0:
            return best
        case 1:
            return 3 * best
        case 2:
            label, labelled = labels()
            share = (label & labelled).sum(axis=0) / labelled.sum(axis=0)
            return np.broadcast_to(log_odds(share), best.shape)
        case _:
            return feature()


SAID = (
    "It ranks, and it means what it says: the budget can trust both.",
    "The same ranking to the last draft, so the same AUC; but it promises too much and too little. A budget that "
    "weighs probability against milliseconds goes wrong.",
    "Perfectly honest on average, and it cannot tell one draft from another: whom to verify is then a coin.",
    "It ranks nearly as well as what is learnt from it, and is too sure: this is what learning corrects.",
)


def draw(place: int) -> View:
    sums = sums_of(estimates(place))
    found = scores(sums)
    source = ("converged", "converged", "monotone", "raw")[place]
    figure = calibration.reliability_diagram({source: sums})
    figure.update_layout(showlegend=False)
    return View(
        f"{NAMES[place].capitalize()}: calibration error {found.ece:.3f}, AUC {found.auc:.3f}",
        figure,
        f"Calibration error {found.ece:.3f}, AUC {found.auc:.3f}. {SAID[place]}",
        "AUC: the chance that an accepted draft is ranked above a refused one; 0.5 is a coin. Calibration error: the "
        "mean distance from the dashed line.",
    )


SCENE = Scene(
    order=5,
    name="calibration",
    title="Calibration against ranking",
    question="Is an estimate good because it ranks drafts, or because it means what it says?",
    control=Control("Estimates", NAMES, 0, slider=False),
    draw=draw,
    notes=(
        "Ranking decides which drafts are verified, calibration how many.",
        "'Three times as sure' multiplies all log-odds by three: AUC stays to the last digit, calibration breaks.",
        "'Each position's mean' is the opposite: no error on average, and little to choose by.",
        "Ask which of the two a threshold rule needs, and which one a budget needs.",
    ),
)
