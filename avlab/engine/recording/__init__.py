"""Recording a trace with the real target and drafter.

`texts.py` has the target write texts. `recorder.py` drafts at every position of them, jointly with the text, and has
the target judge each draft; `chances.py` is the target's distribution as that needs it.
"""
