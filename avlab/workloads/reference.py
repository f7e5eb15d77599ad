"""Passages of the Python reference and of numpy's manual, to be explained, shortened, listed or asked about."""

import inspect
from functools import lru_cache

from .base import PROMPTS_A_KIND, Kind, Prompt, generator, in_turn
from .installed_text import PYTHON_LICENCE, reference_passages

MAX_NEW_TOKENS = 200

FORMS = (
    "Explain this passage of {manual} ({topic}) in plain words.\n\n{passage}",
    "Summarise in two sentences:\n\n{passage}",
    "From {manual}, on {topic}:\n\n{passage}\n\nList the rules it states, one a line.",
    "Rewrite this paragraph about {topic} for somebody who has programmed for a month.\n\n{passage}",
    "Give a short Python example of what this text about {topic} says.\n\n{passage}",
    "Read this and write three questions with their answers.\n\n{passage}",
    "Copy the following text and put every technical term in bold.\n\n{passage}",
    "What is the most important sentence here? Quote it, then say why.\n\n{passage}",
    "Turn this passage on {topic} into a glossary: one term a line with its meaning.\n\n{passage}",
    "Write a manual entry under the heading '{topic}' that says the same as this text, but shorter:\n\n{passage}",
    "Which mistakes does this part of {manual} warn of, or help to avoid?\n\n{passage}",
    "Continue this text from {manual} in the same style.\n\n{passage}",
)


@lru_cache(maxsize=1)
def numpy_passages() -> tuple[tuple[str, str], ...]:
    """(topic, passage) pairs: for numpy's functions, summary and notes of their docstring, 150 to 1,000 characters."""
    import numpy

    found: dict[str, str] = {}
    for name in sorted(numpy.__all__):
        documented = getattr(numpy, name, None)
        text = inspect.getdoc(documented) or ""
        if not callable(documented) or text.startswith(name + "("):
            text = text.partition("\n\n")[2]
        head, _, rest = text.partition("\nParameters\n")
        notes = rest.partition("\nNotes\n-----\n")[2].partition("\n\n")[0]
        passage = "\n\n".join(" ".join(part.split()) for part in (*head.split("\n\n"), notes) if part.strip())
        markup = any(mark in passage for mark in (".. ", ">>>", ":math:", ":ref:", "::", "----"))
        if 150 <= len(passage) <= 1000 and not markup:
            found.setdefault(passage.replace("``", "`"), f"numpy.{name}")
    return tuple((topic, passage) for passage, topic in found.items())


def build(seed: int) -> list[Prompt]:
    draw = generator("reference", seed)
    python = [
        ("the Python reference", *each, "Python reference", PYTHON_LICENCE) for each in reference_passages()
    ]
    numpy = [("numpy's manual", *each, "numpy docstrings", "BSD-3-Clause") for each in numpy_passages()]
    passages = python + numpy
    draw.shuffle(passages)
    next_form = in_turn(FORMS, draw)
    collection = []
    for attempt, (manual, topic, passage, source, licence) in enumerate(passages[:PROMPTS_A_KIND]):
        text = next_form(attempt).format(manual=manual, topic=topic, passage=passage)
        collection.append(
            Prompt("reference", (("user", text),), f"{source}, {topic}", licence, MAX_NEW_TOKENS)
        )
    return collection


KIND = Kind("reference", "passages of manuals to explain, shorten or list", 4, MAX_NEW_TOKENS, build)
