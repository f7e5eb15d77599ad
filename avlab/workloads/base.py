"""What every workload is made of: a prompt, a kind of prompts, and the language of their templates."""

import hashlib
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

SPLITS = ("all", "training", "held-out")
PROMPTS_A_KIND = 600
Turns = tuple[tuple[str, str], ...]
Template = TypeVar("Template")
OWN_SOURCE, OWN_LICENCE = "templates written for avlab", "avlab's own"


class WorkloadError(ValueError):
    """A workload that cannot be served; its message is one sentence that says what to change."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one request asks to be sampled; None: as the run's settings say."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None

    def over(self, **settings: float) -> dict[str, Any]:
        """These settings, with what this request asks for in their place."""
        return {
            name: value if (own := getattr(self, name)) is None else own for name, value in settings.items()
        }


@dataclass(frozen=True, slots=True)
class Prompt:
    """One conversation waiting for an answer.

    `turns` is a tuple of (role, content) pairs; the last one is the user's. `source` and `licence` say where
    the words come from. `max_new_tokens` is a suggestion, in tokens of the target; `sampling` is what a file asks for
    its request. `extras` are what turns have beside role and content, such as tool calls: one a turn, or none at all.
    `given` is what the chat template reads beside the turns, such as `tools`. `id` is made of the kind and of a hash of
    the words, so that the same words have the same name on every machine.
    """

    kind: str
    turns: Turns
    source: str
    licence: str
    max_new_tokens: int
    sampling: Sampling = Sampling()
    extras: tuple[Mapping[str, Any], ...] = field(default=(), compare=False)
    given: Mapping[str, Any] = field(default_factory=dict, compare=False)
    id: str = field(init=False)

    def __post_init__(self) -> None:
        beside = json.dumps([self.extras, self.given]) if self.extras or self.given else ""
        object.__setattr__(self, "id", f"{self.kind}-{text_hash(self.text + beside)[:12]}")

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The turns as a chat template takes them: a list of {"role": ..., "content": ..., ...}."""
        extras = self.extras or ({},) * len(self.turns)
        return [
            {"role": role, "content": content, **extra}
            for (role, content), extra in zip(self.turns, extras, strict=True)
        ]

    @property
    def text(self) -> str:
        """Every turn in one string; what tells two prompts apart."""
        return "\n".join(f"{role}: {content}" for role, content in self.turns)


@dataclass(frozen=True, slots=True)
class Kind:
    """A rung of the ladder of output entropy; the one that a module holds as `KIND` is found by name.

    `rung` orders the ladder, the most predictable output first. `build(seed)` returns at least 200 distinct
    prompts, the same ones for the same seed.
    """

    name: str
    description: str
    rung: int
    max_new_tokens: int
    build: Callable[[int], list[Prompt]]


def text_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def split(prompt: Prompt) -> str:
    """The side a prompt is on: "held-out" for one in five, "training" for the others.

    Decided by what the user says and by nothing else, so a question stays on its side on every machine, for
    every seed and under every system message: what a drafter was trained on is never what it is measured on.
    (Two prompts of one template can be on different sides.)
    """
    asked = "\n".join(content for role, content in prompt.turns if role == "user")
    return "held-out" if int(text_hash(asked)[:8], 16) % 5 == 0 else "training"


def generator(*key: object) -> random.Random:
    """A random generator of its own for each key, such as ("verse", seed)."""
    return random.Random("/".join(map(str, key)))


SLOT = re.compile(r"\{(\w+)(?::(\d+)\.\.(\d+)(?:/(\d+))?)?\}")


def fill(template: str, slots: Mapping[str, Sequence[str]], draw: random.Random) -> str:
    """A template with its slots filled.

    `{city}` is drawn from slots["city"]; a second `{city}` repeats it; `{city_b}` is another city. `{n:2..9}`
    is an integer from 2 to 9, `{n:10..90/5}` is 10, 15, ... or 90. A drawn value may hold slots itself.
    """
    chosen: dict[str, str] = {}

    def value(match: re.Match[str]) -> str:
        name, low, high, step = match.groups()
        if name not in chosen:
            if low is not None:
                chosen[name] = str(draw.randrange(int(low), int(high) + 1, int(step or 1)))
            else:
                options = slots[name] if name in slots else slots[name.rsplit("_", 1)[0]]
                chosen[name] = draw.choice([option for option in options if option not in chosen.values()])
        return chosen[name]

    while SLOT.search(template):
        template = SLOT.sub(value, template)
    return template


def distinct(make: Callable[[int], Turns], count: int = PROMPTS_A_KIND) -> Iterator[Turns]:
    """`count` distinct results of make(0), make(1), ...; a repeated one is passed over.

    Raises WorkloadError when 20 times as many tries do not yield them.
    """
    seen = set()
    for attempt in range(20 * count):
        result = make(attempt)
        if result not in seen:
            seen.add(result)
            yield result
            if len(seen) == count:
                return
    raise WorkloadError(f"the templates gave {len(seen)} distinct prompts where {count} were asked for.")


def own(kind: str, max_new_tokens: int, turns: Turns) -> Prompt:
    """A prompt made of our own words."""
    return Prompt(kind, turns, OWN_SOURCE, OWN_LICENCE, max_new_tokens)


def in_turn(templates: Sequence[Template], draw: random.Random) -> Callable[[int], Template]:
    """Attempt number to template: every template is used equally often, in an order shuffled once."""
    order = list(templates)
    draw.shuffle(order)
    return lambda attempt: order[attempt % len(order)]


def on_subjects(
    kind: str, forms: Sequence[str], slots: Mapping[str, Sequence[str]], seed: int
) -> Iterator[Turns]:
    """Prompts of every form on every subject in turn. slots: with "subject"; a form's "{subject_b}" is another one."""
    draw = generator(kind, seed)
    subjects = slots["subject"]
    next_form, next_subject = in_turn(forms, draw), in_turn(subjects, draw)

    def make(attempt: int) -> Turns:
        subject = next_subject(attempt)
        others = [each for each in subjects if each != subject]
        form = next_form(attempt + attempt // len(subjects))
        return (("user", fill(form, {**slots, "subject": [subject], "subject_b": others}, draw)),)

    return distinct(make)
