"""Prompts of the reader's own, uploaded: checked as a file that is named, and kept beside the database."""

import hashlib
import re
from pathlib import Path

import streamlit as st

from avlab.escaping import in_markdown
from avlab.formats import counted
from avlab.ui import host
from avlab.workloads.base import WorkloadError
from avlab.workloads.files import read_prompts

MOST_MB = 64  # of an upload; a larger file is named by its path instead
FOLDER = "prompts"  # beside the database
SUFFIXES = ("jsonl", "json", "ndjson")


def kept(content: bytes, name: str, folder: Path) -> tuple[str, str]:
    """Keep a prompt file under a name of its content; the workload that serves it, and what is to be said of it.

    name: as the browser gives it, used for its letters and digits only. Raises WorkloadError where it is too large or
    nothing in it can be served; then nothing is kept.
    """
    if len(content) > MOST_MB << 20:
        raise WorkloadError(
            f"The file has more than {MOST_MB} MB: put it on this machine, and name it as file:PATH."
        )
    stem = re.sub(r"\W+", "-", Path(name).stem, flags=re.ASCII).strip("-")[:40] or "prompts"
    path = folder / f"{stem}-{hashlib.sha256(content).hexdigest()[:8]}.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    try:
        found = read_prompts(path)
    except WorkloadError:
        path.unlink()
        raise
    said = f"{counted(len(found.entries), 'prompt')} of {name} can be served."
    return f"file:{path}", " ".join([said, *found.notes])


def field() -> None:
    """An upload that becomes the form's workload."""
    file = st.file_uploader(
        "Your own prompts: one JSON object a line, as {\"prompt\": …} or {\"messages\": […]}",
        type=list(SUFFIXES), max_upload_size=MOST_MB, key="prompt-upload",
    )  # fmt: skip
    state = st.session_state
    if file is None or state.get("prompts-of") == file.file_id:
        if file is not None and (told := state.get("prompts-told")):
            st.caption(in_markdown(told))
        return
    try:
        workload, told = kept(file.getvalue(), file.name, host.lab().database.path.parent / FOLDER)
    except (WorkloadError, OSError) as error:
        st.error(in_markdown(str(error)))
        return
    state["prompts-of"], state["prompts-told"], state["form-workload"] = file.file_id, told, workload
    st.caption(in_markdown(told))
