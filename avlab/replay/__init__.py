"""Replay: texts recorded once with a draft at every position answer for every policy, load and machine.

`trace.py` is the recording and its file; `engine/recording/` makes one with the real target and drafter.
`under_way.py` serves it: the engine's own policies over recorded drafts, on a machine's clock (`avlab.machines`).
`serving.py` keeps so many requests always under way; `server.py` takes requests as they arrive. Why that is exact:
`avlab/speculation/coupling.py`. No torch here.
"""
