"""The same traffic under a fixed length and under adaptive verification: two lanes on one clock."""

import numpy as np

from avlab.figures import palette
from avlab.figures.base import frame, line
from avlab.policies.arm import DEFAULT_ARM
from avlab.tour.base import Control, Scene, View
from avlab.tour.lanes import FIXED, RATES, STEP, arrivals, recorded
from avlab.tour.material import emulated


def draw(place: int) -> View:
    rival, ours = recorded()[FIXED[place]], recorded()[DEFAULT_ARM]
    figure = frame("seconds", "requests under way or waiting", 340, y_from_zero=True)
    for lane, colour in ((rival, palette.REJECTED), (ours, palette.ACCEPTED)):
        seconds = STEP * np.arange(len(lane.inside))
        figure.add_trace(line(lane.arm, seconds, lane.inside, colour, hovertemplate="%{y} at %{x:.1f} s"))
    begin, busy = RATES[0][0], RATES[1][0]
    figure.add_vrect(
        x0=begin, x1=begin + busy, fillcolor=palette.faint(palette.EVENT, 0.12), line_width=0,
        annotation_text=f"{RATES[1][1]:.0f} requests a second", annotation_position="top left",
    )  # fmt: skip
    figure.update_layout(xaxis={"range": [0, 46]})
    most = max(rival.inside) / max(ours.inside)
    return View(
        "Two lanes, one clock",
        figure,
        f"At most {max(rival.inside)} requests are in the house under {rival.arm}, {max(ours.inside)} under adaptive "
        f"verification ({most:.2f} ×). Half of all users see their first token within {rival.first:.2f} s and "
        f"{ours.first:.2f} s; the last one is done after {rival.ended:.1f} s and {ours.ended:.1f} s.",
        f"The same {len(arrivals()):,} requests arrive at the same moments in both lanes, and get the same text. Grey: "
        "the busy ten seconds. A line that rises means that more arrive than are served.",
    )


SCENE = Scene(
    order=7,
    name="lanes",
    title="Two lanes on one clock",
    question="What does a length that was chosen in a calm hour do when a busy one comes?",
    control=Control("The other lane", FIXED, len(FIXED) - 1, slider=False),
    draw=draw,
    notes=(
        "fixed:7 is right for one user and wrong for a hundred: a queue builds up that outlasts the rush by far.",
        "fixed:2 is what somebody would choose who knew the rush. It loses little, and it loses when it is calm.",
        "Adaptive verification was told neither. It reads the load off its own step.",
        "Everything but the costs is exact: the texts were recorded once, with a draft at every position.",
    ),
    emulated=emulated,
)
