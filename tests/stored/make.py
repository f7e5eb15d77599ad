"""Writes the stored file of the present schema version: `python tests/stored/make.py`, once a version.

A stored file is never written again: it stands for the files that users have.
"""

import gzip
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent / "support")]

import store_frames as frames  # noqa: E402

from avlab.store.recorder import Recorder  # noqa: E402
from avlab.store.schema import VERSION  # noqa: E402

if __name__ == "__main__":
    target = HERE / f"schema_{VERSION}.duckdb.gz"
    if target.exists():
        sys.exit(f"{target} is there already, and stays as it is.")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.duckdb"
        sent = frames.whole_run()
        sent[0] = frames.hello(config={**sent[0].config, "keep_text": True})
        with Recorder(path) as recorder:
            for envelope in frames.envelopes(sent):
                recorder.record(envelope)
        target.write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
        print(target, target.stat().st_size, "bytes")
