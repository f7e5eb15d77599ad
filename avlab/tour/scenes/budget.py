"""The budget under rising load: predict, then reveal."""

import numpy as np
import plotly.graph_objects as go

from avlab.figures import palette
from avlab.figures.base import frame, line
from avlab.speculation.budget import objective, peak, survival
from avlab.speculation.features import probability
from avlab.tour.base import Control, Quiz, Scene, View
from avlab.tour.material import emulated, feature, gpu, trace
from avlab.tour.scenes.learning import learnt

LOADS = (1, 2, 4, 8, 16, 32, 64, 96, 128)


def draw(place: int) -> View:
    requests, K = LOADS[place], trace().about.K
    rows = np.random.default_rng(5).choice(trace().anchors, requests, replace=False)
    survivals = survival(probability(learnt()[-1].predict_log_odds(feature()[rows])))
    costs = gpu().table()
    curve = 1e3 * objective(survivals, costs.draft_at(K), costs.verify, requests, requests, requests)
    best = peak(curve)
    figure = frame("budget: draft tokens verified in the step", "expected tokens a second", 340, legend=False)
    figure.add_trace(
        line("expected", np.arange(len(curve)), curve, palette.RATE, hovertemplate="%{x}: %{y:,.0f} tokens/s")
    )
    figure.add_trace(
        go.Scatter(
            x=[best], y=[curve[best]], mode="markers", marker={"size": 16, "color": palette.CHOSEN},
            hovertemplate="%{x} draft tokens: %{y:,.0f} tokens/s<extra></extra>",
        )
    )  # fmt: skip
    figure.update_yaxes(range=[0, 1.12 * float(curve.max())])
    return View(
        f"Expected tokens a second, {requests} request{'s' if requests > 1 else ''}",
        figure,
        f"Of {requests * K:,} draft tokens {best:,} are worth verifying, {best / requests:.1f} for each request: "
        f"{curve[best]:,.0f} tokens a second expected, {curve[-1]:,.0f} if all were verified.",
        "Drafts are taken in the order of their chance to survive. Each adds its chance to the tokens and its row to "
        "the time; the peak is where the next one no longer pays.",
    )


SCENE = Scene(
    order=6,
    name="budget",
    title="The budget under rising load",
    question="How many draft tokens is it worth verifying when more requests are served?",
    control=Control("Requests served together", tuple(map(str, LOADS)), 0),
    draw=draw,
    notes=(
        "Have the class answer the question first, then reveal.",
        "Move through the loads. In all more drafts are verified; for each request fewer.",
        "The curve is flat where the machine's is flat, and falls where a row has a price: scene 3 in another guise.",
        "No setting was changed between the positions. The rule read the load off its own step.",
    ),
    quiz=Quiz(
        "Load rises from 1 request to 128. How many draft tokens a request should be verified?",
        ("More: there are more to choose from", "As many as before", "Fewer: each one makes the step longer"),
        2,
    ),
    emulated=emulated,
)
