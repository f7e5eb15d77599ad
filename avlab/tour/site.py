"""The tour and the cases of Sampling bias as a folder that any browser opens: `make site`. It needs no server.

Every view is computed here, by the scenes themselves, and drawn there by plotly. `python -m avlab.tour.site FOLDER`.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import plotly

from avlab.glossary import WORDS
from avlab.tour import all_scenes
from avlab.tour.base import Scene
from avlab.tour.bias_scenes import PART, bias_scenes

STATIC = Path(__file__).parent / "static"
CHART = Path(__file__).parents[1] / "ui" / "static" / "chart.js"  # the dashboard's own
DEFAULT = Path("build/site")
EXPORTED = "export default function draw("


TOUR = "Tour"


def as_plain(scene: Scene, part: str = TOUR) -> dict[str, Any]:
    """A scene with all its views, as JSON can hold them."""
    control, quiz = scene.control, scene.quiz
    views = [scene.draw(place) for place in range(len(control.options))]
    return {
        "part": part,
        "name": scene.name,
        "title": scene.title,
        "question": scene.question,
        "control": {"label": control.label, "options": control.options, "at": control.at, "slider": control.slider},
        "notes": scene.notes,
        "quiz": quiz and {"asked": quiz.asked, "answers": quiz.answers, "right": quiz.right},
        "emulated": scene.emulated() if scene.emulated else "",
        "views": [
            {
                "title": view.title,
                "says": view.says,
                "reading": view.reading,
                "figure": json.loads(view.figure.to_json()),
            }
            for view in views
        ],
    }  # fmt: skip


def script() -> str:
    """The folder's one script: the dashboard's chart, then what steps through the scenes. A page that was opened from
    a disk may not import modules, so they stand in one text."""
    chart = CHART.read_text(encoding="utf-8")
    if chart.count(EXPORTED) != 1:
        raise ValueError(
            f"{CHART.name} no longer says {EXPORTED!r}: write here how its function is named now."
        )
    chart = chart.replace(EXPORTED, "function draw(")
    parts = (STATIC / "plotly_is_here.js").read_text(encoding="utf-8"), chart
    return "".join(parts) + (STATIC / "site.js").read_text(encoding="utf-8")


def make(folder: Path = DEFAULT) -> Path:
    """Write the folder anew; returns it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ("index.html", "site.css"):
        shutil.copy(STATIC / name, folder)
    shutil.copy(Path(plotly.__file__).parent / "package_data" / "plotly.min.js", folder)
    (folder / "site.js").write_text(script(), encoding="utf-8")
    scenes = [as_plain(scene) for scene in all_scenes()]
    scenes += [as_plain(scene, PART) for scene in bias_scenes()]
    told = json.dumps({"scenes": scenes, "words": WORDS}, separators=(",", ":"))
    (folder / "tour.js").write_text(f"window.AVLAB_TOUR = {told};\n", encoding="utf-8")
    return folder


if __name__ == "__main__":
    print(f"Open {make(Path(sys.argv[1]) if sys.argv[1:] else DEFAULT) / 'index.html'} in a browser.")
