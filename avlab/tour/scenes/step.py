"""A step of decoding on a time bar: plain, and with drafts."""

import numpy as np
import plotly.graph_objects as go

from avlab.figures import palette
from avlab.figures.base import frame
from avlab.tour.base import Control, Scene, View
from avlab.tour.material import emulated, step_ms, tokens_per_step, trace

MILLISECONDS = 60.0
TEXT = 11  # of the trace; its first anchors are shown
LANES = ("drafted", "plain")


def draw(length: int) -> View:
    figure = frame("milliseconds", "", 300, unified=False)
    counts = []
    for lane, depth in zip(LANES, (length, 0), strict=True):
        counts.append(_lane(figure, lane, depth))
    figure.update_layout(barmode="overlay", xaxis={"range": [0, MILLISECONDS]}, yaxis={"type": "category"})
    drafted, plain = counts
    each = sum(step_ms(1, length)) / tokens_per_step(length)
    return View(
        "One request, with and without drafts",
        figure,
        f"In {MILLISECONDS:.0f} ms plain decoding writes {plain} tokens, and with {length} drafts {drafted}. "
        f"Over all texts a token takes {each:.1f} ms with drafts and {sum(step_ms(1, 0)):.1f} ms without."
        if length
        else f"Without drafts both lanes are the same: one pass of the target, one token, {plain} of them.",
        "Light blue: the drafter proposes. Blue: the target checks all drafts in one pass. Dots: tokens that come out, "
        "green for accepted drafts, grey for the target's own. A step with drafts is longer and writes more.",
    )


def _lane(figure: go.Figure, lane: str, depth: int) -> int:
    """Draw steps until the time is over; returns the tokens that came."""
    anchor, left = int(trace().first[TEXT]), int(trace().output_tokens[TEXT])
    draft, verify, rest = step_ms(1, depth)
    now, tokens, at = 0.0, 0, 0
    places: list[tuple[float, str]] = []
    starts = []
    while now + draft + verify + rest <= MILLISECONDS and at < left - 1:
        starts.append(now)
        kept = min(int(trace().accepted[anchor + at]), depth)
        now += draft + verify + rest
        places += [(now - 0.9 * (kept - k), palette.ACCEPTED) for k in range(kept)] + [(now, palette.EVENT)]
        tokens, at = tokens + kept + 1, at + kept + 1
    base = np.array(starts)
    for name, shift, length, colour in (
        ("draft", 0.0, draft, palette.PHASES["draft"]),
        ("target's pass", draft, verify + rest, palette.PHASES["verify"]),
    ):
        if length:
            figure.add_trace(
                go.Bar(
                    y=[lane] * len(base), x=[length] * len(base), base=base + shift, orientation="h", width=0.45,
                    name=name, marker={"color": colour, "line": {"width": 1.5, "color": "white"}},
                    showlegend=lane == LANES[0] or (name != "draft" and depth == 0 and len(figure.data) < 1),
                    hovertemplate=f"{name}: {length:.1f} ms<extra></extra>",
                )
            )  # fmt: skip
    figure.add_trace(
        go.Scatter(
            y=[lane] * len(places), x=[place for place, _ in places], mode="markers", showlegend=False,
            marker={"color": [colour for _, colour in places], "size": 11, "line": {"width": 1, "color": "white"}},
            hovertemplate="a token at %{x:.1f} ms<extra></extra>",
        )
    )  # fmt: skip
    return tokens


SCENE = Scene(
    order=1,
    name="step",
    title="A step of decoding",
    question="What does a draft change about one step?",
    control=Control("Draft tokens a step", tuple(map(str, range(8))), 3),
    draw=draw,
    notes=(
        "Begin at 0: both lanes are plain decoding. One pass, one token.",
        "Go to 3. The step is a little longer, since the drafter runs first, and the pass checks four rows at once.",
        "Ask who decides what is written. The target does: an accepted draft is one that the target could have drawn.",
        "Go to 7. Most late drafts are refused. The next scene asks what that costs.",
    ),
    emulated=emulated,
)
