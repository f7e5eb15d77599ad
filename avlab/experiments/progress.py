"""How far an experiment is: learning, rounds, and how long there is to go."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from avlab.formats import counted
from avlab.policies.arm import arm_of
from avlab.store.experiment_rows import RecordedPlan, Round
from avlab.wire.commands import Experiment


class Pace:
    """How long something takes that goes on in like parts, by the parts whose end was seen."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._first = self._last = (0.0, 0)  # when a part was seen to have ended, and how many had

    def __call__(self, done: int, total: int) -> str:
        """What to add to a line: about how long there is to go; nothing while that is not known."""
        now = self._clock()
        if done > self._last[1]:
            self._last = now, done
            self._first = self._first if self._first[1] else self._last
        (began, before), (then, parts) = self._first, self._last
        if parts == before or done >= total:
            return ""
        seconds = max((total - parts) * (then - began) / (parts - before) - (now - then), 0.0)
        return f", about {seconds / 60:.0f} min to go" if seconds >= 90 else f", about {seconds:.0f} s to go"


@dataclass(frozen=True, slots=True)
class Progress:
    """done of total parts of the whole plan, which are alike in length: steps, or rounds where those are not known.

    text: what is under way, with its count.
    """

    done: int
    total: int
    text: str


def learning_steps(plan: Experiment) -> int:
    """Steps that are served before the first round."""
    return plan.learn * sum(arm_of(arm).learns for arm in plan.arms)


def progress(plan: RecordedPlan, rounds: Sequence[Round], last_step: int) -> Progress:
    """How far an A/B is. last_step: the last one of the run, playground and windows included; -1 before the first."""
    kept, learn = sum(row.kept for row in rounds), learning_steps(plan)
    taken = max(last_step + 1 - plan.step, 0)
    learning = not rounds and taken < learn
    text = (
        f"Learning, before the first round: {taken:,} of {counted(learn, 'step')}"
        if learning
        else f"{kept} of {counted(plan.rounds, 'round')}"
    )
    if dropped := len(rounds) - kept:
        text += f", {dropped} dropped"
    if plan.unit != "steps" or plan.design != "switchback":  # how many steps a round has is not known
        return Progress(kept, plan.rounds, text)
    in_round = int(len(plan.arms) * (plan.washout + plan.length))
    since = max(last_step - rounds[-1].step, 0) if rounds else max(taken - learn, 0)
    done = min(taken, learn) + kept * in_round + min(since, in_round - 1)
    return Progress(done, learn + plan.rounds * in_round, text)
