"""A zip file with an exported run, unpacked: only files with an export's names, and no more bytes than are allowed."""

import stat
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from avlab.store.errors import TransferError
from avlab.store.export import FORMS
from avlab.store.sizes import MOST_UNPACKED, in_words
from avlab.store.tables import TABLES

MOST_MEMBERS = 1_000
_CHUNK = 1 << 20
NAMES = frozenset({"manifest.json", *(f"{table}.{form}" for table in TABLES for form in FORMS)})


def unpack(packed: BinaryIO, folder: Path) -> None:
    """Write an archive's files into a folder. Raises TransferError for whatever is no zip of an exported run.

    What the archive says of its sizes is not believed: the bytes that come out are counted.
    """
    try:
        with zipfile.ZipFile(packed) as archive:
            left = MOST_UNPACKED
            for member in _members(archive.infolist()):
                left = _write(archive, member, folder / PurePosixPath(member.filename).name, left)
    except TransferError:
        raise
    except Exception:  # zipfile, zlib, lzma, struct and others each raise their own over damaged bytes
        raise TransferError("The file is not a zip of an exported run: export the run again.") from None


def _members(found: Iterable[zipfile.ZipInfo]) -> list[zipfile.ZipInfo]:
    """The members that an export has, at the top of the archive or in one folder there."""
    chosen: dict[str, zipfile.ZipInfo] = {}
    for number, member in enumerate(found):
        if number >= MOST_MEMBERS:
            raise TransferError(f"The file holds more than {MOST_MEMBERS:,} files: it is no exported run.")
        path = PurePosixPath(member.filename)
        if member.is_dir() or path.name not in NAMES:
            continue
        shown = ascii(member.filename[:100])
        if path.is_absolute() or ".." in path.parts or len(path.parts) > 2 or "\\" in member.filename:
            raise TransferError(f"The file holds {shown}, outside of its folder: export the run again.")
        if path.name in chosen:
            raise TransferError(f"The file holds {path.name} twice: export the run again.")
        if member.flag_bits & 1:
            raise TransferError(f"The file holds {path.name} under a password: pack the folder without one.")
        if stat.S_ISLNK(member.external_attr >> 16):
            raise TransferError(f"The file holds a link for {path.name}: pack the folder's own files.")
        chosen[path.name] = member
    return list(chosen.values())


def _write(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path, left: int) -> int:
    """Unpack one member; how many bytes may still come after it."""
    with archive.open(member) as source, path.open("xb") as target:
        while part := source.read(_CHUNK):
            left -= len(part)
            if left < 0:
                raise TransferError(
                    f"The file unpacks to more than {in_words(MOST_UNPACKED)}: give the run's database with --database."
                )
            target.write(part)
    return left
