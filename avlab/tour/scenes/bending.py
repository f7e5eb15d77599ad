"""Why a better predictor can bend the text: two tokens."""

import numpy as np

from avlab.bias.cases import bias
from avlab.bias.grammar import parse_rule
from avlab.figures import bias as figures
from avlab.tour.base import Control, Quiz, Scene, View

TARGET = 0.5
DRAFTS = tuple(round(0.05 * step, 2) for step in range(1, 20))
THRESHOLD = 0.5


def draw(place: int) -> View:
    q = DRAFTS[place]
    target, draft = np.array([TARGET, 1 - TARGET]), np.array([q, 1 - q])
    drawn, maximum = (
        bias(target, draft, parse_rule(f"{kind}:{THRESHOLD:g}")) for kind in ("drawn", "maximum")
    )
    return View(
        "What comes out, exactly",
        figures.outputs(
            ("a", "b"),
            target,
            [("drawn token's q", drawn.output, False), ("maximum of q", maximum.output, True)],
        ),
        f"Draft ({q:g}, {1 - q:g}), target ({TARGET:g}, {1 - TARGET:g}). Verified only if the drawn token's own "
        f"probability is {THRESHOLD:g} or more: a comes out at {drawn.output[0]:.3f} instead of {TARGET:g}. Verified "
        f"by the row's maximum, which is known before the draw: {maximum.output[0]:.3f}.",
        "Grey: what is due. Red: a rule that looks at the drawn token. Green: one that looks at the row alone. The "
        "Sampling bias page has more cases.",
    )


SCENE = Scene(
    order=8,
    name="bending",
    title="A better predictor can bend the text",
    question="The drawn token's own probability predicts acceptance better than the row's maximum. Why not use it?",
    control=Control("Draft's probability of a", tuple(f"{q:g}" for q in DRAFTS), 3),
    draw=draw,
    notes=(
        "Ask the quiz first: most say that skipping a check cannot change what the target writes.",
        "A draft that is not verified is replaced by the target's own draw. If unlikely drafts are skipped, the token "
        "that the drafter rarely proposes is drawn twice: once as a draft, once again by the target.",
        "Move to 0.5: the bars meet, since then the rule cannot tell the tokens apart.",
        "Non-anticipating: whether a slot is verified may depend on what came before, not on the token drawn there.",
    ),
    quiz=Quiz(
        "Drafts that are unlikely under the drafter are not verified: the target draws there itself. The text then is",
        ("distributed as the target alone would write it", "bent", "the drafter's"),
        1,
    ),
)
