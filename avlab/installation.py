"""Where this package lies: in a checkout of the project, or installed among other packages."""

import contextlib
import hashlib
import os
from pathlib import Path

import platformdirs

PACKAGE = Path(__file__).parent
PROJECT = PACKAGE.parent  # the checkout, or site-packages
IN_CHECKOUT = (PROJECT / "pyproject.toml").is_file()


def data_folder() -> Path:
    """Where the user's lab and machines are: beside $AVLAB_DATABASE, else the user's data folder."""
    named = os.environ.get("AVLAB_DATABASE")
    return (
        Path(named).expanduser().parent
        if named
        else Path(platformdirs.user_data_dir("avlab", appauthor=False))
    )


def import_path() -> Path:
    """A folder from which another interpreter imports this very package, and none of the packages beside it.

    The checkout; else a folder in the user's cache with a link to the package. Raises OSError.
    """
    if IN_CHECKOUT:
        return PROJECT
    name = hashlib.sha256(str(PACKAGE).encode()).hexdigest()[:16]
    folder = Path(platformdirs.user_cache_dir("avlab", appauthor=False)) / "import" / name
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.symlink(PACKAGE, folder / "avlab", target_is_directory=True)
    return folder
