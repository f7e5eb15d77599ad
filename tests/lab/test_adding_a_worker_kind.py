"""A kind of worker is two files: the lab finds it and runs it to its end, and pages and commands can ask it."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from avlab.installation import PACKAGE
from avlab.kinds.registry import command_of, kind_named, kinds, make_config, recorded_kind
from avlab.modules import import_all

LABS_SIDE = '''
"""A clock that ticks: every tick is a step."""

from typing import ClassVar

from avlab.config import ConfigError, Traffic
from avlab.kinds.base import Kind


class ClockConfig(Traffic):
    kind: ClassVar[str] = "clock"
    threads: ClassVar[int] = 1
    spin: ClassVar[int] = 0
    ticks: int = 5


def check(config: ClockConfig) -> None:
    if config.ticks == 13:
        raise ConfigError(["This clock does not tick 13 times."])


KIND = Kind(ClockConfig, check=check, policies=("slow", "fast"), ab_notes=lambda values: f"{values['ticks']} ticks")
'''
WORKERS_SIDE = """
import os
import sys
import time

from avlab.wire import frames
from avlab.workers.entry import Order, work


def serve(order: Order) -> str:
    config, put = order.config, order.outbox.put
    plain = config.model_dump(mode="json") | {"policy": "slow"}
    put(frames.Hello("clock", os.getpid(), time.time(), plain, "a clock", "", None, None, 2, "", {}))
    put(frames.Block(0, "slow", "serve", 0, 0.0, config.workload))
    for tick in range(config.ticks):
        put(frames.Steps([frames.Step(
            step=tick, time=order.clock(), block=0, running=1, waiting=0, emitting=1, tokens=2, drafted=2,
            scheduled=(1, 1), admitted=(1, 1), accepted=(1, 0), labelled=(1, 1), draft_ms=1.0, verify_ms=2.0,
            sample_ms=0.0, decide_ms=0.0, report_ms=0.0, idle_ms=0.0, prompt_tokens=0, target_tokens=3, budget=2,
            expected_tokens=2.0, expected_ms=3.0,
        )]))
        order.step = tick + 1
    return "done"


if __name__ == "__main__":
    sys.exit(work(serve, "clock"))
"""
RUN = """
import json, sys
from avlab.config import ConfigError
from avlab.kinds.registry import kind_named, kinds, make_config
from avlab.lab.lab import Lab

refused = ""
try:
    kind_named("clock").check(make_config({"ticks": 13}, "clock"))
except ConfigError as error:
    refused = str(error)
with Lab(sys.argv[1]) as lab:
    run = lab.run({"ticks": 7, "workload": "code"}, kind="clock")
    traffic = lab.traffic
    assert lab.supervisor.wait(60)
    status, kind = lab.progress()["status"], kind_named("clock")
    print(json.dumps({
        "kinds": list(kinds()), "refused": refused, "traffic": traffic, "status": status, "summary": lab.show(run),
        "policies": kind.policies, "notes": kind.ab_notes({"ticks": 7}), "watches": kind.watches,
    }))
"""


@pytest.fixture
def folder(tmp_path):
    """The package by links, and a kind's two files beside them."""
    shutil.copytree(
        PACKAGE, tmp_path / "avlab", copy_function=os.symlink, ignore=shutil.ignore_patterns("__pycache__")
    )
    for side, text in (("kinds", LABS_SIDE), ("workers", WORKERS_SIDE)):
        with (tmp_path / "avlab" / side / "clock.py").open(
            "x", encoding="utf-8"
        ) as file:  # never through a link
            file.write(text)
    return tmp_path


def asked(folder, *words):
    environment = os.environ | {"PYTHONPATH": str(folder), "AVLAB_DATABASE": str(folder / "lab.duckdb")}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_files_are_a_kind_that_a_lab_runs_to_its_end(folder):
    told = json.loads(asked(folder, "-c", RUN, str(folder / "lab.duckdb")))
    assert {"attach", "clock", "reference", "vllm"} <= set(told["kinds"]) and told["kinds"] == sorted(
        told["kinds"]
    )
    assert told["refused"] == "This clock does not tick 13 times."
    assert told["traffic"][0] == "code"
    assert (told["status"]["outcome"], told["status"]["error"], told["status"]["kind"]) == (
        "done",
        "",
        "clock",
    )
    summary = told["summary"]
    assert (summary["kind"], summary["state"], summary["steps"], summary["tokens"]) == (
        "clock",
        "finished",
        7,
        14,
    )
    assert (told["policies"], told["notes"], told["watches"]) == (["slow", "fast"], "7 ticks", False)
    shown = asked(folder, "-m", "avlab", "show", "last")
    assert "a clock" in shown and "slow" in shown


def test_a_run_of_a_kind_that_a_lab_does_not_have_is_shown_all_the_same(folder):
    asked(folder, "-c", RUN, str(folder / "lab.duckdb"))
    (folder / "avlab" / "kinds" / "clock.py").unlink()
    shown = json.loads(asked(folder, "-m", "avlab", "show", "last", "--json"))
    assert (shown["kind"], shown["steps"]) == ("clock", 7)
    assert "a clock" in asked(folder, "-m", "avlab", "show", "last")


def test_every_kind_has_its_two_files_by_its_name():
    modules = [module for module in import_all("avlab.kinds") if hasattr(module, "KIND")]
    files = {module.__name__.rpartition(".")[2]: module for module in modules}
    assert list(files) == list(kinds())
    for name, module in files.items():
        assert module.KIND is kind_named(name) is recorded_kind(name)
        assert (PACKAGE / "workers" / f"{name}.py").is_file()
        assert command_of(name)[1:] == ("-m", f"avlab.workers.{name}")
    assert recorded_kind("of another lab") is kind_named("reference")
    assert make_config({}).kind == "reference"
