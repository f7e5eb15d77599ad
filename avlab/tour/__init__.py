"""The tour: eight scenes that explain adaptive verification, one idea a screen, on recorded and replayed data.

A scene is one file in `scenes/` with a SCENE. The dashboard's page draws them, and `site.py` makes a folder of them.
"""

import functools

from avlab.modules import import_all
from avlab.tour.base import Scene


@functools.cache
def all_scenes() -> tuple[Scene, ...]:
    """All scenes, in the order in which they are told."""
    found = [module.SCENE for module in import_all("avlab.tour.scenes")]
    return tuple(sorted(found, key=lambda scene: scene.order))
