"""Why a GPU's pass costs the same for one token and for sixty: a machine's curve to drag through."""

import numpy as np
import plotly.graph_objects as go

from avlab.figures import palette
from avlab.figures.base import frame, line
from avlab.tour.base import Control, Scene, View
from avlab.tour.material import dense_emulated, dense_gpu

TOKENS = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


def draw(place: int) -> View:
    tokens = TOKENS[place]
    verify = dense_gpu().verify
    x = np.unique(np.append(np.geomspace(1, TOKENS[-1], 120).astype(int), TOKENS))
    figure = frame("tokens in the target's pass", "milliseconds", 360, y_from_zero=True, legend=False)
    figure.add_trace(
        line("pass", x, verify[x], palette.PHASES["verify"], hovertemplate="%{x} tokens: %{y:.1f} ms")
    )
    figure.add_trace(
        go.Scatter(
            x=[tokens], y=[verify[tokens]], mode="markers", marker={"size": 16, "color": palette.CHOSEN},
            hovertemplate="%{x} tokens: %{y:.1f} ms<extra></extra>",
        )
    )  # fmt: skip
    figure.update_xaxes(type="log", tickvals=[1, 4, 16, 64, 256, 1024])
    ratio = verify[tokens] / verify[1]
    if tokens == 1:
        said = f"One token takes {verify[1]:.1f} ms: the time to read the model's weights from memory, once."
    elif tokens <= 64:
        said = f"{tokens} tokens take {ratio:.2f} × as long as one. Weights are still read once."
    else:
        said = (
            f"{tokens} tokens take {ratio:.2f} × as long as one, {verify[tokens] / tokens * 1e3:.0f} µs a token: now "
            "the arithmetic is the longer part, and every row has a price."
        )
    return View(
        "Cost of the target's pass",
        figure,
        said,
        f"{dense_gpu().about.title}, by NVIDIA's operation tables: kernel times. The Budget page has other machines.",
    )


SCENE = Scene(
    order=3,
    name="machine",
    title="A machine's curve",
    question="Why does a GPU's pass cost nearly the same for one token and for sixty?",
    control=Control("Tokens in the pass", tuple(map(str, TOKENS)), 0),
    draw=draw,
    notes=(
        "Drag slowly from 1 to 64. The point moves right and hardly up: weights are read once a pass, for all rows.",
        "From 256 on it rises: arithmetic has become the longer part.",
        "A mixture of experts rises sooner, as the B300 of the other scenes does: more tokens wake more experts, whose "
        "weights must be read too.",
        "A budget rule needs nothing but this curve and a probability for each draft.",
    ),
    emulated=dense_emulated,
)
