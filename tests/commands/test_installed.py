"""The package as a wheel, in an environment of its own and from a folder of somebody else's: it serves and runs."""

import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import venv
import zipfile

import pytest
from places import ROOT
from tiny_models import write_llama, write_tokenizer

from avlab.bench.page_client import PageClient
from avlab.store.database import owner_of

pytestmark = pytest.mark.slow
DATA = (
    "avlab/engine/drafters/smollm2-135m-block/drafter.safetensors",
    "avlab/engine/native/native.cpp",
    "avlab/engine/native/products.h",
    "avlab/sample_runs/ab/manifest.json",
    "avlab/sample_runs/frontier/steps.parquet",
    "avlab/vllm/presets/inkling-mtp.toml",
    "avlab/vllm/extension.py",
    "avlab/experiments/published_frontier.csv",
    "avlab/bias/real_rows.json",
    "avlab/ui/icon.svg",
    "avlab/ui/static/chart.js",
    "avlab/ui/static/tokens.css",
    "avlab/report_static/report.js",
    "avlab/report_static/report.css",
    "avlab/bench/chart_points.js",
    "avlab/dashboard/app.py",
    "avlab/dashboard/pages/live.py",
    "avlab/dashboard/.streamlit/config.toml",
    "avlab/store/recorder.py",
)
PATIENCE = 120.0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of a copy, so that no earlier build's leftovers are in it."""
    folder = tmp_path_factory.mktemp("wheel")
    leave = shutil.ignore_patterns(".*env*", ".git", ".*cache", "build", "tests", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT, folder / "copy", symlinks=True, ignore=leave)
    alone = ["--no-build-isolation"] if importlib.util.find_spec("setuptools") else []
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        *alone,
        "--wheel-dir",
        str(folder),
    ]
    subprocess.run([*command, str(folder / "copy")], check=True, timeout=600)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """An environment with the wheel, which sees the packages of this one but not this checkout."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    own = [path for path in sys.path if path.endswith("-packages")]
    (site / "packages.pth").write_text("\n".join(own))
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    subprocess.run(
        [*pip, "--no-deps", "--no-index", "--ignore-installed", str(wheel)], check=True, timeout=300
    )
    return folder / "bin"


@pytest.fixture
def environment(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "AVLAB_DATABASE")}
    return kept | {"OMP_NUM_THREADS": "1", "AVLAB_DATABASE": str(tmp_path / "lab.duckdb")}


def test_the_wheel_holds_all_that_is_read_at_run_time(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert set(DATA) <= names
    tracked = subprocess.run(
        ["git", "ls-files", "avlab", "pages", "store"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    places = {"store/": "avlab/store/", "pages/": "avlab/dashboard/pages/"}
    for path in (each for each in tracked if not (ROOT / each).is_symlink()):
        top = path.split("/")[0] + "/"
        assert places.get(top, top) + path.removeprefix(top) in names
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"avlab"}, "nothing else at the top"


def test_a_run_and_what_is_asked_of_it(installed, environment, tmp_path):
    target = write_llama(tmp_path / "target", seed=3, eos_token_id=1, max_position_embeddings=1024)
    write_tokenizer(target)
    cwd = tmp_path / "elsewhere"
    options = ["--target", str(target), "--drafter", "none", "--policy", "none", "--workload", "chat"]
    options += [
        "--max-new-tokens",
        "8",
        "--max-model-len",
        "1024",
        "--requests",
        "3",
        "--concurrency",
        "2",
        "--json",
    ]

    def avlab(*words):
        return subprocess.run(
            [installed / "avlab", *words],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    ran = avlab("run", *options)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["requests"] >= 3
    listed = json.loads(avlab("runs", "--json").stdout)
    assert [each["state"] for each in listed["runs"]] == ["finished"]
    written = avlab("export", "last", "out", "--form", "csv", "--json")
    assert json.loads(written.stdout)["tables"]["steps"]["rows"] > 0
    assert "0.1.0" in (cwd / "out" / "runs.csv").read_text(), "the version stands in for a commit"
    assert len(json.loads(avlab("vllm", "presets", "--json").stdout)["presets"]) == 16
    named = json.loads(avlab("bias", "two-token", "--json").stdout)
    assert named["output"] == pytest.approx([0.4, 0.6])
    assert sorted(path.name for path in cwd.iterdir()) == ["out"], "nothing is left in the reader's folder"


def test_the_dashboard_from_another_folder(installed, environment, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url, database = f"http://127.0.0.1:{port}", tmp_path / "served.duckdb"
    command = [installed / "avlab", "serve", "--port", str(port), "--database", str(database)]
    log = (tmp_path / "log").open("wb")
    server = subprocess.Popen(
        command,
        cwd=tmp_path / "elsewhere",
        env=environment | {"AVLAB_STORY": "no"},
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        page = ask(server, url, (tmp_path / "log")).decode()
        script = re.search(r'src="\.?(/[^"]+\.js)"', page)
        assert script and len(fetch(url + script[1])) > 1000
        assert b"plotly.js" in fetch(url + "/avlab/plotly.min.js")[:200]
        with PageClient(url, PATIENCE) as client:
            client.ask("", "sampling_bias")
            session = next(client.messages(lambda message: message.HasField("new_session")))
            theme = session.new_session.custom_theme
            assert theme.light.primary_color == "#1d58bd", (
                "the settings beside the script hold from any folder"
            )
            list(client.messages(lambda message: message.WhichOneof("type") == "script_finished"))
        asked = [installed / "avlab", "runs", "--database", str(database), "--json"]
        listed = subprocess.run(
            asked, env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE
        )
        assert len(json.loads(listed.stdout)["runs"]) == 6, "the recorded runs that ship with it"
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(PATIENCE)
        log.close()
    assert "Traceback" not in (tmp_path / "log").read_text()
    assert owner_of(database) is None, "the lab gave its file free"
    assert not list((tmp_path / "elsewhere").iterdir())


def fetch(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read()


def ask(server, url, log):
    """The page, as soon as the server gives it."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return fetch(url)
        except OSError:
            assert server.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.1)
