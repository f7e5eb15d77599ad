"""The published systems: each setting has a source, each command is one that vLLM takes."""

import json
import shlex
import subprocess
import sys

import pytest
from typer.testing import CliRunner
from vllm_environment import ask, needs_vllm

from avlab.commands import vllm as vllm_command
from avlab.commands.cli import app
from avlab.vllm import NotInstalled
from avlab.vllm.doctor.command import examine_line
from avlab.vllm.doctor.machines import machine_named
from avlab.vllm.presets import PresetError, names, preset, presets
from avlab.vllm.serve_line import ServeLine, ServeLineError


def output(*words):
    result = CliRunner().invoke(app, ["vllm", *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_published_systems_are_there():
    drafters = {each.name: each.line.speculative["method"] for each in presets()}
    assert len(drafters) == 16
    assert drafters["deepseek-v4-flash-dspark"] == "dspark" and drafters["llama-3.1-8b-eagle3"] == "eagle3"
    assert {name for name in drafters if preset(name).refuses} == {
        "inkling-mtp", "qwen3-next-mtp", "deepseek-r1-mtp", "kimi-k2.5-eagle3",
    }  # fmt: skip


@pytest.mark.parametrize("name", names())
def test_a_preset_starts_on_its_gpus_or_says_where_it_does_not(name):
    found = preset(name)
    amd = "mi355x" in name
    for gpu in ("mi355x",) if amd else ("h200", "b300"):
        said = examine_line(found.line, machine_named(gpu), "0.33.0", model_type=found.model_type)
        refused = {f.gate for f in said if f.verdict == "refuses"}
        assert refused <= {"attention"}, said[0]
        if not found.refuses and gpu == "b300":
            assert not refused, (name, said[0])
    if "everywhere" in found.refuses:
        assert refused == {"attention"}
    elif found.refuses:
        hopper = examine_line(found.line, machine_named("h200"), "0.33.0", model_type=found.model_type)
        assert "attention" in {f.gate for f in hopper if f.verdict == "refuses"} and not refused


@pytest.mark.parametrize("name", names())
def test_every_setting_of_a_preset_has_a_source(name):
    found = preset(name)
    assert [setting for setting in found.setting_names() if found.source_of(setting) is None] == []
    assert found.line.speculative["enable_adaptive_verification"] is True
    assert all(source.says and source.url for source in found.sources)


def test_a_setting_without_a_source_is_found_out():
    found = preset("deepseek-v4-flash-dspark")
    assert found.source_of("gpu-memory-utilization") is None
    assert found.source_of("speculative.method") is not None


@pytest.mark.parametrize("name", names())
def test_the_printed_command_is_the_preset_again(name):
    printed = [line for line in output("preset", name).splitlines() if not line.startswith(("#", "hf "))]
    again = ServeLine.parse("\n".join(printed).replace("\\\n", " "))
    found = preset(name).line
    assert again.model == found.model
    assert again.environment == found.environment
    assert again.speculative == found.speculative
    assert shlex.split(again.shell().replace("\\\n", " ")) == again_words(again)


def again_words(line):
    return [*(f"{name}={value}" for name, value in line.environment.items()), *line.words()]


def test_json_has_the_command_and_its_sources():
    found = json.loads(output("preset", "muse-glimmer-dflash2", "--json"))
    assert found["speculative"]["num_speculative_tokens"] == 7
    assert found["command"].startswith("vllm serve meta-models/Muse-Glimmer-30B")
    assert {"url", "says"} == set(found["sources"][0])
    assert len(json.loads(output("presets", "--json"))["presets"]) == 16


def test_further_arguments_win():
    printed = output("preset", "llama-3.1-8b-eagle3", "--", "--max-num-seqs", "64", "--spec-tokens", "5")
    line = ServeLine.parse(printed.partition("vllm serve")[2].replace("\\\n", " "))
    assert line.arguments["max-num-seqs"] == 64
    assert line.speculative["num_speculative_tokens"] == 5
    assert line.speculative["method"] == "eagle3"


def test_a_wrong_name_and_a_missing_vllm_are_one_sentence(monkeypatch):
    with pytest.raises(PresetError, match=r"no preset 'llama'; the presets are deepseek-r1-mtp"):
        preset("llama")
    monkeypatch.setattr(vllm_command.shutil, "which", lambda name: None)
    with pytest.raises(NotInstalled, match=r"pip install -r requirements-gpu\.txt"):
        vllm_command.execute(preset("llama-3.1-8b-eagle3").line)


def test_a_command_is_read_as_vllm_reads_it():
    line = ServeLine.parse(
        "VLLM_USE_V2_MODEL_RUNNER=1 vllm serve some/model -tp 4 --max_num_seqs=64 --no-enable-prefix-caching "
        '--enforce-eager --compilation-config.cudagraph_mode FULL -sc \'{"method": "mtp"}\' '
        "--cudagraph-capture-sizes 8 16 32"
    )
    assert line.model == "some/model"
    assert line.environment == {"VLLM_USE_V2_MODEL_RUNNER": "1"}
    assert line.arguments == {
        "tensor-parallel-size": 4,
        "max-num-seqs": 64,
        "enable-prefix-caching": False,
        "enforce-eager": True,
        "compilation-config": {"cudagraph_mode": "FULL"},
        "speculative-config": {"method": "mtp"},
        "cudagraph-capture-sizes": [8, 16, 32],
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("vllm serve --enforce-eager", "names no model"),
        ("vllm serve m --speculative-config '{bad'", "JSON that cannot be read"),
        ("vllm serve 'm", "check its quotes"),
        ("vllm serve m n", "'n' stands where an argument was expected"),
    ],
)
def test_a_command_that_cannot_be_read_is_one_sentence(text, sentence):
    with pytest.raises(ServeLineError, match=sentence):
        ServeLine.parse(text)


def test_our_package_imports_no_engine_and_does_not_hide_vllms_own():
    asked = (
        "import avlab.vllm, importlib, pkgutil, sys, importlib.util as u\n"
        "names = [m.name for m in pkgutil.walk_packages(avlab.vllm.__path__, 'avlab.vllm.')]\n"
        "names.remove('avlab.vllm.extension')  # which runs in vLLM's own workers\n"
        "for name in names: importlib.import_module(name)\n"
        "assert not {'vllm', 'torch'} & set(sys.modules), 'avlab.vllm has imported an engine'\n"
        "s = u.find_spec('vllm'); print(s and s.origin)"
    )
    origin = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
    assert not origin.strip().endswith("avlab/vllm/__init__.py")


@needs_vllm
@pytest.mark.vllm
def test_vllms_own_parser_takes_every_preset_and_refuses_a_misspelt_one():
    commands = {each.name: each.line.words()[2:] for each in presets()}
    commands["misspelt"] = ["model", "--tensor-paralel-size", "4"]
    commands["unknown"] = ["model", "--speculative-config", '{"method": "mtp", "adaptive": true}']
    answers = ask("vllm_parses.py", {"commands": commands})
    assert "--tensor-paralel-size" in answers.pop("misspelt")
    assert "['adaptive']" in answers.pop("unknown")
    assert answers == dict.fromkeys(names(), "")
