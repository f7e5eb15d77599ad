"""The servers that a file starts, or a text that somebody pasted: a script, a compose file, a Kubernetes manifest."""

import re
import shlex
from pathlib import Path

from avlab.vllm.launch import MOST_BYTES, Launch, LaunchError, launch, of_script
from avlab.vllm.manifests import of_yaml
from avlab.vllm.units import docker_words, is_dockerfile, is_unit, unit_script

STARTS = re.compile(
    r"\bvllm\s+serve\b|\b(docker|podman|nerdctl)\s+run\b|^\s*(services|apiVersion|kind)\s*:|api_server", re.M
)


def pasted(text: str) -> list[Launch]:
    """The servers of what somebody pasted; a model and its arguments alone are a command too. Raises LaunchError."""
    if STARTS.search(text):
        return launches(text)
    try:
        return [launch(shlex.split(re.sub(r"\\[ \t]*\r?\n", " ", text)))]
    except ValueError as error:
        raise LaunchError(f"The command cannot be read ({error}): check its quotes.") from None


def launches_in(path: Path) -> list[Launch]:
    """The servers that a file starts: a script, a compose file, a manifest. Raises LaunchError."""
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        text = raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LaunchError(f"{path} cannot be read ({error}).") from None
    if len(raw) > MOST_BYTES:
        raise LaunchError(f"{path} is larger than a launch ever is ({MOST_BYTES // 2**20} MiB).")
    return launches(text, path.parent, path.suffix in (".yaml", ".yml"))


def launches(text: str, folder: Path = Path(), as_yaml: bool | None = None) -> list[Launch]:
    """The servers of a text. folder: where files that it names lie. Raises LaunchError where it starts none."""
    if as_yaml or (as_yaml is None and re.search(r"^(apiVersion|services|kind|version)\s*:", text, re.M)):
        found = list(of_yaml(text, folder))
    elif is_unit(text):
        found = list(of_script(unit_script(text), folder))
    elif is_dockerfile(text):
        found = _of_dockerfile(text, folder)
    else:
        found = list(of_script(text, folder))
    if not found:
        raise LaunchError("No `vllm serve` is in there, and no container of vLLM.")
    return found


def _of_dockerfile(text: str, folder: Path) -> list[Launch]:
    try:
        words = docker_words(text)
    except ValueError as error:
        raise LaunchError(f"The Dockerfile cannot be read ({error}).") from None
    return [launch(words, folder)] if "vllm" in " ".join(words) else []
