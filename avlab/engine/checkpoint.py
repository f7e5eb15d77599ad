"""The tensors of a Llama-architecture checkpoint: which are read, of which numbers, and that none is left unread.

Everything that can be wrong with a checkpoint is found before anything else starts, and said in one sentence.
"""

import hashlib
import re
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from avlab.engine.checkpoint_files import (
    INDEX,
    WEIGHTS,
    CheckpointError,
    check_whole,
    read_json,
    without_weights,
)
from avlab.formats import as_json

PLAIN = ("F64", "F32", "F16", "BF16")  # numbers that are weights as they stand
# what older libraries saved beside the weights, and every reader computes anew
COMPUTED = re.compile(r"(^|\.)rotary_emb\.inv_freq$")
# by what a quantised checkpoint's tensors are known, and who writes such
QUANTISED = {
    r"\.(qweight|qzeros|g_idx)$": "GPTQ or AWQ",
    r"\.(absmax|quant_map|SCB|quant_state\.\w+)$": "bitsandbytes",
    r"\.weight_(packed|shape|zero_point|scale|scale_inv|global_scale|scale_2)$|\.input_scale$": "float8 or the like",
    r"_(blocks|scales)$": "MXFP4",
}


class Weights(dict[str, Tensor]):
    """A checkpoint's tensors by name. `take` refuses what is missing or of another shape than is due."""

    def __init__(self, folder: Path, tensors: dict[str, Tensor]):
        super().__init__(tensors)
        self.folder = folder
        self._taken: set[str] = set()

    def take(self, name: str, *shape: int) -> Tensor:
        """The tensor of this name. Raises CheckpointError if there is none, or it has another shape."""
        if name not in self:
            raise CheckpointError(f"{self.folder} has no tensor {name!r}: it is incomplete, fetch it again.")
        if self[name].shape != shape:
            raise CheckpointError(
                f"{self.folder}: the tensor {name} is {tuple(self[name].shape)} where {shape} is due: the files do not "
                "belong together, or to this model."
            )
        self._taken.add(name)
        return self[name]

    def maybe(self, name: str, *shape: int) -> Tensor | None:
        """As `take`, but None if there is none."""
        return self.take(name, *shape) if name in self else None

    def check_all_taken(self, why: str = "") -> None:
        """Raise CheckpointError for a tensor that nobody took: the model would not be the one in the folder.

        why: what to look at, for the sentence.
        """
        left = sorted(set(self) - self._taken)
        if left:
            more = f" and {len(left) - 3:,} more" if len(left) > 3 else ""
            raise CheckpointError(
                f"{self.folder} has tensors that nobody reads: {', '.join(left[:3])}{more}. What would be served "
                f"is not the model that was saved{why}: choose a plain Llama checkpoint."
            )


def read_weights(folder: Path, dtype: torch.dtype, device: torch.device) -> Weights:
    """All tensors of the folder's safetensors files by name.

    Raises CheckpointError for absent or truncated files, for quantised weights, and for values that are no numbers.
    """
    weights = Weights(folder, {})
    files = [folder / name for name in weight_files(folder)]
    for path in files:  # all of them are looked at before any is read
        _check_plain(path)
    for path in files:
        try:
            with safe_open(path, framework="pt", device="cpu") as file:
                for key in file.keys():  # noqa: SIM118 - a safetensors handle, not a dict
                    if COMPUTED.search(key):
                        continue
                    if key in weights:
                        raise CheckpointError(
                            f"{folder} holds the tensor {key} in two files: fetch it again."
                        )
                    stored = file.get_tensor(key)
                    if not stored.isfinite().all():
                        raise CheckpointError(
                            f"{path}: the tensor {key} holds infinities, or values that are no numbers: fetch the "
                            "checkpoint again."
                        )
                    weights[key] = stored.to(device=device, dtype=dtype, copy=True)  # frees the file
        except SafetensorError as error:
            raise _damaged(path, error) from None
    return weights


def weight_files(folder: Path) -> list[str]:
    """The names of the files that hold the weights. Raises CheckpointError where that is not clear."""
    index, whole = folder / INDEX, folder / WEIGHTS
    if not index.exists():
        if not whole.is_file():
            raise without_weights(folder)
        return [WEIGHTS]
    files = read_json(index).get("weight_map")
    if not isinstance(files, dict) or not files or not all(isinstance(each, str) for each in files.values()):
        raise CheckpointError(f"{index} names no files of weights: fetch the checkpoint again.")
    names = sorted(set(files.values()))
    for name in names:
        if name != Path(name).name:
            raise CheckpointError(
                f"{index} names a file outside its folder ({as_json(name)}): fetch the checkpoint again."
            )
        if not (folder / name).is_file():
            raise CheckpointError(
                f"{folder / name} does not exist: the checkpoint is incomplete, fetch it again."
            )
    if whole.is_file() and WEIGHTS not in names:
        raise CheckpointError(
            f"{folder} holds {WEIGHTS} and, by {INDEX}, {names[0]} and its like: remove the one that is not meant."
        )
    return names


def _check_plain(path: Path) -> None:
    """Raise CheckpointError where a file's tensors are not weights as they stand, by their types and names."""
    check_whole(path)
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            kinds = {key: file.get_slice(key).get_dtype() for key in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise _damaged(path, error) from None
    for key, kind in kinds.items():
        by = next((by for pattern, by in QUANTISED.items() if re.search(pattern, key)), "")
        if by or (kind not in PLAIN and not COMPUTED.search(key)):
            raise CheckpointError(
                f"{path}: the tensor {key} is {kind}, of quantised weights{f' ({by})' if by else ''}, which the "
                "reference engine does not compute: take the checkpoint in bfloat16, float16 or float32."
            )


def _damaged(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"{path} is truncated or not a safetensors file ({error}): fetch the checkpoint again."
    )


def weights_hash(folder: Path) -> str:
    """First 16 hex digits of the SHA-256 over the folder's weight files: names the model in a run's record."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()[:16]
