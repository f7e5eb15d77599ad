"""How people start vLLM in a shell: `vllm serve`, `python -m`, `docker run`, a script; as `ServeLine`s.

What a launch says of vLLM's version (an image's tag), of the GPUs and of their number stands beside the command.
Compose files and manifests are read in `manifests.py`, files in `launch_files.py`.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from avlab.vllm.serve_line import ServeLine, ServeLineError

MOST_BYTES = 2**20  # of a file that is read; a launch is some kilobytes
SERVER = "vllm.entrypoints.openai.api_server"
SEPARATORS = {";", "&&", "||", "|", "&", ">", ">>", "<", ">&", "&>", "2>", "2>&1"}
SHELLS = {"bash", "sh", "/bin/bash", "/bin/sh", "zsh"}
CONTAINERS = {"docker", "podman", "nerdctl"}
SWITCHES = {
    "--rm", "-d", "--detach", "-i", "--interactive", "-t", "--tty", "-it", "-ti", "-itd", "-dit", "-idt", "--init",
    "--privileged", "--read-only", "--no-healthcheck", "--oom-kill-disable", "--quiet", "-q", "--replace", "-P",
    "--publish-all", "--sig-proxy",
}  # fmt: skip
VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
ARRAY = re.compile(r"^([ \t]*)(?:declare +-a +|local +|export +)?(\w+)(\+?)=\(([^()]*)\)", re.M)
TAG = re.compile(r":v?(\d+\.\d+(?:\.\d+)?)")


class LaunchError(ServeLineError):
    """A launch that cannot be read. The message is one sentence."""


@dataclass(frozen=True)
class Launch:
    """One server. name: of its service or container, "" of a plain command. version: of vLLM, by the image. gpu: its
    name. gpus: how many it is given; None where it is not said. contained: in a container, which sees no variables of
    this machine.
    """

    line: ServeLine
    name: str = ""
    version: str = ""
    gpu: str = ""
    gpus: int | None = None
    contained: bool = False


def launch(words: list[str], folder: Path = Path()) -> Launch:
    """The server of a command's words: `vllm serve`, `python -m`, `docker run`, a shell's -c. Raises ServeLineError."""
    environment: dict[str, str] = {}
    at = 0
    while at < len(words):
        word = words[at]
        if re.match(r"[A-Za-z_]\w*=", word):
            name, _, value = word.partition("=")
            environment[name] = value
        elif word in CONTAINERS and words[at + 1 : at + 2] == ["run"]:
            return _with(_of_container(words[at + 2 :], folder), environment)
        elif word in SHELLS and any(each.startswith("-") and "c" in each for each in words[at + 1 : at + 3]):
            inner = next(k for k in range(at + 1, len(words)) if not words[k].startswith("-"))
            return _with(next(of_script(words[inner], folder), None), environment)
        elif word.rsplit("/", 1)[-1] == "vllm" and words[at + 1 : at + 2] == ["serve"]:
            return Launch(_line(words[at + 2 :], environment, folder))
        elif word == SERVER:
            return Launch(_line(words[at + 1 :], environment, folder))
        at += 1
    plain = [word for word in words if not re.match(r"[A-Za-z_]\w*=", word)]
    return Launch(_line(plain, environment, folder))


def _with(found: Launch | None, environment: Mapping[str, str]) -> Launch:
    if found is None:
        raise LaunchError("The shell's command starts no `vllm serve`.")
    line = replace(found.line, environment=dict(environment) | dict(found.line.environment))
    return replace(found, line=line)


def _line(words: list[str], environment: Mapping[str, str], folder: Path) -> ServeLine:
    """A command of its arguments, with what --config adds in front of them, as vLLM does."""
    words = list(words)
    for at, word in enumerate(words):
        if word == "--config" or word.startswith("--config="):
            given = word.partition("=")[2] or (words[at + 1] if at + 1 < len(words) else "")
            rest = words[:at] + words[at + (1 if "=" in word else 2) :]
            model = [rest.pop(0)] if rest and not rest[0].startswith("-") else []
            words = [*model, *_config(folder / given, bool(model)), *rest]
            break
    unknown = sorted({match[0] for word in words for match in VARIABLE.finditer(word)})
    if unknown:
        raise LaunchError(f"The command uses {', '.join(unknown)}, whose value is not known here: put it in.")
    if any("$(" in word or "`" in word or word.endswith("$") for word in words):
        raise LaunchError("The command asks the shell for a value, $(...): put the value in.")
    if "--model" in words[1:] and words[0].startswith("-") is False:
        words = words[1:]  # vLLM takes --model over the name in front
    return replace(ServeLine.parse(words), environment=dict(environment))


def _config(path: Path, has_model: bool) -> list[str]:
    """The arguments of a --config file, as `FlexibleArgumentParser.load_config_file` makes them."""
    if path.suffix not in (".yaml", ".yml"):
        raise LaunchError(f"--config {path} is no .yaml or .yml file, and vLLM refuses it.")
    try:
        if path.stat().st_size > MOST_BYTES:
            raise LaunchError(f"--config {path} is larger than a configuration ever is.")
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise LaunchError(f"--config {path} cannot be read ({first_line(error)}).") from None
    if not isinstance(values, Mapping):
        raise LaunchError(f"--config {path} holds no names with values.")
    words: list[str] = []
    for key, value in values.items():
        if key in ("model", "model_tag") and has_model:
            continue
        if isinstance(value, bool):
            words.append(f"--{key}" if value else f"--no-{key}")
        elif isinstance(value, list):
            words += [f"--{key}", *map(str, value)] if value else []
        elif isinstance(value, Mapping):
            words += [f"--{key}", json.dumps(value)]
        else:
            words += [f"--{key}", str(value)]
    return words


def of_script(text: str, folder: Path) -> Iterator[Launch]:
    """The servers of a shell's text. Assignments before a command are its environment, and known where it uses them."""
    known: dict[str, str] = {}
    begun = False
    text, arrays = _arrays(_continued(text))
    for words in _commands(text):
        words = [expanded(word, known) for each in words for word in _elements(each, arrays)]
        if begun and words and words[0].startswith("--"):
            raise LaunchError(
                f"{words[0]} stands at the begin of a command of its own: what is above it ended before, at a comment "
                "or a row without a backslash."
            )
        assigned = [word for word in words if re.match(r"[A-Za-z_]\w*=", word)]
        if words and len(assigned) == len([word for word in words if word != "export"]):
            known |= {name: value for name, _, value in (word.partition("=") for word in assigned)}
            continue
        joined = " ".join(words)
        if re.search(r"(^|\s|/)vllm\s+serve\b", joined) or SERVER in joined or _is_container(words):
            found = launch(words, folder)
            begun = True
            exported = {name: value for name, value in known.items() if name.startswith("VLLM_")}
            yield _with(found, exported)


def _continued(text: str) -> str:
    """A shell's text. Raises LaunchError where a row's backslash has something behind it that nobody sees."""
    if match := re.search(r"\\[ \t]+\r?\n", text):
        row = text.count("\n", 0, match.start()) + 1
        raise LaunchError(
            f"Row {row} has a space behind its backslash, and the shell ends the command there."
        )
    if match := re.search(r"\\\r?\n[ \t]*#[^\n]*\n[ \t]*-", text):
        row = text.count("\n", 0, match.start()) + 2
        raise LaunchError(
            f"Row {row} is a comment within a command: the shell ends it there, and what follows is lost."
        )
    return text


def _arrays(text: str) -> tuple[str, dict[str, list[str]]]:
    """A shell's text without its arrays, and these. Raises LaunchError for one that is filled under a condition."""
    arrays: dict[str, list[str]] = {}

    def take(match: re.Match[str]) -> str:
        before, name, more, inside = match.groups()
        try:
            words = shlex.split(re.sub(r"\\\r?\n", " ", inside), comments=True)
        except ValueError:
            return match[0]
        if more and (before or name not in arrays):
            raise LaunchError(
                f"{name} gets arguments under a condition: examine the command as it is run then."
            )
        arrays[name] = [*(arrays[name] if more else ()), *words]
        return ""

    return ARRAY.sub(take, text), arrays


def _elements(word: str, arrays: Mapping[str, list[str]]) -> list[str]:
    """A word, or the words that it stands for: an array's, or none for what a script itself is given."""
    if word in ("$@", "$*"):
        return []
    match = re.fullmatch(r"\$\{(\w+)\[[@*]\]\}", word)
    return arrays[match[1]] if match and match[1] in arrays else [word]


def _is_container(words: list[str]) -> bool:
    at = next((k for k, word in enumerate(words) if word in CONTAINERS), None)
    return at is not None and words[at + 1 : at + 2] == ["run"] and "vllm" in " ".join(words)


def _commands(text: str) -> Iterator[list[str]]:
    """The commands of a shell's text, as words, without redirections."""
    joined = re.sub(r"\\\r?\n", " ", text)
    pending = ""
    for row in joined.splitlines():
        pending = f"{pending}\n{row}" if pending else row
        try:
            reader = shlex.shlex(pending, posix=True, punctuation_chars=True)
            reader.whitespace_split = True
            words = list(reader)
        except ValueError:
            continue  # a quote goes on in the next row
        pending = ""
        part: list[str] = []
        for word in words:
            if word in SEPARATORS:
                yield part
                part = []
                if ">" in word or "<" in word:
                    break
            else:
                part.append(word)
        yield part
    if pending.strip():
        raise LaunchError("The command cannot be read (a quote is open): check its quotes.")


def expanded(word: str, known: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        return known.get(name, match[2] if match[2] is not None else match[0])

    return VARIABLE.sub(value, word)


def _of_container(words: list[str], folder: Path) -> Launch:
    """`docker run`: its switches, its image, and what the image is given."""
    environment: dict[str, str] = {}
    gpus, entry, at = None, "", 0
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].partition("=")
        if not equals and name not in SWITCHES:
            at += 1
            value = words[at] if at < len(words) else ""
        if name in ("-e", "--env") and "=" in value:
            key, _, told = value.partition("=")
            environment[key] = told
        elif name == "--gpus":
            gpus = _counted(value)
        elif name == "--entrypoint":
            entry = value
        at += 1
    if at >= len(words):
        raise LaunchError("The container names no image.")
    image, rest = words[at], words[at + 1 :]
    found = of_image([*shlex.split(entry), *rest], environment, folder)
    return replace(found, version=version_of(image), gpus=gpus, contained=True)


def _counted(text: str) -> int | None:
    """How many GPUs `--gpus` gives: a number, "device=0,1"; None for all."""
    plain = text.strip("\"'")
    if plain.isdigit():
        return int(plain)
    match = re.search(r"device=([\w,-]+)", plain) or re.search(r"count=(\d+)", plain)
    if match is None:
        return None
    return int(match[1]) if "count=" in plain else len([each for each in match[1].split(",") if each])


def version_of(image: str) -> str:
    match = TAG.search(image)
    return match[1] if match else ""


def of_image(words: list[str], environment: Mapping[str, str], folder: Path) -> Launch:
    """What a container runs: the image's own entry is `vllm serve`, in older ones the API server."""
    if words[:1] == ["serve"]:
        words = words[1:]
    return _with(launch(words, folder), environment)


def first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
