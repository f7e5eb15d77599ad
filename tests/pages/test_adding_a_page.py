"""A page is one file: the navigation, and every list of pages, find it."""

import shutil

import pytest
import streamlit as st
from dashboard import ALL_PAGES, opened, said
from places import ROOT
from streamlit.testing.v1 import AppTest

from avlab.ui.page_files import PageFile, PageFileError, page_files

PAGE = """
import streamlit as st

TITLE = "Of my own"
ICON = ":material/star:"
ORDER = 15

st.markdown(f"## {TITLE}")
"""


def test_one_file_more_is_a_page_more(tmp_path, monkeypatch):
    shutil.copy(ROOT / "app.py", tmp_path)
    shutil.copytree(ROOT / "pages", tmp_path / "pages", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "pages" / "of_my_own.py").write_text(PAGE, encoding="utf-8")
    names = [file.name for file in page_files(tmp_path / "pages")]
    assert names == [ALL_PAGES[0], "of_my_own", *ALL_PAGES[1:]]

    navigated = []
    navigation = st.navigation
    monkeypatch.setattr(st, "navigation", lambda pages: navigated.append(pages) or navigation(pages))
    with opened(tmp_path / "lab.duckdb"):
        app = AppTest.from_file(str(tmp_path / "app.py"), default_timeout=120).run()
        app.switch_page("pages/of_my_own.py").run()
        assert not app.exception and "## Of my own" in said(app)
    assert [page.title for page in navigated[-1]][:3] == ["Live", "Of my own", "Tour"]


def test_a_page_is_not_run_to_be_found(tmp_path):
    text = 'raise SystemExit\nTITLE = "A"\nICON = ":material/star:"\nORDER = 3\n'
    (tmp_path / "a.py").write_text(text, encoding="utf-8")
    assert page_files(tmp_path) == (PageFile(3, "a", "A", ":material/star:"),)


@pytest.mark.parametrize(
    "text", ['TITLE = "A"\nICON = ":material/star:"', 'TITLE = str()\nICON = "x"\nORDER = 1', "ORDER = 1"]
)
def test_a_page_that_does_not_say_what_it_is_is_named(text, tmp_path):
    (tmp_path / "untitled.py").write_text(text, encoding="utf-8")
    with pytest.raises(PageFileError, match=r"untitled\.py needs TITLE and ICON"):
        page_files(tmp_path)


def test_every_page_has_a_place_of_its_own_and_stands_in_the_readme():
    files = page_files(ROOT / "pages")
    assert len({file.order for file in files}) == len(files)
    rows = (
        (ROOT / "README.md")
        .read_text(encoding="utf-8")
        .split("| page | what it answers |")[1]
        .split("\n\n")[0]
    )
    titles = [row.split("|")[1].strip() for row in rows.splitlines()[2:]]
    assert titles == [file.title for file in files]
