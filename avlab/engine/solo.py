"""One request served alone, for the playground: the others keep their cache rows and go on afterwards.

Nothing of it reaches them: it has a cache row and noise of its own, and teaches no policy.
"""

from collections import deque
from typing import TYPE_CHECKING

from avlab.engine.request import Finished, Request
from avlab.engine.served import InProcessEngine
from avlab.policies.arm import Arm
from avlab.policies.wrappers import Frozen

if TYPE_CHECKING:  # importing these imports torch
    from avlab.engine.report import Observer, StepReport


class Solo:
    """Serves one request under an arm, between two steps of an engine's own service, until `close`.

    observer: is handed each of its steps. Raises RequestError or PolicyError, and leaves the engine as it was, when
    that cannot be.
    """

    def __init__(
        self, engine: InProcessEngine, request: Request, arm: Arm, observer: "Observer | None" = None
    ):
        self.engine, self.request = engine, request
        self._held = engine.sequences, engine.queue, engine.policy, engine.observer
        engine.sequences, engine.queue = [], deque()
        try:
            engine.set_policy(arm)
            engine.policy = Frozen(engine.policy)
            engine.add(request)
        except BaseException:
            self._bring_back()
            raise
        engine.observer = observer

    def step(self) -> "StepReport":
        """One step of the engine, which holds only this request; its report."""
        return self.engine.step()

    def close(self) -> Finished | None:
        """Bring the others back. What was cut short is returned; None if the request had ended, or never ran."""
        cancelled = self.engine.cancel(self.request.id)
        self._bring_back()
        return cancelled

    def _bring_back(self) -> None:
        engine = self.engine
        engine.sequences, engine.queue, engine.policy, engine.observer = self._held
