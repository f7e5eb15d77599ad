"""Worker kinds, the lab's side: one file each, found by its name; the worker's side is `avlab/workers/<kind>.py`."""
