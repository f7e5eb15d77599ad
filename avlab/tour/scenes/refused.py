"""What a refused draft costs: little when few are served, much when many are."""

import plotly.graph_objects as go

from avlab.figures import palette
from avlab.figures.base import frame
from avlab.tour.base import Control, Scene, View
from avlab.tour.material import emulated, step_ms, tokens_per_step, trace

LOADS = (1, 4, 16, 32, 64, 96, 120)


def draw(place: int) -> View:
    requests, K = LOADS[place], trace().about.K
    lengths = list(range(K + 1))
    ms = [sum(step_ms(requests, length)) for length in lengths]
    tokens = [tokens_per_step(length) for length in lengths]
    rate = [1e3 * requests * token / each for token, each in zip(tokens, ms, strict=True)]
    best = max(lengths, key=rate.__getitem__)
    figure = frame("draft tokens verified for each request", "output tokens a second", 340, y_from_zero=True)
    figure.add_trace(
        go.Bar(
            x=lengths, y=rate, name="output tokens a second", hovertemplate="%{y:,.0f} tokens/s",
            marker={"color": [palette.ACCEPTED if length == best else palette.faint(palette.RATE, 0.6)
                              for length in lengths]},
        )
    )  # fmt: skip
    figure.update_layout(xaxis={"dtick": 1}, showlegend=False)
    accepted = tokens[K] - 1
    return View(
        f"Throughput by length, {requests} request{'s' if requests > 1 else ''}",
        figure,
        f"Of 7 drafts {accepted:.2f} are accepted, so {K - accepted:.2f} are checked in vain. With {requests} "
        f"request{'s' if requests > 1 else ''} the step of 7 takes {ms[K] / ms[0]:.2f} × as long as one without "
        f"drafts; the best length is {best}.",
        "Green: the best fixed length at this load. Acceptance is the same at every load; only the price of a row in "
        "the target's pass differs.",
    )


SCENE = Scene(
    order=2,
    name="refused",
    title="What a refused draft costs",
    question="Five of seven drafts are refused. When does that matter?",
    control=Control("Requests served together", tuple(map(str, LOADS)), 0),
    draw=draw,
    notes=(
        "One request: the bars hardly differ beyond 3. A refused draft costs its share of one pass, nearly nothing.",
        "Move to 64: the same drafts, refused as often, now make the step longer for everybody.",
        "A length that is right in the morning is wrong at noon. Keep that in mind until scene 6.",
    ),
    emulated=emulated,
)
