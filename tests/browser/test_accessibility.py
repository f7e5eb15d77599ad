"""axe-core finds no violation of WCAG 2.1 A or AA on any page, light or dark."""

import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import platformdirs
import pytest
from places import ROOT

from avlab.ui.page_files import page_files

pytestmark = [pytest.mark.browser, pytest.mark.long]

VERSION = "4.11.1"
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"], "resultTypes": ["violations"]}
PAGES = [file.name for file in page_files(ROOT / "pages")]


@pytest.fixture(scope="session")
def axe():
    """axe-core's own file, from the npm registry once, then from the cache."""
    kept = Path(platformdirs.user_cache_dir("avlab", appauthor=False)) / f"axe-core-{VERSION}.js"
    if not kept.is_file():
        if shutil.which("npm") is None:
            pytest.skip("npm is missing, with which axe-core is fetched")
        folder = kept.parent / "axe-core"
        folder.mkdir(parents=True, exist_ok=True)
        packed = subprocess.run(["npm", "pack", f"axe-core@{VERSION}"], cwd=folder, capture_output=True)
        if packed.returncode:
            pytest.skip(f"npm could not fetch axe-core {VERSION}")
        with tarfile.open(folder / f"axe-core-{VERSION}.tgz") as archive:
            kept.write_bytes(archive.extractfile("package/axe.min.js").read())
    return kept.read_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_hinders_a_reader(real_dashboard, chromium, axe, scheme):
    context = chromium.new_context(
        viewport={"width": 1280, "height": 1000}, color_scheme=scheme, bypass_csp=True
    )
    page = context.new_page()
    page.set_default_timeout(60_000)
    found = {}
    try:
        for name in PAGES:
            page.goto(f"{real_dashboard.url}/{'' if name == PAGES[0] else name}")
            page.get_by_test_id("stSidebarUserContent").wait_for()
            page.wait_for_function(
                "() => !document.querySelector('[data-stale=true], [data-testid=stSkeleton]')"
            )
            page.wait_for_timeout(2_500)
            page.evaluate(axe)
            answer = page.evaluate("rules => axe.run(document, rules)", RULES)
            for violation in answer["violations"]:
                for node in violation["nodes"]:
                    told = (
                        node["html"][:160],
                        (node["any"] or node["all"] or node["none"])[0]["message"][:200],
                    )
                    found.setdefault((violation["id"], *told), []).append(name)
    finally:
        context.close()
    assert not found, json.dumps([[*key, pages] for key, pages in found.items()], indent=1)
