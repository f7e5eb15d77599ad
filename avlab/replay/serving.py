"""Serving a trace: the engine's own policies over recorded drafts, on a machine's clock.

A step does what `engine.Engine.step` does, less the models: texts advance by the slots they follow, and time by what
the machine's table says. Everything but the costs is exact (`speculation.coupling`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from avlab.machines import Machine
from avlab.policies.base import Policy
from avlab.replay.trace import Trace, TraceError
from avlab.speculation.decision import Offer
from avlab.speculation.features import Features
from avlab.speculation.labels import labels


@dataclass(frozen=True, slots=True)
class Step:
    """One step. milliseconds: of the draft, the target's pass and the rest. Counts are over its requests."""

    milliseconds: tuple[float, float, float]
    decoding: int  # requests that could draft
    emitting: int
    tokens: int  # output tokens
    prefill: int  # prompt tokens
    depth: int
    scheduled: int
    admitted: int
    accepted: int


class Replay:
    """Serves the texts of a trace with so many requests always under way, under one policy.

    Texts come in an order drawn by the seed, each again when all were served; `rounds` says how often that happened.
    Two replays with one seed meet the same texts with the same drafts, whatever their policies: common random numbers.
    """

    def __init__(
        self,
        trace: Trace,
        machine: Machine,
        policy: Policy,
        requests: int,
        seed: int = 0,
        texts: np.ndarray | None = None,
    ):
        """texts: the numbers of the texts to serve, as often as each is named; else all.

        Raises TraceError for more requests than the machine serves at once.
        """
        most = machine.about.most_requests
        if not 1 <= requests <= most:
            raise TraceError(f"{machine.about.title}: serves 1 to {most} requests at once, not {requests}.")
        self.trace, self.machine, self.policy, self.K = trace, machine, policy, trace.about.K
        self._order, self._coins = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
        self._texts = np.arange(trace.texts) if texts is None else texts
        self._turn, self._next, self.rounds = self._order.permutation(self._texts), 0, 0
        self.text = np.array([self._take() for _ in range(requests)])
        # as under a load that has run for a while, each request is somewhere in its text
        share = np.random.default_rng([seed, 3]).random(requests)
        self.at = (share * (trace.output_tokens[self.text] - 1)).astype(np.int64)
        self.prompt = np.zeros(requests, dtype=np.int64)  # prompt tokens still to be computed
        self.earlier = np.full((requests, self.K), np.nan)

    def step(self) -> Step:
        """One step of all requests: decide, read the draft, estimate, admit, advance, observe."""
        trace, K, policy = self.trace, self.K, self.policy
        ready = np.flatnonzero(self.prompt == 0)  # [B]
        prefill, begun = self._compute_prompts()
        left = trace.output_tokens[self.text[ready]] - 1 - self.at[ready]  # output tokens to come
        most = trace.limit[self.text[ready]] - self.at[ready] - 2  # one more token must remain behind a draft
        offer = Offer(
            scheduled=np.clip(most, 0, K),
            earlier=self.earlier[ready],
            coins=self._coins.random(len(self.text))[ready],
            requests=len(ready),
            emitting=len(ready) + begun,
            other_tokens=len(ready) + prefill,
        )
        depth, lengths, kept = 0, np.zeros(len(ready), dtype=np.int64), np.zeros(len(ready), dtype=np.int64)
        if len(ready):
            decision = policy.decide(offer)
            depth = decision.drafted
            offer.scheduled = np.minimum(offer.scheduled, depth)
            anchor = trace.first[self.text[ready]] + self.at[ready]
            features = self._features(trace.features[anchor], depth)
            estimates = policy.estimate(features) if depth else None
            lengths = policy.admit(decision, estimates, offer).admitted
            kept = np.minimum(trace.accepted[anchor], lengths)
            if depth:
                policy.observe(features, estimates, labels(kept, lengths, K, left))
            self.earlier[ready] = (
                np.nan
                if estimates is None
                else self._remembered(anchor, lengths, depth, estimates.probability)
            )
        policy.end_step()
        emitted = np.minimum(kept + 1, left)  # an accepted end of text has nothing behind it
        self.at[ready] += emitted
        self._replace(ready)
        return Step(
            milliseconds=self.machine.milliseconds(
                len(ready), depth, offer.other_tokens + int(lengths.sum())
            ),
            decoding=len(ready),
            emitting=offer.emitting,
            tokens=int(emitted.sum()) + begun,
            prefill=prefill,
            depth=depth,
            scheduled=int(offer.scheduled.sum()) if depth else 0,
            admitted=int(lengths.sum()),
            accepted=int(kept.sum()),
        )

    def _features(self, values: np.ndarray, depth: int) -> Features:
        values = values.astype(np.float64)
        values[:, depth:] = np.nan
        return Features(self.trace.about.features, values)

    def _remembered(
        self, anchor: np.ndarray, lengths: np.ndarray, depth: int, estimate: np.ndarray
    ) -> np.ndarray:
        """Estimates [B, K] for the next step's decision. Slots behind what was verified are those of a draft that does
        not know the text: in serving the text there is drawn later."""
        behind = self.trace.behind
        trimmed = (lengths < depth) & (self.trace.accepted[anchor] >= lengths)
        if behind is None or not trimmed.any():
            return estimate
        who = np.flatnonzero(trimmed)
        other = self.policy.estimate(self._features(behind[anchor[who], lengths[who]], depth))
        remembered = estimate.copy()
        if other is not None:
            remembered[who] = other.probability
        return remembered

    def _compute_prompts(self) -> tuple[int, int]:
        """Prompt tokens computed this step, first come first served, and requests that emit their first token."""
        waiting = np.flatnonzero(self.prompt)
        if not len(waiting):
            return 0, 0
        room, begun = self.machine.about.prefill_tokens, 0
        for request in waiting:
            chunk = min(int(self.prompt[request]), room)
            self.prompt[request] -= chunk
            room -= chunk
            begun += int(self.prompt[request] == 0)
        return self.machine.about.prefill_tokens - room, begun

    def _replace(self, ready: np.ndarray) -> None:
        for request in ready[self.at[ready] >= self.trace.output_tokens[self.text[ready]] - 1]:
            self.text[request] = self._take()
            self.at[request], self.earlier[request] = 0, np.nan
            self.prompt[request] = self.trace.prompt_tokens[self.text[request]]

    def _take(self) -> int:
        if self._next == len(self._turn):
            self._turn, self._next, self.rounds = (
                self._order.permutation(self._texts),
                0,
                self.rounds + 1,
            )
        self._next += 1
        return int(self._turn[self._next - 1])
