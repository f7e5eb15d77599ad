"""Other files that start vLLM, as the text or the words of a shell: a systemd unit, a Dockerfile."""

import json
import re
import shlex
from collections.abc import Iterator

INSTRUCTION = re.compile(r"^\s*(FROM|ENV|ENTRYPOINT|CMD)\s+(.*)$", re.I)


def is_unit(text: str) -> bool:
    """Whether a text is a systemd unit."""
    return re.search(r"^ExecStart=", text, re.M) is not None


def unit_script(text: str) -> str:
    """A unit's variables and commands as a script."""
    rows = []
    for name, value in re.findall(r"^(Environment|ExecStart)=(.*)$", _joined(text), re.M):
        rows.append(f"export {value}" if name == "Environment" else value.lstrip("@-:+!"))
    return "\n".join(rows)


def is_dockerfile(text: str) -> bool:
    """Whether a text is a Dockerfile."""
    return re.search(r"^\s*FROM\s+\S+", text, re.I | re.M) is not None and "apiVersion:" not in text


def docker_words(text: str) -> list[str]:
    """A Dockerfile as a `docker run`: its image, variables, entrypoint and command. [] where it starts nothing."""
    image, variables, entry, command = "", list[str](), list[str](), list[str]()
    for row in _joined(text).splitlines():
        match = INSTRUCTION.match(row)
        if not match:
            continue
        name, value = match[1].upper(), match[2].strip()
        if name == "FROM":  # a later stage begins anew
            words = [word for word in value.split() if not word.startswith("--")]
            image, variables, entry, command = words[0], [], [], []
        elif name == "ENV":
            variables += _variables(value)
        elif name == "ENTRYPOINT":
            entry, command = _form(value), []
        else:
            command = _form(value)
    if not image or not (entry or command):
        return []
    given = [word for each in variables for word in ("-e", each)]
    first = ["--entrypoint", entry[0]] if entry else []
    return ["docker", "run", *given, *first, image, *entry[1:], *command]


def _variables(value: str) -> Iterator[str]:
    """`ENV A=b C=d`, or the older `ENV A b`. Raises ValueError."""
    words = shlex.split(value)
    if words and "=" not in words[0]:
        yield f"{words[0]}={' '.join(words[1:])}"
    else:
        yield from words


def _form(value: str) -> list[str]:
    """The words of an instruction: a list in JSON, or a shell's text. Raises ValueError."""
    if value.startswith("["):
        found = json.loads(value)
        if isinstance(found, list) and all(isinstance(word, str) for word in found):
            return found
    return ["/bin/sh", "-c", value]


def _joined(text: str) -> str:
    """Rows that go on behind a backslash, as one."""
    return re.sub(r"\\\r?\n", " ", text)
