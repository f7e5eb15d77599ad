"""Estimators that learn from some texts of a trace, to be judged on the others."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from avlab.machines import Machine
from avlab.policies.adaptive import Adaptive, AdaptiveVerification
from avlab.policies.base import Policy, PolicyContext
from avlab.policies.wrappers import FullVerification
from avlab.replay.about import TraceError
from avlab.replay.serving import Replay
from avlab.replay.trace import Trace
from avlab.speculation.estimators import base as estimators
from avlab.speculation.estimators.base import Estimator
from avlab.speculation.features import Features
from avlab.speculation.labels import Labels, labels

STEPS = 1000  # of learning: ten refits
REQUESTS = 16  # that are under way meanwhile
FOLDS = 2  # of the texts: each is judged by an estimator that has not seen it


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """Drafts of texts as a server meets them that verifies everything: N drafts of K positions.

    text [N]: whose draft. features of [N, K] slots. labels: up to the first refusal, uncensored by admissions. chance
    [N, K]: the true chance of each slot given the drafted prefix.
    """

    text: np.ndarray
    features: Features
    labels: Labels
    chance: np.ndarray

    def __getitem__(self, rows: np.ndarray) -> Slots:
        classes = None if self.features.classes is None else np.asarray(self.features.classes)[rows]
        return Slots(
            self.text[rows],
            Features(self.features.names, self.features.values[rows], classes),
            Labels(*(each[rows] for each in self.labels)),
            self.chance[rows],
        )


def fully_verified(trace: Trace) -> Slots:
    """The anchors of every text at which a server that verifies whole drafts stands, text by text."""
    K, at, rows, texts = trace.about.K, np.zeros(trace.texts, dtype=np.int64), [], []
    live = np.flatnonzero(trace.output_tokens > 1)
    while len(live):
        anchor = trace.first[live] + at[live]
        rows.append(anchor)
        texts.append(live)
        offered = np.clip(trace.limit[live] - at[live] - 2, 0, K)
        at[live] += np.minimum(trace.accepted[anchor], offered) + 1
        live = live[at[live] < trace.output_tokens[live] - 1]
    anchor, text = np.concatenate(rows), np.concatenate(texts)
    order = np.lexsort((anchor, text))
    anchor, text = anchor[order], text[order]
    position = anchor - trace.first[text]
    offered = np.minimum(np.clip(trace.limit[text] - position - 2, 0, K), trace.slots()[anchor])
    left = trace.output_tokens[text] - 1 - position
    return Slots(
        text,
        Features(trace.about.features, trace.features[anchor].astype(np.float64), trace.kind[text]),
        labels(np.minimum(trace.accepted[anchor], offered), offered, K, left),
        trace.acceptance[anchor].astype(np.float64),
    )


def folds(trace: Trace, seed: int = 0) -> np.ndarray:
    """Which fold each text is in, [T]: equal shares of every kind, by chance. All draws of a text are in one."""
    draws = trace.about.draws
    kinds = trace.kind[::draws]
    fold, rng = np.zeros(len(kinds), dtype=np.int64), np.random.default_rng([seed, 5])
    for kind in sorted(set(kinds)):
        mine = rng.permutation(np.flatnonzero(kinds == kind))
        fold[mine] = np.arange(len(mine)) % FOLDS
    return np.repeat(fold, draws)


def check(trace: Trace, names: list[str]) -> None:
    """Raises TraceError for an estimator that does not exist, or that reads what the trace has not recorded."""
    for name in names:
        if not estimators.exists(name):
            known = ", ".join(estimators.judged())
            raise TraceError(f"There is no estimator {name!r}; known are {known}.")
        missing = [each for each in estimators.named(name).reads if each not in trace.about.features]
        if missing:
            raise TraceError(
                f"The estimator {name} reads {missing[0]}, and this trace has recorded only "
                f"{', '.join(trace.about.features)}: choose another trace or estimator."
            )


def judgeable(trace: Trace) -> list[str]:
    """The estimators that can be judged on this trace, the default first."""
    return [
        name for name in estimators.judged() if set(estimators.named(name).reads) <= set(trace.about.features)
    ]


def policy_of(
    trace: Trace,
    machine: Machine,
    name: str,
    load: int,
    depth: bool = False,
    context: PolicyContext | None = None,
) -> AdaptiveVerification:
    """Adaptive verification by any estimator, those included that no run may be served by.

    context: else as the machine's table has it for so many requests.
    """
    if context is None:
        cached = load * trace.typical_length()
        context = PolicyContext(trace.about.K, machine.table(cached))
    return AdaptiveVerification(Adaptive(source=name, depth=depth), context)


def learn(
    trace: Trace,
    machine: Machine,
    name: str,
    texts: np.ndarray,
    *,
    own: bool = False,
    load: int = REQUESTS,
    steps: int = STEPS,
    seed: int = 0,
    start: Estimator | None = None,
) -> list[tuple[int, Estimator]]:
    """An estimator at the cold start and after each refit: (labels so far, the estimator then).

    texts: what it is served. own: it sees only what it admits itself, as in serving; else everything is verified.
    start: an estimator to go on with.
    """
    policy = policy_of(trace, machine, name, load)
    if start is not None:
        policy.estimator = deepcopy(start)
    served: Policy = policy if own else FullVerification(policy, trace.about.K)
    replay, seen = Replay(trace, machine, served, load, seed, texts), 0
    found = [(0, deepcopy(policy.estimator))]
    if not policy.estimator.learns:
        return found
    for step in range(1, steps + 1):
        _, decoding = replay.watched_step()
        seen += 0 if decoding.labels is None else int(decoding.labels.labelled.sum())
        if step % 100 == 0:
            found.append((seen, deepcopy(policy.estimator)))
    return found
