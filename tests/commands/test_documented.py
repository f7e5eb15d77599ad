"""Every command, option, policy form and workload is in the documentation, and the generated page is current."""

import importlib.util
import re

import pytest
import typer.main
from places import ROOT

from avlab.commands.cli import app
from avlab.workloads import kinds

README = (ROOT / "README.md").read_text(encoding="utf-8")


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


@pytest.mark.parametrize(
    "name",
    [
        "run",
        "ab",
        "frontier",
        "runs",
        "show",
        "export",
        "report",
        "costs",
        "bias",
        "attach",
        "doctor",
        "vllm",
    ],
)
def test_the_readme_shows_the_command(name):
    assert f"avlab {name}" in README


@pytest.mark.parametrize("kind", sorted(kinds()))
def test_the_readme_names_the_workload(kind):
    assert f"`{kind}`" in README


def test_links_in_the_documents_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name} links to {link}, which does not exist"
