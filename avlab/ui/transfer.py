"""A run as one zip file, out and in: the folder that `avlab.store.export` writes and reads, packed."""

import io
import tempfile
import zipfile
from pathlib import Path

import streamlit as st

from avlab.experiments.answers import Objective
from avlab.report import report
from avlab.store.errors import TransferError
from avlab.store.export import FORMS, export_run, import_run
from avlab.store.tables import TABLES
from avlab.ui import host

MOST_BYTES = 4 << 30  # of a zip's contents: far more than a day's run, far less than a disk


def exported(run: str, form: str) -> bytes:
    """The run as a zip file. Raises TransferError."""
    packed = io.BytesIO()
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / f"avlab-{run}"
        with host.connection() as con:
            export_run(con, run, folder, form)
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(folder.iterdir()):
                archive.write(path, path.name)
    return packed.getvalue()


def imported(data: bytes) -> str:
    """Adds the run in a zip file to the lab's database; returns its id. Raises TransferError.

    Only files with the names of an export are unpacked, so nothing can be written anywhere else.
    """
    names = {"manifest.json", *(f"{table}.{form}" for table in TABLES for form in FORMS)}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive, tempfile.TemporaryDirectory() as parent:
            members = [member for member in archive.infolist() if Path(member.filename).name in names]
            if sum(member.file_size for member in members) > MOST_BYTES:
                raise TransferError(
                    f"The file unpacks to more than {MOST_BYTES >> 30} GB: import it with less in it."
                )
            for member in members:
                (Path(parent) / Path(member.filename).name).write_bytes(archive.read(member))
            return import_run(host.lab().database, parent)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        if isinstance(error, TransferError):
            raise
        raise TransferError("The file is not a zip of an exported run: export the run again.") from None


def report_button(run: str, slo: Objective | None = None) -> None:
    """A button that gives a run as one HTML file; slo as in `report`."""

    def made() -> str:
        with host.connection() as con:
            return report(con, run, slo)

    st.download_button(
        "Report as one HTML file", data=made, file_name=f"avlab-{run}.html", mime="text/html", key=f"report-{run}",
        icon=":material/download:", help="Verdict, charts, ledger, settings, machine; opens without a network.",
    )  # fmt: skip
