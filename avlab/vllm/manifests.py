"""Servers of vLLM in YAML: a compose file's services, and containers of Kubernetes manifests, wherever they stand."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from avlab.vllm.launch import Launch, LaunchError, expanded, first_line, of_image, version_of


def of_yaml(text: str, folder: Path) -> Iterator[Launch]:
    """The servers of a YAML text. Raises LaunchError."""
    try:
        documents = list(yaml.safe_load_all(expanded(text, {})))
    except yaml.YAMLError as error:
        raise LaunchError(f"The YAML cannot be read ({first_line(error)}).") from None
    for document in documents:
        if isinstance(document, Mapping) and isinstance(document.get("services"), Mapping):
            for name, service in document["services"].items():
                if isinstance(service, Mapping) and _serves(service):
                    yield _of_service(str(name), service, folder)
        elif document is not None:
            yield from _of_manifest(document, folder, "")


def _serves(container: Mapping[str, Any]) -> bool:
    told = " ".join([str(container.get("image", "")), *_words(container, "command"), *_words(container, "entrypoint"),
                     *_words(container, "args")])  # fmt: skip
    return "vllm" in told


def _of_service(name: str, service: Mapping[str, Any], folder: Path) -> Launch:
    words = [*_words(service, "entrypoint"), *_words(service, "command")]
    found = of_image(words, _environment(service.get("environment")), folder)
    place: Any = service
    for part in ("deploy", "resources", "reservations", "devices"):
        place = place.get(part) if isinstance(place, Mapping) else None
    device = place[0] if isinstance(place, list) and place and isinstance(place[0], Mapping) else {}
    ids, count = device.get("device_ids"), device.get("count")
    gpus = len(ids) if isinstance(ids, list) else count if isinstance(count, int) else None
    return replace(
        found, name=name, version=version_of(str(service.get("image", ""))), gpus=gpus, contained=True
    )


def _of_manifest(value: Any, folder: Path, gpu: str, name: str = "") -> Iterator[Launch]:
    """Containers wherever they stand: in a Deployment, a StatefulSet, a LeaderWorkerSet, an InferenceService."""
    if isinstance(value, list):
        for each in value:
            yield from _of_manifest(each, folder, gpu, name)
    if not isinstance(value, Mapping):
        return
    selector = value.get("nodeSelector")
    if isinstance(selector, Mapping):
        gpu = str(
            selector.get("nvidia.com/gpu.product") or selector.get("cloud.google.com/gke-accelerator") or gpu
        )
    metadata = value.get("metadata")
    if isinstance(metadata, Mapping) and metadata.get("name"):
        name = str(metadata["name"])
    for key, inner in value.items():
        if key == "containers" and isinstance(inner, list):
            for container in inner:
                if isinstance(container, Mapping) and _serves(container):
                    yield _of_pod(container, folder, gpu, name)
        else:
            yield from _of_manifest(inner, folder, gpu, name)


def _of_pod(container: Mapping[str, Any], folder: Path, gpu: str, name: str) -> Launch:
    words = [*_words(container, "command"), *_words(container, "args")]
    environment = _environment(container.get("env"))
    words = [
        re.sub(r"\$\((\w+)\)", lambda match: environment.get(match[1], f"${match[1]}"), word)
        for word in words
    ]
    found = of_image(words, environment, folder)
    resources = container.get("resources")
    asked: dict[str, Any] = {}
    for part in ("requests", "limits"):
        given = resources.get(part) if isinstance(resources, Mapping) else None
        asked |= given if isinstance(given, Mapping) else {}
    count = next((asked[key] for key in ("nvidia.com/gpu", "amd.com/gpu") if key in asked), None)
    gpus = int(str(count)) if str(count).isdigit() else None
    told = str(container.get("name") or "")
    version = version_of(str(container.get("image", "")))
    named = "/".join(filter(None, (name, told)))
    return replace(found, name=named, version=version, gpu=gpu, gpus=gpus, contained=True)


def _words(container: Mapping[str, Any], key: str) -> list[str]:
    value = container.get(key)
    if isinstance(value, list):
        return [str(each) for each in value]
    try:
        return shlex.split(re.sub(r"\\[ \t]*\r?\n", " ", value)) if isinstance(value, str) else []
    except ValueError as error:
        raise LaunchError(f"{key} cannot be read ({error}): check its quotes.") from None


def _environment(value: Any) -> dict[str, str]:
    """Variables as compose writes them, a mapping or a list, or as Kubernetes does."""
    if isinstance(value, Mapping):
        return {str(name): "" if told is None else str(told) for name, told in value.items()}
    found = {}
    for each in value if isinstance(value, list) else []:
        if isinstance(each, str) and "=" in each:
            name, _, told = each.partition("=")
            found[name] = told
        elif isinstance(each, Mapping) and "name" in each and "value" in each:
            found[str(each["name"])] = str(each["value"])
    return found
