"""Every command, option, policy form and workload is in the documentation, and the generated page is current."""

import importlib.util
import re
import shlex
from dataclasses import fields

import pytest
import typer.main
from parsing import parse
from places import ROOT

from avlab.commands.ab import Comparison, objective
from avlab.commands.cli import COMMANDS, app
from avlab.commands.emulated import Emulation
from avlab.commands.options import limited, plain_settings
from avlab.commands.run import OwnLoad
from avlab.commands.vllm import command_of
from avlab.experiments.plan import make_plan
from avlab.vllm.serving_config import VllmConfig
from avlab.workloads import kinds

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES.append(ROOT / "avlab" / "engine" / "drafters" / "smollm2-135m-block" / "README.md")


def write_commands():
    spec = importlib.util.spec_from_file_location("write_commands", ROOT / "docs" / "write_commands.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_commands_is_what_the_command_line_says():
    assert (ROOT / "docs" / "commands.md").read_text(encoding="utf-8") == write_commands().page(), (
        "docs/commands.md is out of date: run python docs/write_commands.py"
    )


@pytest.mark.parametrize(("name", "command"), write_commands().leaves(typer.main.get_command(app)))
def test_every_command_and_every_option_explains_itself(name, command):
    assert command.help
    assert all(parameter.help for parameter in command.params), [p.name for p in command.params if not p.help]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_readme_shows_the_command(name):
    assert f"avlab {name}" in README


PLACEHOLDERS = re.compile(r"\b(HOST|FOLDER|FILE|MODEL|NAME|COMMAND)\b")


def commands_in(text):
    """What a page calls: (words behind `avlab`, whether the call is whole), of code blocks and of inline code.

    Inline code may name a command without its arguments.
    """
    found = []
    for block in re.findall(r"^```[^\n]*\n(.*?)^```", text, re.S | re.M):
        for line in block.replace("\\\n", " ").splitlines():
            if not re.match(r"(\w+=\S+ )*(\S+/)?avlab ", line):
                continue
            words = shlex.split(line, comments=True)
            while "=" in words[0]:  # variables in front
                words.pop(0)
            found.append((words[1:], True))
    inline = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    for code in re.findall(r"`(?:\.venv\S*/bin/)?avlab ([^`]+)`", inline):
        found.append((shlex.split(code), False))
    return found


CALLS = [
    pytest.param(words, whole, id=f"{page.name}: {' '.join(words)}")
    for page in PAGES
    for words, whole in commands_in(page.read_text(encoding="utf-8"))
]


def test_there_are_commands_to_check():
    assert len(CALLS) > 40 and {words[0] for words, _ in (call.values for call in CALLS)} >= set(COMMANDS)


@pytest.mark.parametrize(("words", "whole"), CALLS)
def test_every_command_in_the_documents_is_one(words, whole):
    try:
        name, given = parse(words)
    except Exception as error:
        assert not whole and "Missing parameter" in str(error), f"{' '.join(words)}: {error}"
        return
    if any(
        PLACEHOLDERS.search(word) for word in words
    ):  # its options are known; their values are the reader's
        return
    options = {name: value for name, value in given.items() if value is not None and name != "as_json"}
    if name == "run":
        load = OwnLoad(concurrency=options.pop("concurrency", None), **of(Emulation, options))
        load.configured(limited(load.with_arrival(plain_settings(options))))
    if name == "ab":
        own, emulation = of(Comparison, options), Emulation(**of(Emulation, options))
        arms = own.pop("arms").split(",")
        objective(own.pop("slo", None))
        make_plan(emulation.configured(plain_settings(options), policy="none"), arms, **own)
    if name == "vllm run":
        assert VllmConfig.make(serve=command_of(options["words"])).K


def of(own, options):
    """The options that are a class's own, taken out of all."""
    return {field.name: options.pop(field.name) for field in fields(own) if field.name in options}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_target_of_make_in_the_documents_is_one(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    text = page.read_text(encoding="utf-8")
    called = re.findall(r"`make ([a-z-]+)", text) + re.findall(r"^make ([a-z-]+)", text, re.M)
    assert set(called) <= targets, set(called) - targets


@pytest.mark.parametrize("kind", sorted(kinds()))
def test_the_readme_names_the_workload(kind):
    assert f"`{kind}`" in README


def test_links_in_the_documents_lead_somewhere():
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name} links to {link}, which does not exist"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_the_documents_name_exist(page):
    """A path from the repository's top or from `avlab/`, or the end of one."""
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[\w-]+/)*[\w-]+\.(?:py|h|cpp|toml|json))`", text))
    there = [
        f"/{path.relative_to(ROOT)}"
        for top in ("avlab", "store", "pages", "tests", "docs")
        for path in (ROOT / top).rglob("*.*")
    ]
    there += [f"/{path.name}" for path in ROOT.iterdir()]
    missing = {name for name in named if not any(path.endswith(f"/{name}") for path in there)}
    made = {"audit.jsonl", "drafter.json", "config.json"}  # of runs and of checkpoints
    assert not missing - made, f"{page.name} names {sorted(missing - made)}"
