"""The reference engine: continuous batching, and one step of speculative decoding with adaptive verification."""

import time
from collections import deque
from dataclasses import dataclass, replace

import numpy as np
import torch

from avlab.engine import noise
from avlab.engine.cache import KVCache
from avlab.engine.drafters.base import Drafter, DraftInput, ReadsEveryState
from avlab.engine.drafts import Drafts
from avlab.engine.plan import StepPlan, plan_step
from avlab.engine.report import Observer, Slots, StepReport
from avlab.engine.request import Finished, Request, Sequence, check
from avlab.engine.sampler import LogitRows, speculative_sample
from avlab.engine.served import InProcessEngine
from avlab.engine.stopwatch import Stopwatch
from avlab.engine.target import ServedTarget
from avlab.policies.arm import Arm
from avlab.policies.base import Policy, PolicyContext, make_policy
from avlab.speculation.costs import CostTable
from avlab.speculation.estimates import Estimates
from avlab.speculation.estimators.base import REFIT_INTERVAL
from avlab.speculation.labels import Labels, labels
from avlab.speculation.measured_costs import MeasuredCosts

PREFILL = 256  # prompt tokens of a step, by default; chosen here


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """max_num_seqs: requests served at once; the cache has one more, for a request served alone (`solo`).

    max_num_batched_tokens: tokens of a step, decode and prefill, as in vLLM; None leaves PREFILL for prompts when
    every request decodes. new_request: what a request without an earlier estimate counts as: "one" (vLLM's rule) or
    "running-mean" (always under `+depth`). measure_costs: `+depth` decides by what steps have cost lately, rather
    than by the table alone; results then depend on time.
    """

    max_num_seqs: int = 64
    max_num_batched_tokens: int | None = None
    new_request: str = "one"
    measure_costs: bool = False
    refit_interval: int = REFIT_INTERVAL

    def batched_tokens(self, K: int) -> int:
        """The most tokens of a step, with K draft positions (0 without a drafter)."""
        return self.max_num_batched_tokens or self.max_num_seqs * (K + 1) + PREFILL

    def prefill_tokens(self, K: int) -> int:
        """Prompt tokens computed a step: what is left when every request decodes with all its drafts."""
        return self.batched_tokens(K) - self.max_num_seqs * (K + 1)


class Engine(InProcessEngine):
    """Serves requests with one target, at most one drafter and one policy, which may be switched between two steps.

    uniforms: the source of every draw. observer: is handed each step's report with what the step sampled from; it may
    be set between two steps, and costs nothing where there is none.
    """

    def __init__(
        self,
        target: ServedTarget,
        drafter: Drafter | None,
        costs: CostTable,
        config: EngineConfig,
        arm: Arm,
        cache: KVCache | None = None,
        uniforms: noise.Uniforms = noise.uniforms,
    ):
        self.target, self.drafter, self.costs, self.config = target, drafter, costs, config
        self.K = drafter.K if drafter else 0
        self.features = drafter.features if drafter else ()  # that its drafts tell
        self.reader = drafter if isinstance(drafter, ReadsEveryState) else None
        self._unknown = np.full(self.K, np.nan)  # the estimates of a request without any
        self.cache = cache or target.new_cache(config.max_num_seqs + 1)
        self.taps = drafter.state_layers if drafter else ()
        width = (1 + len(self.taps)) * target.config.hidden
        self.states = torch.zeros(config.max_num_seqs + 1, width, dtype=target.dtype, device=target.device)
        self.queue: deque[Request] = deque()
        self.sequences: list[Sequence] = []  # by rising cache row
        self.policies: dict[str, Policy] = {}
        self.measured: MeasuredCosts | None = None  # from the first arm on that decides by them
        self.clock = time.monotonic
        self.uniforms = uniforms
        self.step_number = 0
        self.observer: Observer | None = None
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

        What another estimator said of the running requests tells it nothing: they begin without earlier estimates.
        """
        policy = self.policy_for(arm)
        if self.sequences and policy is not self.policy:
            for sequence in self.sequences:
                sequence.earlier = self._unknown
        self.policy = policy

    def policy_for(self, arm: Arm) -> Policy:
        """The policy of an arm, made where the arm is new.

        Raises PolicyError, also where it reads what the drafter does not tell, such as a head that is off.
        """
        arm.require_declared()
        if self.drafter:
            arm.require_features(self.features)
        name = str(arm)
        if name not in self.policies:
            if arm.depth and self.K and self.config.measure_costs and self.measured is None:
                self.measured = MeasuredCosts(self.costs, self.K)
            settings = self.config.refit_interval, self.config.new_request
            self.policies[name] = make_policy(
                arm, PolicyContext(self.K, self.costs, *settings, self.measured)
            )
        return self.policies[name]

    def add(self, request: Request) -> None:
        """Queue a request. Raises RequestError if it can never be served."""
        check(request, self.target.config.vocabulary, self.room)
        self.queue.append(request)

    def resume(
        self, requests: list[Request], newest: int, states: torch.Tensor, earlier: np.ndarray
    ) -> list[Sequence]:
        """Decode requests whose prompts stand in their cache rows already; no other may be in service.

        newest: the token behind each prompt. states: [S * hidden] the target's at the prompt's last position.
        earlier: [n or more, K] acceptance estimates of the step before, nan where there are none.
        """
        assert not self.sequences and len(requests) <= self.cache.free_rows
        self.states[:] = states
        rows = sorted(self.cache.acquire() for _ in requests)
        self.sequences = [
            Sequence(request, row, [*request.tokens, newest], before, cached=len(request.tokens))
            for request, row, before in zip(requests, rows, earlier, strict=False)
        ]
        return list(self.sequences)

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
        """One step: decide, propose, estimate, admit, verify, sample, observe. Without requests it does nothing."""
        self._admit_requests()
        report = StepReport(self.step_number, str(self.policy.arm), self.running, self.waiting)
        if not self.sequences:
            return report
        self.step_number += 1
        device, prefill = self.target.device, self.config.prefill_tokens(self.K)
        watch = Stopwatch(report.ms, device)
        plan = plan_step(self.sequences, self.K, self.room, prefill, device, self.uniforms)
        offer, N = plan.offer, len(plan.sequences)

        # decide: depth, budget and exploration, from what earlier steps and coins say; no draft exists yet
        decision = self.policy.decide(offer) if len(plan.ready) else None
        depth = decision.drafted if decision else 0
        offer.scheduled = np.minimum(offer.scheduled, depth)  # [B]
        watch.lap("decide")

        # propose: draft tokens [B, depth] and the distributions they were drawn from
        drafts = self._propose(self.drafter, plan, depth) if self.drafter and depth else None
        watch.lap("draft")
        if drafts:
            report.ms["draft"] -= drafts.feature_ms
            report.ms["decide"] += drafts.feature_ms

        # estimate and admit: acceptance estimates [B, K], prefix lengths [B]
        estimates = self.policy.estimate(drafts.features) if drafts else None
        if drafts and drafts.lengths is not None:  # the drafter may have found less than it was asked for
            offer.scheduled = np.minimum(offer.scheduled, drafts.lengths)
            estimates = estimates.ending(drafts.lengths, depth) if estimates else None
        admission = self.policy.admit(decision, estimates, offer) if decision else None
        admitted = np.zeros(N, dtype=np.int64)
        admitted[plan.ready] = admission.admitted if admission else 0
        watch.lap("decide")

        # verify: one ragged pass over newest tokens, admitted drafts and prefill
        rows, states, first = self._verify(plan, drafts, admitted)
        watch.lap("verify")

        # sample: accepted drafts and the target's own token, [N]; a prompt's last row is a request without drafts
        accepted, own, report.surplus = self._sample(plan, rows, drafts, admitted)
        last = (
            first + accepted + np.maximum(np.array(plan.prefill) - 1, 0)
        )  # each sequence's last verified row
        self.states[[s.cache_row for s in plan.sequences]] = states[self._tensor(last)]
        if self.reader:
            verified = [states[i : j + 1] for i, j in zip(first.tolist(), last.tolist(), strict=True)]
            self.reader.take_in(
                [s.cache_row for s in plan.sequences], [s.cached for s in plan.sequences], verified
            )
        drawn = drafts.tokens.cpu().numpy() if drafts else np.zeros((len(plan.ready), 0), dtype=np.int64)
        limit = self._extend(report, plan, accepted, own, drawn)
        watch.lap("sample")

        # observe: labels through the first rejection, not past what was admitted or what was emitted
        report.prompt_tokens, report.target_tokens = (
            sum(plan.prefill),
            offer.other_tokens + int(admitted.sum()),
        )
        report.drafted, report.admission = depth, admission
        self._remember(plan, estimates)
        if drafts and admission:
            learnt = labels(accepted[plan.ready], admission.admitted, self.K, limit[plan.ready])
            self.policy.observe(drafts.features, estimates, learnt)
            report.slots = self._slots(plan, drafts, estimates, admission, accepted, learnt, drawn)
        report.refit = self.policy.end_step()
        report.finished += [self._end(s, reason) for s in list(self.sequences) if (reason := self._over(s))]
        watch.lap("decide")
        if self.measured:
            draft, verify, other = (
                report.ms["draft"],
                report.ms["verify"],
                report.ms["sample"] + report.ms["decide"],
            )
            self.measured.observe(len(plan.ready), depth, report.target_tokens, draft, verify, other)
        if self.observer:
            self.observer(report, drafts, rows)
        return report

    def _admit_requests(self) -> None:
        while self.queue and self.running < self.config.max_num_seqs:
            request = self.queue.popleft()
            sequence = Sequence(request, self.cache.acquire(), list(request.tokens), earlier=self._unknown)
            sequence.admitted_at = self.clock()
            self.sequences.append(sequence)
            self.sequences.sort(key=lambda s: s.cache_row)

    def _propose(self, drafter: Drafter, plan: StepPlan, depth: int) -> Drafts:
        device, ready, decoding = self.target.device, plan.ready, plan.decoding
        inputs = DraftInput(
            cache_rows=[s.cache_row for s in decoding],
            starts=[s.cached for s in decoding],
            newest=torch.tensor([s.tokens[-1] for s in decoding], device=device),
            states=self.states[[s.cache_row for s in decoding]],
            temperature=plan.parameters.temperature[self._tensor(ready)],
            uniforms=self._tensor(self.uniforms(plan.seeds[ready], noise.DRAFT, plan.counters[ready], depth)),
            cache=self.cache,
            history=[s.tokens for s in decoding],
        )
        drafts = drafter.propose(inputs, depth).widen(self.K)
        drafts.features = replace(drafts.features, classes=[s.request.sampling_class for s in decoding])
        return drafts

    def _verify(
        self, plan: StepPlan, drafts: Drafts | None, admitted: np.ndarray
    ) -> tuple[LogitRows, torch.Tensor, np.ndarray]:
        """The rows that are sampled from, [M]; states of every row, [R, S * hidden]; first rows, [N]."""
        device = self.target.device
        tokens, counts, wanted = plan.rows(drafts.tokens.tolist() if drafts else [], admitted)
        cache_rows, starts = [s.cache_row for s in plan.sequences], [s.cached for s in plan.sequences]
        batch = self.target.batch(cache_rows, starts, counts)
        final, tapped = self.target.forward(torch.tensor(tokens, device=device), batch, self.cache, self.taps)
        rows = self.target.logit_rows(final if len(wanted) == len(tokens) else final[wanted])
        return rows, torch.cat([final, *tapped], 1), np.cumsum(counts) - counts

    def _sample(
        self, plan: StepPlan, rows: LogitRows, drafts: Drafts | None, admitted: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Drafts accepted and the target's own token, [N] each, 0 for sequences that emit nothing; and how many more
        drafts were accepted than these drafts made expected."""
        accepted, own = np.zeros((2, len(plan.sequences)), dtype=np.int64)
        surplus = 0.0
        who = plan.emitting
        if len(who):
            draft_row = np.zeros(len(plan.sequences), dtype=np.int64)
            draft_row[plan.ready] = np.arange(len(plan.ready))
            seeds, counters = plan.seeds[who], plan.counters[who]
            sampled = speculative_sample(
                rows,
                drafts,
                self._tensor(draft_row[who]),
                self._tensor(admitted[who]),
                plan.parameters.take(self._tensor(who)),
                self._tensor(self.uniforms(seeds, noise.ACCEPT, counters, max(self.K, 1))),
                self._tensor(self.uniforms(seeds, noise.TOKEN, counters, 1)[:, 0]),
            )
            accepted[who], own[who] = sampled.accepted.cpu().numpy(), sampled.token.cpu().numpy()
            surplus = float(accepted.sum()) - float(sampled.expected.sum())
        return accepted, own, surplus

    def _extend(self, report: StepReport, plan: StepPlan, accepted, own, drawn) -> np.ndarray:
        """Append what was emitted, stop at end-of-text; returns from which position on slots have no label, [N]."""
        limit = np.full(len(plan.sequences), self.K, dtype=np.int64)
        end, now, emits, drafts = self.target.config.end_tokens, self.clock(), set(plan.emitting), iter(drawn)
        for i, (s, prompt) in enumerate(zip(plan.sequences, plan.prefill, strict=True)):
            draft = [] if prompt else next(drafts)[: accepted[i]].tolist()
            s.cached += prompt or 1 + len(draft)
            if i not in emits:
                continue
            new = [*draft, int(own[i])]
            stop = next((j for j, token in enumerate(new) if token in end), None)
            if stop is not None:
                new, limit[i] = new[: stop + 1], min(stop + 1, self.K)
                accepted[i] = min(accepted[i], stop + 1)
            s.tokens += new
            s.steps += 1
            s.drafts_accepted += int(accepted[i])
            s.first_token_at, s.last_token_at = s.first_token_at or now, now
            report.emitting += 1
            report.tokens += len(new)
            report.emitted.append((s.request, new))
        return limit

    def _remember(self, plan: StepPlan, estimates: Estimates | None) -> None:
        """Keep this step's estimates for the next step's decision."""
        for i, s in enumerate(plan.decoding):
            s.earlier = self._unknown if estimates is None else estimates.probability[i]

    def _slots(self, plan: StepPlan, drafts, estimates, admission, accepted, learnt: Labels, drawn) -> Slots:
        """The step's raw slots, for its report."""
        decoding = plan.decoding
        return Slots(
            request=np.array([s.request.id for s in decoding]),
            kind=np.array([s.request.kind for s in decoding]),
            temperature=np.array([s.request.temperature for s in decoding]),
            scheduled=plan.offer.scheduled,
            admitted=admission.admitted,
            accepted=accepted[plan.ready],
            features=drafts.features,
            estimates=estimates,
            label=np.where(learnt.labelled, learnt.label, -1).astype(np.int8),
            tokens=drawn,
        )

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values).to(self.target.device)

    def _over(self, s: Sequence) -> str | None:
        if s.output_length and s.tokens[-1] in self.target.config.end_tokens:
            return "end"
        full = len(s.tokens) >= self.room
        return "length" if s.decoding and (s.remaining <= 0 or full) else None

    def _end(self, s: Sequence, reason: str) -> Finished:
        self.sequences.remove(s)
        self.cache.release(s.cache_row)
        if self.drafter:
            self.drafter.forget(s.cache_row)
        return Finished(s, reason)
