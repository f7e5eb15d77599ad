"""Unpack the Python code of the one wheel in a folder into another folder: `python unpack_wheel.py FROM TO`."""

import sys
import zipfile
from pathlib import Path

source, target = map(Path, sys.argv[1:])
[wheel] = source.glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    names = archive.namelist()
    archive.extractall(target, [each for each in names if each.endswith(".py") or ".dist-info/" in each])
