"""The house: who imports whom, as pyproject.toml has it, and what the pages may know."""

import ast

import pytest
from importlinter.cli import lint_imports
from places import ROOT

PAGES = sorted(ROOT.joinpath("pages").glob("[a-z]*.py"))
ROOMS_OF_PAGES = {  # below them: the engine and the worker's side are not
    "config", "diagnosis", "escaping", "experiments", "figures", "formats", "kinds", "machines", "policies",
    "speculation", "store", "tour", "ui", "vllm", "wire",
}  # fmt: skip


def imported(path):
    """The modules that a file imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_the_import_contracts_hold(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert lint_imports(no_cache=True) == 0, capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_knows_the_rooms_below_it(page):
    rooms = {name.split(".")[1] for name in imported(page) if name.startswith("avlab.")}
    assert rooms <= ROOMS_OF_PAGES
    assert not {"torch", "duckdb", "vllm"} & {name.partition(".")[0] for name in imported(page)}


def test_a_contract_that_is_broken_is_noticed(monkeypatch, tmp_path, capsys):
    """The contracts see an import inside a function: a package of one room that reaches up."""
    package = tmp_path / "house"
    for room, text in {"below": "def late():\n    import house.above\n", "above": ""}.items():
        (package / room).mkdir(parents=True)
        (package / room / "__init__.py").write_text(text)
    (package / "__init__.py").write_text("")
    (tmp_path / "pyproject.toml").write_text(
        '[tool.importlinter]\nroot_package = "house"\n'
        '[[tool.importlinter.contracts]]\nname = "rooms"\ntype = "layers"\n'
        'containers = ["house"]\nlayers = ["above", "below"]\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert lint_imports(no_cache=True) != 0
    assert "house.below is not allowed to import house.above" in capsys.readouterr().out
