"""The reference engine: continuous batching, and one step of speculative decoding with adaptive verification."""

import time
from collections import deque
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from avlab.engine import noise
from avlab.engine.admission import Admission, Offer, Policy, make_policy
from avlab.engine.cache import Batch, KVCache
from avlab.engine.drafters.base import Drafter, DraftInput, Drafts
from avlab.engine.request import Finished, Request, Sequence, check
from avlab.engine.sampler import SamplingParameters, speculative_sample
from avlab.engine.target import Target
from avlab.policies import Arm
from avlab.speculation.costs import CostTable
from avlab.speculation.estimator import REFIT_INTERVAL, Refit


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """slots: requests served at once. prompt_chunk: prompt tokens computed a step, beside decoding.

    new_request: what a request without an earlier estimate counts as: "one" (vLLM's rule) or "running-mean".
    """

    slots: int = 64
    prompt_chunk: int = 256
    new_request: str = "one"
    refit_interval: int = REFIT_INTERVAL


@dataclass(slots=True)
class Slots:
    """The raw draft slots of a step, [B, K] or [B]: what happened to every scheduled draft. label: -1 is censored."""

    request: np.ndarray
    kind: list[str]
    temperature: np.ndarray
    scheduled: np.ndarray
    admitted: np.ndarray
    accepted: np.ndarray
    feature: np.ndarray
    estimate: np.ndarray | None
    head: np.ndarray | None
    label: np.ndarray
    tokens: np.ndarray


@dataclass(slots=True)
class StepReport:
    """Everything one step did. Milliseconds by phase; vectors by position have K entries."""

    step: int
    arm: str
    running: int
    waiting: int
    emitting: int = 0
    prompt_tokens: int = 0
    target_tokens: int = 0
    drafted: int = 0
    tokens: int = 0
    admission: Admission | None = None
    slots: Slots | None = None
    emitted: list[tuple[Request, list[int]]] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)
    refit: Refit | None = None
    ms: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("draft", "verify", "sample", "decide"), 0.0)
    )


class Stopwatch:
    """Adds the time since the last lap to a phase."""

    def __init__(self, ms: dict[str, float], device: torch.device):
        self.ms, self.device, self.last = ms, device, time.perf_counter()

    def lap(self, phase: str) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        now = time.perf_counter()
        self.ms[phase] += (now - self.last) * 1e3
        self.last = now


class Engine:
    """Serves requests with one target, at most one drafter and one policy, which may be switched between two steps."""

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        costs: CostTable,
        config: EngineConfig,
        arm: Arm,
        cache: KVCache | None = None,
    ):
        self.target, self.drafter, self.costs, self.config = target, drafter, costs, config
        self.K = drafter.K if drafter else 0
        self.cache = cache or target.new_cache(config.slots)
        self.taps = drafter.state_layers if drafter else ()
        width = (1 + len(self.taps)) * target.config.hidden
        self.states = torch.zeros(config.slots, width, dtype=target.dtype, device=target.device)
        self.queue: deque[Request] = deque()
        self.sequences: list[Sequence] = []  # by rising slot
        self.policies: dict[str, Policy] = {}
        self.clock = time.monotonic
        self.step_number = 0
        self.mean_estimate = np.ones(
            self.K
        )  # running mean of estimates by position, for --new-request running-mean
        self.set_policy(arm)

    # ---- between steps ----------------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        return len(self.sequences)

    @property
    def waiting(self) -> int:
        return len(self.queue)

    @property
    def room(self) -> int:
        """Tokens a request may fill, prompt included, under any policy: a full draft still fits behind them."""
        return self.target.length - self.K

    def set_policy(self, arm: Arm) -> None:
        """Serve under this arm from the next step on. An arm met before goes on with what it had learnt.

        Where a head is asked for and the drafter has none (or it is off), the online estimator takes over.
        """
        if arm.source == "head" and not (self.drafter and self.drafter.has_head):
            arm = replace(arm, source="online")
        name = str(arm)
        if name not in self.policies:
            self.policies[name] = make_policy(arm, self.K, self.costs, self.config.refit_interval)
        self.policy = self.policies[name]

    def add(self, request: Request) -> None:
        """Queue a request. Raises RequestError if it can never be served."""
        check(request, self.target.config.vocabulary, self.room)
        self.queue.append(request)

    def cancel(self, request_id: int) -> Finished | None:
        """Take a request out; None if it was not running yet (then it leaves the queue) or is not here."""
        for sequence in self.sequences:
            if sequence.request.id == request_id:
                return self._end(sequence, "cancelled")
        self.queue = deque(r for r in self.queue if r.id != request_id)
        return None

    # ---- the step ---------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def step(self) -> StepReport:
        """One step: propose, estimate, admit, verify, sample, observe. Without requests it does nothing."""
        self._admit_requests()
        report = StepReport(self.step_number, str(self.policy.arm), self.running, self.waiting)
        if not self.sequences:
            return report
        self.step_number += 1
        watch = Stopwatch(report.ms, self.target.device)
        ready = [s for s in self.sequences if s.decoding]
        chunks = (
            self._prompt_chunks()
        )  # prompt tokens each sequence computes this step, 0 for those that decode
        completing = sum(
            0 < n == s.prompt_length - s.cached for s, n in zip(self.sequences, chunks, strict=True)
        )
        offer = Offer(
            scheduled=np.array([self._schedulable(s) for s in ready], dtype=np.int64),
            earlier=np.array([s.earlier for s in ready]).reshape(len(ready), self.K),
            requests=len(ready),
            emitting=len(ready) + completing,
            other_tokens=len(ready) + sum(chunks),
        )
        depth = self.policy.depth(offer) if ready else 0
        offer.scheduled = np.minimum(offer.scheduled, depth)
        seeds = np.array([s.request.seed % 2**64 for s in self.sequences], dtype=np.uint64)
        counters = np.array([s.draws for s in self.sequences])
        parameters = self._parameters(self.sequences)
        place = np.flatnonzero([s.decoding for s in self.sequences])  # where the ready requests stand
        watch.lap("decide")

        # propose: drafts [B, depth] and their distributions
        drafts = None
        if depth:
            drafts = self._propose(
                ready, depth, seeds[place], counters[place], parameters.temperature[self._tensor(place)]
            )
            watch.lap("draft")
            report.ms["draft"] -= drafts.feature_ms
            report.ms["decide"] += drafts.feature_ms

        # estimate and admit: prefix lengths [B]
        estimate = self.policy.estimate(drafts.feature, drafts.head) if drafts else None
        admission = self.policy.admit(estimate, offer) if ready else None
        watch.lap("decide")

        # verify: one ragged pass over newest tokens, admitted drafts and prompt chunks
        admitted = np.zeros(len(self.sequences), dtype=np.int64)
        if admission is not None:
            admitted[place] = admission.admitted
        logits, final, first = self._verify(drafts, place, chunks, admitted)
        watch.lap("verify")

        # sample: accepted [B] and the target's own token [B]; a prompt's last row is a request without drafts
        emits = [
            s.decoding or 0 < n == s.prompt_length - s.cached
            for s, n in zip(self.sequences, chunks, strict=True)
        ]
        emitting = np.flatnonzero(emits)
        accepted = np.zeros(len(self.sequences), dtype=np.int64)
        own = np.zeros(len(self.sequences), dtype=np.int64)
        if len(emitting):
            draft_row = np.zeros(len(self.sequences), dtype=np.int64)
            draft_row[place] = np.arange(len(place))
            kept, token = speculative_sample(
                logits,
                drafts,
                self._tensor(draft_row[emitting]),
                self._tensor(admitted[emitting]),
                parameters.take(self._tensor(emitting)),
                self._tensor(
                    noise.uniforms(seeds[emitting], noise.ACCEPT, counters[emitting], max(self.K, 1))
                ),
                self._tensor(noise.uniforms(seeds[emitting], noise.TOKEN, counters[emitting], 1)[:, 0]),
            )
            accepted[emitting], own[emitting] = kept.cpu().numpy(), token.cpu().numpy()
        rows = self._tensor(first + accepted + np.maximum(np.array(chunks) - 1, 0))
        self.states[[s.slot for s in self.sequences]] = final[rows]
        drawn = drafts.tokens.cpu().numpy() if drafts else np.zeros((len(ready), 0), dtype=np.int64)
        limit = self._extend(report, chunks, emits, accepted, own, drawn)
        watch.lap("sample")

        # observe: labels through the first rejection, not past what was admitted or what was emitted
        report.prompt_tokens, report.target_tokens = sum(chunks), offer.other_tokens + int(admitted.sum())
        report.drafted, report.admission = depth, admission
        if drafts:
            self._observe(
                report, ready, drafts, estimate, offer, admission, accepted[place], limit[place], drawn
            )
        report.refit = self.policy.end_step()
        report.finished += [self._end(s, reason) for s in list(self.sequences) if (reason := self._over(s))]
        watch.lap("decide")
        return report

    def _admit_requests(self) -> None:
        while self.queue and self.cache.free_slots:
            request = self.queue.popleft()
            earlier = self.mean_estimate if self.config.new_request == "running-mean" else np.ones(self.K)
            sequence = Sequence(request, self.cache.acquire(), list(request.tokens), earlier)
            sequence.admitted_at = self.clock()
            self.sequences.append(sequence)
        self.sequences.sort(key=lambda s: s.slot)

    def _prompt_chunks(self) -> list[int]:
        left, chunks = self.config.prompt_chunk, []
        for s in self.sequences:
            chunks.append(min(left, max(s.prompt_length - s.cached, 0)))
            left -= chunks[-1]
        return chunks

    def _schedulable(self, s: Sequence) -> int:
        """The most drafts that can still be of use: one less than the tokens the request may emit."""
        return max(0, min(self.K, s.remaining - 1, self.room - len(s.tokens) - 1))

    def _parameters(self, sequences: list[Sequence]) -> SamplingParameters:
        requests = [s.request for s in sequences]
        return SamplingParameters(
            torch.tensor([r.temperature for r in requests], device=self.target.device),
            torch.tensor([r.top_k for r in requests], device=self.target.device),
            torch.tensor([r.top_p for r in requests], device=self.target.device),
        )

    def _propose(self, ready, depth: int, seeds, counters, temperature) -> Drafts:
        device = self.target.device
        inputs = DraftInput(
            slots=[s.slot for s in ready],
            starts=[s.cached for s in ready],
            newest=torch.tensor([s.tokens[-1] for s in ready], device=device),
            states=self.states[[s.slot for s in ready]],
            temperature=temperature,
            uniforms=self._tensor(noise.uniforms(seeds, noise.DRAFT, counters, depth)),
            cache=self.cache,
            history=[s.tokens for s in ready],
        )
        return self.drafter.propose(inputs, depth)

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values).to(self.target.device)

    def _verify(self, drafts, place, chunks, admitted):
        """Logits of the rows that are sampled from, [N, V]; states of every row; each sequence's first row."""
        tokens, counts, wanted, row = [], [], [], 0
        drawn = drafts.tokens.tolist() if drafts else None
        order = {int(p): i for i, p in enumerate(place)}
        for i, (s, n) in enumerate(zip(self.sequences, chunks, strict=True)):
            if s.decoding:
                new = [s.tokens[-1], *(drawn[order[i]][: admitted[i]] if drawn else ())]
                wanted += range(row, row + len(new))
            else:
                new = s.tokens[s.cached : s.cached + n]
                if n and n == s.prompt_length - s.cached:
                    wanted.append(row + n - 1)
            tokens += new
            counts.append(len(new))
            row += len(new)
        device = self.target.device
        live = [i for i, n in enumerate(counts) if n]
        batch = Batch.build(
            [self.sequences[i].slot for i in live],
            [self.sequences[i].cached for i in live],
            [counts[i] for i in live],
            self.target.dtype,
            device,
        )
        final, tapped = self.target.forward(torch.tensor(tokens, device=device), batch, self.cache, self.taps)
        logits = self.target.logits(final if len(wanted) == len(final) else final[wanted])
        first = np.cumsum(counts) - np.array(counts)
        first = np.minimum(first, len(final) - 1)  # a sequence that waits for its prompt's turn has no row
        return logits, torch.cat([final, *tapped], 1), first

    def _extend(self, report, chunks, emits, accepted, own, drawn) -> np.ndarray:
        """Append what was emitted, stop at end-of-text; returns from which position on slots have no label, [B]."""
        limit = np.full(len(self.sequences), self.K, dtype=np.int64)
        end, ready, now = self.target.config.end_tokens, 0, self.clock()
        for i, s in enumerate(self.sequences):
            decoding = s.decoding
            s.cached += chunks[i] if not decoding else 1 + int(accepted[i])
            index, ready = ready, ready + decoding
            s.emitted = []
            if not emits[i]:
                continue
            new = [*(drawn[index, : accepted[i]].tolist() if decoding else ()), int(own[i])]
            stop = next((j for j, token in enumerate(new) if token in end), None)
            if stop is not None:
                new, limit[i] = new[: stop + 1], min(stop + 1, self.K)
                accepted[i] = min(accepted[i], stop + 1)
            s.tokens += new
            s.emitted, s.draws, s.steps = new, s.draws + 1, s.steps + 1
            s.drafts_accepted += int(accepted[i])
            s.last_token_at = now
            if s.first_token_at is None:
                s.first_token_at = now
            report.emitting += 1
            report.tokens += len(new)
            report.emitted.append((s.request, new))
        return limit

    def _observe(self, report, ready, drafts, estimate, offer, admission, accepted, limit, drawn) -> None:
        K, depth = self.K, drafts.tokens.shape[1]
        feature = np.full((len(ready), K), np.nan)
        feature[:, :depth] = drafts.feature
        if depth == K:
            self.policy.observe(feature, accepted, admission.admitted, limit)
        position = np.arange(K)
        seen = np.minimum(admission.admitted, limit)[:, None]
        labelled = (position <= accepted[:, None]) & (position < seen)
        label = np.where(labelled, position < accepted[:, None], -1).astype(np.int8)
        if estimate is not None:
            self.mean_estimate = 0.95 * self.mean_estimate + 0.05 * estimate.mean(0)
            for s, row in zip(ready, estimate, strict=True):
                s.earlier = row
        report.slots = Slots(
            request=np.array([s.request.id for s in ready]),
            kind=[s.request.kind for s in ready],
            temperature=np.array([s.request.temperature for s in ready]),
            scheduled=offer.scheduled,
            admitted=admission.admitted,
            accepted=accepted,
            feature=feature,
            estimate=estimate,
            head=drafts.head,
            label=label,
            tokens=drawn,
        )

    def _over(self, s: Sequence) -> str | None:
        if s.emitted and s.tokens[-1] in self.target.config.end_tokens:
            return "end"
        full = len(s.tokens) >= self.room
        return "length" if s.decoding and (s.remaining <= 0 or full) else None

    def _end(self, s: Sequence, reason: str) -> Finished:
        self.sequences.remove(s)
        self.cache.release(s.slot)
        if self.drafter:
            self.drafter.forget(s.slot)
        return Finished(s, reason)
