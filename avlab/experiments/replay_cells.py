"""A cell of a sweep: one arm under one load on one machine, replayed in blocks of as many tokens for every arm.

A block has a sample of texts of its own, drawn from the trace's with replacement, as many as the trace has (a
bootstrap by text). Sample, order and first requests are the same for every arm and load, so arms are compared block by
block (common random numbers). A block is a number of output tokens, not of steps: the same work for every arm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from avlab.machines import Machine
from avlab.policies.arm import Arm, unlabelled
from avlab.policies.base import Policy, PolicyContext, make_policy
from avlab.replay.serving import Replay
from avlab.replay.trace import Trace
from avlab.replay.under_way import Step

REPEATS = 10  # blocks
LEAST_TEXTS = 14  # of a block: with ten blocks, as many as a trace that ships has
TEXTS_A_REQUEST = 3  # of a block: under a high load prompts come in bursts, and more of them even out
LEARN = 300  # steps before the first block: three refits


@dataclass(frozen=True, slots=True)
class Block:
    """Sums over the steps of a block. emitting, decoding: requests that emitted, and that could draft."""

    tokens: int
    milliseconds: float
    steps: int
    emitting: int
    decoding: int
    admitted: int
    accepted: int
    depth: int


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """What one arm did under one load. texts: what a block serves on average; of: texts in the trace."""

    arm: str
    load: int
    texts: int
    of: int
    blocks: tuple[Block, ...]

    def by_block(self, name: str) -> np.ndarray:
        """One of a block's sums, [blocks]."""
        return np.array([getattr(block, name) for block in self.blocks], dtype=np.float64)

    def total(self, name: str) -> float:
        """One of a block's sums, over all blocks."""
        return float(self.by_block(name).sum())

    @property
    def tokens_per_s(self) -> float:
        """Output tokens a second, all requests together."""
        return 1e3 * self.total("tokens") / self.total("milliseconds")

    @property
    def tokens_per_step(self) -> float:
        """Output tokens of a request in a step that emitted any."""
        return self.total("tokens") / self.total("emitting")

    @property
    def tokens_per_s_per_user(self) -> float:
        """Output tokens a second of one request while it decodes."""
        return 1e3 * self.tokens_per_step * self.total("steps") / self.total("milliseconds")

    @property
    def admitted(self) -> float:
        """Draft tokens verified, of a request in a step in which it could draft."""
        return self.total("admitted") / max(self.total("decoding"), 1.0)

    @property
    def depth(self) -> float:
        """Positions drafted in a step."""
        return self.total("depth") / self.total("steps")


FIELDS = tuple(field.name for field in fields(Block))


class Serving:
    """A cell being replayed: each call of `more` serves further blocks. An adaptive arm goes on learning throughout."""

    def __init__(
        self,
        trace: Trace,
        machine: Machine,
        arm: str,
        load: int,
        seed: int = 0,
        policy: Policy | None = None,
        ahead: np.ndarray | None = None,
    ):
        """arm: a label. policy: serves in place of the arm's own. ahead [A, K]: what it is told, before the draft, in
        place of the estimates of the step before; only for limits that no arm can reach.

        Raises PolicyError for an arm that the trace cannot serve, TraceError for a load that the machine cannot.
        """
        self.arm, self.load = arm, load
        self._trace, self._machine, self._seed = trace, machine, seed
        self._policy, self._ahead = policy or policy_of(trace, machine, arm, load), ahead
        self._texts = max(LEAST_TEXTS, TEXTS_A_REQUEST * load)
        self._blocks: list[Block] = []
        Replay(trace, machine, self._policy, load)  # refuses what cannot be served before anything is

    @property
    def cell(self) -> Cell:
        """What was served so far; at least one block."""
        of = self._trace.texts // self._trace.about.draws
        return Cell(self.arm, self.load, self._texts, of, tuple(self._blocks))

    def more(self, blocks: int) -> Cell:
        """Serve so many blocks more; an arm that learns has learnt for LEARN steps before the first."""
        if not self._blocks and self._policy.arm.learns:
            replay = Replay(self._trace, self._machine, self._policy, self.load, self._seed)
            for _ in range(LEARN):
                self._step(replay)
        for _ in range(blocks):
            self._blocks.append(self._block(len(self._blocks)))
        return self.cell

    def _step(self, replay: Replay) -> Step:
        if self._ahead is not None:
            rows = replay.under_way
            rows.earlier[:] = self._ahead[self._trace.first[rows.text] + rows.at]
        return replay.step()

    def _block(self, number: int) -> Block:
        """Requests begin spread evenly over their texts; they lose that spread, as a lasting load has none, before
        counting begins: in as long as one text takes."""
        texts = self._trace.sample(np.random.default_rng([self._seed, 4, number]))
        replay = Replay(self._trace, self._machine, self._policy, self.load, self._seed + 1 + number, texts)
        mean, served = float(self._trace.output_tokens.mean()), 0
        while served < self.load * mean:
            served += self._step(replay).tokens
        sums = np.zeros(len(FIELDS))
        while sums[0] < self._texts * mean:
            step = self._step(replay)
            sums += (
                step.tokens, sum(step.milliseconds), 1, step.emitting, step.decoding, step.admitted, step.accepted,
                step.depth,
            )  # fmt: skip
        return block_of(sums.tolist())


def block_of(sums: list[float]) -> Block:
    """A block from its sums in the order of `FIELDS`."""
    given = dict(zip(FIELDS, sums, strict=True))
    milliseconds = given.pop("milliseconds")
    return Block(milliseconds=milliseconds, **{name: round(value) for name, value in given.items()})


def policy_of(trace: Trace, machine: Machine, arm: str, load: int) -> Policy:
    """A new policy of an arm, as this trace and machine let it decide. Raises PolicyError."""
    K = trace.about.K
    cached = load * trace.typical_length()
    served = Arm.parse(unlabelled(arm), K)
    served.require_features(trace.about.features)
    return make_policy(served, PolicyContext(K, machine.table(cached), measured=machine.executed(cached)))


def serve(trace: Trace, machine: Machine, arm: str, load: int, seed: int = 0, repeats: int = REPEATS) -> Cell:
    """One whole cell. Raises as `Serving` does."""
    return Serving(trace, machine, arm, load, seed).more(repeats)


def in_passes(servings: Sequence[Serving], passes: Sequence[int]) -> Iterator[Cell]:
    """Cells served a few blocks each in turn, so that a first picture stands early."""
    for blocks in passes:
        for serving in servings:
            yield serving.more(blocks)
