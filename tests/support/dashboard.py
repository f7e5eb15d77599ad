"""For the tests of the dashboard: runs recorded through the real recorder, and a page drawn without a browser."""

import sys
import time
from contextlib import contextmanager

from places import ROOT, SUPPORT
from streamlit.testing.v1 import AppTest

from avlab.ui import host
from avlab.ui.page_files import page_files

STAND_IN = (sys.executable, str(SUPPORT / "stand_in_serving.py"))
ALL_PAGES = tuple(file.name for file in page_files(ROOT / "pages"))
PAGES = tuple(
    name for name in ALL_PAGES if name not in ("estimators", "sampling_bias", "tour", "vllm")
)  # those that show a run


@contextmanager
def opened(path):
    """The dashboard's lab over a database, with a worker that needs no model."""
    host.open_lab(path, {"reference": STAND_IN})
    assert not host.problem()
    try:
        yield host.lab()
    finally:
        host.close_lab()


def until(condition, seconds=90.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def steps_of(lab):
    return lab.tally.snapshot()["steps"]


def finished_run(lab, **values):
    """A short run under an adaptive policy, recorded to its end; its id."""
    run = lab.run(
        {"workload": "code", "tokens": 1500, "drafts": "all", "K": 4, "max_new_tokens": 40} | values
    )
    assert lab.supervisor.wait(120)
    return run


def page(name="live", run=None, **address):
    """The page, drawn once; address: what else stands in it."""
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    if run is not None:
        app.query_params["run"] = run
    for setting, value in address.items():
        app.query_params[setting] = value
    app.run()
    if name != "live":
        app.switch_page(f"pages/{name}.py").run()
    return app


def said(app):
    """Everything that the page says in words."""
    kinds = ("markdown", "caption", "info", "error", "warning", "metric")
    return "\n".join(
        f"{each.label} {each.value}" if kind == "metric" else str(each.value)
        for kind in kinds
        for each in getattr(app, kind)
    )


def charts(app):
    """How many charts the page has."""
    return sum(element.proto.component_name == "avlab_chart" for element in app.get("bidi_component"))
