"""The environments: what they share stands once, and each says which torch it is for."""

import re
import tomllib

from places import ROOT

from avlab.vllm import SERVED, NotInstalled

OWN = {  # what an environment may say beside the common file
    "requirements.txt": {"torch": "torch==2.13.0", "transformers": "transformers==5.24.0"},
    "requirements-gpu.txt": {"torch": "torch==2.14.0", "vllm": f"vllm=={SERVED}"},
}


def lines(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    return [stripped for line in text.splitlines() if (stripped := line.partition("#")[0].strip())]


def package(line):
    return re.match(r"[A-Za-z0-9_.-]+", line)[0].lower()


def test_what_environments_share_stands_once():
    common = [package(line) for line in lines("requirements-common.txt")]
    assert len(common) == len(set(common)) and {"torch", "duckdb", "streamlit"} <= set(common)
    for name, own in OWN.items():
        found = lines(name)
        assert found[0] == "-r requirements-common.txt"
        assert {package(line): line for line in found[1:]} == own, name


def test_the_packages_metadata_is_the_common_file():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [file] = settings["tool"]["setuptools"]["dynamic"]["dependencies"]["file"]
    assert file == "requirements-common.txt"
    assert not [line for line in lines(file) if line.startswith("-")]  # setuptools takes no options there


def test_the_sentence_for_a_missing_vllm_names_a_file_that_exists():
    named = re.search(r"requirements-\w+\.txt", str(NotInstalled("this")))
    assert (ROOT / named[0]).exists()
