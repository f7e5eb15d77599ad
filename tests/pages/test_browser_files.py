"""JavaScript and CSS are files: each says what it is for, all of them are used, and Python text holds none."""

import re

import pytest
from places import ROOT

FOLDERS = (ROOT / "avlab", ROOT / "pages", ROOT / "store")
FILES = sorted(path for kind in ("js", "css") for path in (ROOT / "avlab").rglob(f"*.{kind}"))
CODE = re.compile(
    r"addEventListener|querySelector|getElementById|\bconst \w+ =|\)\s*=>\s*\{"  # JavaScript
    r"|@media|[;{]\s*(?:color|margin|padding|display|font-size|opacity)\s*:[^;}]+;"  # CSS
)


def sources():
    return {path: path.read_text(encoding="utf-8") for folder in FOLDERS for path in folder.rglob("*.py")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_begins_with_what_it_is_for_and_is_read(path):
    begins = "// " if path.suffix == ".js" else "/* "
    assert path.read_text(encoding="utf-8").startswith(begins)
    assert any(re.search(rf"[\"']{re.escape(path.name)}[\"']", text) for text in sources().values())


def test_no_python_text_holds_javascript_or_css():
    found = {path.relative_to(ROOT): CODE.findall(text) for path, text in sources().items()}
    assert {path: words for path, words in found.items() if words} == {}
