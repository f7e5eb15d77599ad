"""`avlab`, whose every acknowledgement is also written to a file outside of the database: AVLAB_ACKNOWLEDGED.

What stands in that file has been promised to a worker, which then forgets the rows: they must be in the database,
whatever happens to this process. AVLAB_LARGEST_FILE (bytes) makes a disk that fills up: no file of this process grows
beyond it.
"""

import os
import resource
import signal

from avlab.commands import cli
from avlab.store.recorder import Recorder

promised = os.open(os.environ["AVLAB_ACKNOWLEDGED"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
flush = Recorder.flush


def logged(self: Recorder) -> dict[str, int]:
    committed = flush(self)
    for run, sequence in committed.items():
        os.write(promised, f"{run} {sequence}\n".encode())
    return committed


Recorder.flush = logged  # type: ignore[method-assign]
if largest := os.environ.get("AVLAB_LARGEST_FILE"):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write then fails, as on a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(largest), resource.RLIM_INFINITY))
cli.main()
