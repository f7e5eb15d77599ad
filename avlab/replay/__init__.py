"""Replay: texts recorded once with a draft at every position answer for every policy, load and machine.

`trace.py` is the recording and its file; `engine/recording.py` makes one with the real target and drafter; `serving.py`
serves it: the engine's own policies over recorded drafts, on a machine's clock (`avlab.machines`). Why that is exact:
`avlab/speculation/coupling.py`. No torch here.
"""
