"""The files of a checkpoint's folder: which are needed, and what a folder without them holds instead. No torch here."""

import json
from pathlib import Path
from typing import Any

from avlab.formats import as_json

LARGEST_JSON = 256 << 20  # bytes; a tokenizer of 256,000 words has 33 MB
CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
TOKENIZER = "tokenizer.json"
GIT_LFS = b"version https://git-lfs"
# how weights come that the engine does not read: file names, and what to do with them
OTHER_WEIGHTS: dict[str, str] = {
    "*.gguf": "a GGUF file, as llama.cpp reads it: take the model in safetensors format",
    "consolidated*.pth": "weights in Meta's own format: convert them to Hugging Face's, or take those",
    "consolidated*.safetensors": "weights under the names of its maker: take those in Hugging Face format",
    "adapter_model.*": "an adapter (LoRA), not a model: merge it into the model that it was made for",
    "pytorch_model*.bin": "weights in PyTorch's format alone (.bin): save the model again as safetensors",
    "*.pt*": "weights in PyTorch's format alone: save the model again as safetensors",
    "*.h5": "weights for TensorFlow: save the model again as safetensors",
    "*.msgpack": "weights for Flax: save the model again as safetensors",
    "*.onnx": "an ONNX model: take the model in safetensors format",
    "*-of-*.safetensors": f"parts of weights, and no {INDEX} that says what is where: fetch that file too",
    "*.safetensors.part": "a download that was not finished: fetch the checkpoint again",
    "*.incomplete": "a download that was not finished: fetch the checkpoint again",
    "*.bin": "weights in PyTorch's format alone (.bin): save the model again as safetensors",
}
OTHER_TOKENIZERS: dict[str, str] = {
    "tokenizer.model": "a SentencePiece tokenizer",
    "*.model": "a SentencePiece tokenizer",
    "*.tiktoken": "a tiktoken tokenizer",
    "vocab.json": "a tokenizer in older files (vocab.json)",
    "vocab.txt": "a tokenizer in older files (vocab.txt)",
}
SAVE_TOKENIZER = (
    "write tokenizer.json with transformers: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
)


class CheckpointError(Exception):
    """A checkpoint is missing, damaged or of a kind the engine does not serve. The message says what to do."""


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a checkpoint; a missing or damaged file raises CheckpointError."""
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise CheckpointError(
                f"{path} has {path.stat().st_size >> 20:,} MB, more than any such file: fetch the checkpoint again."
            )
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(_without(path)) from None
    except RecursionError:
        raise CheckpointError(
            f"{path} cannot be read as JSON (it is nested too deeply): fetch the checkpoint again."
        ) from None
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} cannot be read as JSON ({error}): fetch the checkpoint again."
        ) from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} does not hold a JSON object: fetch the checkpoint again.")
    return content


def without_weights(folder: Path) -> CheckpointError:
    """What to say of a folder that has no model.safetensors: what it has instead, where that is known."""
    what = _instead(folder, OTHER_WEIGHTS)
    return CheckpointError(
        f"{folder} holds {what}."
        if what
        else f"{folder / WEIGHTS} does not exist: the checkpoint is incomplete, fetch it again."
    )


def without_tokenizer(folder: Path) -> CheckpointError:
    """What to say of a folder that has no tokenizer.json."""
    path, other = folder / TOKENIZER, _instead(folder, OTHER_TOKENIZERS)
    if other:
        return CheckpointError(
            f"{path} does not exist; {folder.name} holds {other}, which the engine does not read: {SAVE_TOKENIZER}."
        )
    return CheckpointError(
        f"{path} does not exist: this checkpoint came without its tokenizer. Copy tokenizer.json (and "
        "tokenizer_config.json) from the model that it was made from, or fetch the checkpoint again."
    )


def is_pointer(path: Path) -> bool:
    """Whether a file is Git LFS's note of where the real one is."""
    try:
        with path.open("rb") as file:
            return file.read(len(GIT_LFS)) == GIT_LFS
    except OSError:
        return False


def check_whole(path: Path) -> None:
    """Raise CheckpointError for a file that Git LFS has not fetched."""
    if is_pointer(path):
        raise CheckpointError(
            f"{path} is a Git LFS pointer, not the file itself: run `git lfs pull` in that folder."
        )


def _without(path: Path) -> str:
    """The sentence for a file of a checkpoint that is not there."""
    folder = path.parent
    if path.name == CONFIG and (what := _other_folder(folder)):
        return f"{path} does not exist: {folder} {what}."
    return (
        f"{path} does not exist: give a model folder in Hugging Face format (config.json, *.safetensors, "
        "tokenizer.json), or run `avlab fetch` for the default one."
    )


def _other_folder(folder: Path) -> str:
    """What a folder without config.json is, and what to give instead; "" where nobody can tell."""
    snapshots = _folders_with_config(folder / "snapshots")
    if snapshots:
        return f"is a model's place in a hub's cache; give a snapshot in it: {snapshots[0]}"
    if (folder / "snapshots").is_dir() or (folder / "blobs").is_dir():
        return "is a model's place in a hub's cache, without a whole snapshot: fetch the model again"
    cached = sorted(folder.glob("models--*")) or sorted((folder / "hub").glob("models--*"))
    if cached:
        names = ", ".join(each.name.removeprefix("models--").replace("--", "/") for each in cached[:3])
        inside = next((each for model in cached for each in _folders_with_config(model / "snapshots")), None)
        return f"is a hub's cache ({names}); give a model's snapshot in it" + (
            f": {inside}" if inside else ""
        )
    inner = _folders_with_config(folder)
    if inner:
        return f"holds model folders, and is none itself; give one of them: {inner[0]}"
    what = _instead(folder, {"adapter_config.json": OTHER_WEIGHTS["adapter_model.*"], **OTHER_WEIGHTS})
    if not what and (folder / "params.json").is_file():
        what = OTHER_WEIGHTS["consolidated*.pth"]
    return f"holds {what}" if what else ""


def _folders_with_config(folder: Path) -> list[Path]:
    """Folders in this one that are checkpoints, the newest first."""
    try:
        found = [each for each in folder.iterdir() if (each / CONFIG).is_file()]
        return sorted(found, key=lambda each: each.stat().st_mtime, reverse=True)
    except OSError:
        return []


def _instead(folder: Path, known: dict[str, str]) -> str:
    """What a folder holds, of what is known by names of files; "" for nothing of it."""
    return next((what for pattern, what in known.items() if next(folder.glob(pattern), None)), "")


def wrong(path: Path, name: str, value: object, due: str) -> CheckpointError:
    """The sentence for a value of a file that cannot be what it is."""
    return CheckpointError(f"{path} gives {name} as {as_json(value)}: it must be {due}.")
