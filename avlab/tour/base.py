"""What a scene is: a question, one thing to change, a figure and a sentence for each of its positions."""

from collections.abc import Callable
from dataclasses import dataclass

import plotly.graph_objects as go


@dataclass(frozen=True, slots=True)
class Control:
    """The one thing to change. options: its positions, as they are shown. at: where it begins."""

    label: str
    options: tuple[str, ...]
    at: int = 0
    slider: bool = True


@dataclass(frozen=True, slots=True)
class View:
    """What is seen at one position. title: of the figure. says: the finding, in a sentence or two. reading: how to read
    the figure, under it."""

    title: str
    figure: go.Figure
    says: str
    reading: str


@dataclass(frozen=True, slots=True)
class Quiz:
    """A question that is asked before the figure is shown. right: the place of the true answer."""

    asked: str
    answers: tuple[str, ...]
    right: int


@dataclass(frozen=True, slots=True)
class Scene:
    """One idea. name: in addresses. draw: the view at a position of the control, fast and always the same. notes: for
    whoever speaks. emulated: whose its speeds are, in words; None where it states none."""

    order: int
    name: str
    title: str
    question: str
    control: Control
    draw: Callable[[int], View]
    notes: tuple[str, ...]
    quiz: Quiz | None = None
    emulated: Callable[[], str] | None = None
