"""A run as one zip file, out and in: the folder that `avlab.store.export` writes and reads, packed."""

import io
import tempfile
import zipfile
from pathlib import Path
from typing import BinaryIO

import streamlit as st

from avlab.experiments.answers import Objective
from avlab.report import report
from avlab.store.archive import unpack
from avlab.store.export import export_run, import_run
from avlab.ui import host


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


def imported(packed: BinaryIO) -> str:
    """Adds the run in a zip file to the lab's database; returns its id. Raises TransferError."""
    with tempfile.TemporaryDirectory() as parent:
        unpack(packed, Path(parent))
        return import_run(host.lab().database, parent)


def report_button(run: str, slo: Objective | None = None) -> None:
    """A button that gives a run as one HTML file; slo as in `report`."""

    def made() -> str:
        with host.connection() as con:
            return report(con, run, slo)

    st.download_button(
        "Report as one HTML file", data=made, file_name=f"avlab-{run}.html", mime="text/html", key=f"report-{run}",
        icon=":material/download:", help="Verdict, charts, ledger, settings, machine; opens without a network.",
    )  # fmt: skip
