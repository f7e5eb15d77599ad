"""An audit: continuations of one and two tokens by the engine's step, compared with the target's exact distribution."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from avlab.bias.audit.copied_drafts import Copying, CopyingDrafter
from avlab.bias.audit.rules import AuditError, AuditRule, ByBudget, install
from avlab.bias.audit.shared_drafter import SharedDrafter, WatchedDrafter
from avlab.bias.audit.shared_target import SCRATCH, SharedTarget
from avlab.bias.exact import total_variation
from avlab.bias.first_token import first_token, first_token_by_shared_noise
from avlab.bias.goodness_of_fit import Fit, fit
from avlab.engine.drafters.base import DraftInput
from avlab.engine.drafters.block import BlockDrafter
from avlab.engine.drafts import Drafts
from avlab.engine.engine import Engine, EngineConfig
from avlab.engine.plan import COLDEST
from avlab.engine.report import Observer
from avlab.engine.request import Request
from avlab.engine.target import Target
from avlab.policies.fixed import NONE
from avlab.policies.wrappers import Frozen
from avlab.speculation.budget import survival
from avlab.speculation.costs import CostTable
from avlab.speculation.decision import Offer
from avlab.speculation.estimates import Estimates

TOGETHER = 512  # continuations in a step
FIRST_TOKENS = 48  # of the likeliest, whose pairs get cells of their own
LIKELY = 0.2  # times that a token is expected, from which on the rows behind it are computed in advance
END = -1  # stands for the second token where the first one ends the text


@dataclass(frozen=True, slots=True)
class Counts:
    """How often first tokens came, [V], and pairs in the cells that have one, the last cell for all others, [C + 1]."""

    one: np.ndarray
    two: np.ndarray


class Audit:
    """Fresh continuations of a prompt under a rule. temperature: of target and drafter alike, above 0.

    The engine is an `Engine` like any other and each continuation a request in it, with noise of its own, whose prompt
    is already in the cache. A continuation takes one step, or two where the first emits one token. The step before,
    from whose estimates budgets follow, was a draft at the same place whose tokens were all trimmed.

    earlier: [TOGETHER, K] the estimates of that draft, nan under rules that make none.
    """

    def __init__(
        self,
        target: Target,
        drafter: BlockDrafter | Copying,
        prompt: list[int],
        rule: AuditRule,
        temperature: float = 1.0,
        seed: int = 0,
        shared: SharedDrafter | CopyingDrafter | None = None,
        observer: Observer | None = None,
    ):
        """shared: another audit's drafter behind this prompt: the rows that are known to it and to its target are kept.

        The same seed gives every rule noise of its own, so that audits of several rules are independent.
        """
        if len(prompt) < 2:
            raise AuditError("The prompt has fewer than two tokens: give some words.")
        if len(prompt) + drafter.K + 3 > target.length:
            raise AuditError(
                f"The prompt has {len(prompt)} tokens; an audit takes up to {target.length - drafter.K - 3}: "
                "shorten it."
            )
        if temperature < COLDEST:
            raise AuditError(
                "At temperature 0 there is one continuation and nothing to audit: give more than 0."
            )
        if rule.arm is not None and (rule.arm.verified or 0) > drafter.K:
            raise AuditError(
                f"The rule {rule.text} asks for {rule.arm.verified} drafts; the audit makes {drafter.K}."
            )
        self.prompt, self.rule, self.temperature, self.seed, self.made = prompt, rule, temperature, seed, 0
        if shared is None:
            cache = target.new_cache(max(TOGETHER, SCRATCH))
            behind = SharedTarget(target, prompt, cache, drafter.state_layers)
            if isinstance(drafter, BlockDrafter):
                shared = SharedDrafter(drafter, behind)
            else:
                shared = CopyingDrafter(drafter, behind, prompt)
        if rule.arm is None and isinstance(shared, CopyingDrafter):
            raise AuditError(
                f"The rule {rule.text} trims by draft rows, and the drafter {drafter.name} has none: audit a policy."
            )
        self.drafter, self.shared = shared, shared.shared
        self.watched = WatchedDrafter(shared)
        self.engine = self._engine(np.full((TOGETHER, drafter.K), 0.5), observer)
        self.earlier = self._earlier()
        if self.engine.policy.arm.adaptive:  # make its costs such that there is something to decide
            self.engine = self._engine(survival(self.earlier), observer)
        self._law()
        if isinstance(self.engine.policy, ByBudget):
            self.engine.policy.set_cost(self._middling_cost())

    def _engine(self, survivals: np.ndarray, observer: Observer | None) -> Engine:
        """An engine that decides by the rule; its step costs are such that about half of these slots are worth it."""
        costs, config = step_costs(survivals), EngineConfig(max_num_seqs=TOGETHER)
        none, cache, uniforms = NONE, self.shared.cache, self.rule.uniforms
        engine = Engine(self.shared, self.watched, costs, config, none, cache, uniforms)
        engine.observer = observer
        install(self.rule, engine, self.watched)
        return engine

    def prepare(self, count: int) -> None:
        """Compute rows that so many continuations will probably ask for now, many together, rather than one by one."""
        chance = np.maximum(self.one, self.draft_row())
        self.shared.rows_after(np.flatnonzero(chance * count > LIKELY))

    def draft_row(self) -> np.ndarray:
        """The row that the first draft token is drawn from, over the target's vocabulary, [V]."""
        drafts = self.drafter.propose(self._inputs(np.full((1, self.drafter.K), 0.5)), self.drafter.K)
        q = drafts.over(len(self.one))[0]
        return q / q.sum()

    def _earlier(self) -> np.ndarray:
        """Estimates of drafts whose noise no continuation has."""
        shape = TOGETHER, self.drafter.K
        drafts = self.drafter.propose(
            self._inputs(np.random.default_rng(self.seed).random(shape)), self.drafter.K
        )
        estimates = self._estimate(drafts)
        return np.full(shape, np.nan) if estimates is None else estimates.probability

    def _law(self) -> None:
        """The target's exact distribution of the first token, [V], and of pairs in cells of their own, [C + 1]."""
        V, ends = self.shared.config.vocabulary, self.shared.config.end_tokens
        self.one = self.shared.law(np.zeros(1, dtype=np.int64), self.temperature)[0]
        first = np.argsort(-self.one)[:FIRST_TOKENS]
        first = first[~np.isin(first, list(ends))]
        pairs = (
            self.one[first, None] * self.shared.law(self.shared.rows_after(first), self.temperature)
        ).ravel()
        top = np.argsort(-pairs)[:198]
        self.cell = {(int(first[i // V]), int(i % V)): number for number, i in enumerate(top.tolist())}
        due = pairs[top]
        for token in ends:
            self.cell[token, END] = len(self.cell)
            due = np.append(due, self.one[token])
        self.two = np.append(due, max(0.0, 1.0 - due.sum()))

    def continuations(self, count: int) -> Iterator[Counts]:
        """So many fresh continuations, counted; yields the counts so far, which grow, after every few."""
        counts = Counts(np.zeros(len(self.one), np.int64), np.zeros(len(self.two), np.int64))
        while count > 0:
            together = min(TOGETHER, count)
            for first, second in self._together(together):
                counts.one[first] += 1
                counts.two[self.cell.get((first, second), -1)] += 1
            count -= together
            yield counts

    def _together(self, count: int) -> list[tuple[int, int]]:
        """Two tokens each of so many fresh continuations."""
        engine, P, seed = self.engine, len(self.prompt), self.seed ^ zlib.crc32(self.rule.text.encode())
        # the prompt but for its last token is "the prompt", which is in the cache; that one is the newest
        requests = [
            Request(i, self.prompt[:-1], self.drafter.K + 3, self.temperature, seed=seed << 32 | i)
            for i in range(self.made, self.made + count)
        ]
        self.made += count
        sequences = engine.resume(requests, self.prompt[-1], self.shared.before, self.earlier)
        while engine.sequences:
            engine.step()
            for sequence in [s for s in engine.sequences if len(s.tokens) >= P + 2]:
                engine.cancel(sequence.request.id)
        return [(s.tokens[P], s.tokens[P + 1] if len(s.tokens) > P + 1 else END) for s in sequences]

    def fits(self, counts: Counts, tests: int) -> tuple[Fit, Fit]:
        """G-tests of the first token and of the first two, each corrected for so many tests."""
        return fit(counts.one, self.one, tests), fit(counts.two, self.two, tests)

    @torch.inference_mode()
    def exact_total_variation(self) -> float | None:
        """Of the first token of one request by itself, exactly, by drafting every token that the drafter knows.

        None where that is not enough: more than two positions under a budget of the same step.
        """
        p, q, rule, drafter = self.one, self.draft_row(), self.rule, self.drafter
        if rule.kind == "noise" and isinstance(drafter, SharedDrafter):
            found = first_token_by_shared_noise(p, q, drafter.vocabulary.ids.cpu().numpy())
        elif rule.text == "budget:same-step" and self.drafter.K > 2:
            return None
        else:
            found = first_token(p, q, self._verified())
        return total_variation(found, p)

    def _middling_cost(self) -> float:
        """The cost of drafts at which they are worth verifying after half of the first drafts, by chance."""
        expected, chance = np.zeros(len(self.one)), self.draft_row()
        for tokens, estimates in self._first_drafts():
            assert estimates is not None  # only a rule with a budget has a cost
            expected[tokens] = 1 + estimates.survival.sum(axis=1)
        order = np.argsort(expected)
        return float(expected[order][np.searchsorted(np.cumsum(chance[order]), 0.5)])

    def _verified(self) -> np.ndarray:
        """For each token whether the first slot is verified when it is drafted for a request by itself, [V]."""
        verified, K = np.zeros(len(self.one)), self.drafter.K
        alone = Offer(np.full(1, K), self.earlier[:1], np.zeros(1), 1, 1, 1)
        policy = Frozen(self.engine.policy)
        for tokens, estimates in self._first_drafts():
            for i, token in enumerate(tokens):
                own = None if estimates is None else estimates[i : i + 1]
                verified[token] = policy.admit(policy.decide(alone), own, alone).admitted[0] > 0
        return verified

    def _first_drafts(self) -> Iterator[tuple[np.ndarray, Estimates | None]]:
        """Every draft token behind the prompt, [B] at a time, and the rule's estimates when it is drawn."""
        drafter = self.drafter
        for columns in drafter.firsts():
            inputs = self._inputs(np.full((len(columns), drafter.K), 0.5))
            drafts = drafter.propose(inputs, drafter.K, first=columns)
            yield drafts.tokens[:, 0].cpu().numpy(), self._estimate(drafts)

    def _estimate(self, drafts: Drafts) -> Estimates | None:
        """The rule's estimates of drafts that the engine did not ask for."""
        self.watched.last = drafts
        return self.engine.policy.estimate(drafts.features)

    def _inputs(self, uniforms: np.ndarray) -> DraftInput:
        B, P, device = len(uniforms), len(self.prompt), self.shared.device
        return DraftInput(
            cache_rows=list(range(B)),
            starts=[P - 1] * B,
            newest=torch.full((B,), self.prompt[-1], device=device),
            states=self.shared.before.expand(B, -1),
            temperature=torch.full((B,), self.temperature, device=device),
            uniforms=torch.from_numpy(uniforms).to(device),
            cache=self.engine.cache,
            history=[],
        )


def step_costs(survivals: np.ndarray) -> CostTable:
    """Step costs under which about half of these slots, [B, K], are worth verifying; in steps: convex they are not."""
    requests, K = survivals.shape
    worth = float(np.median(survivals))  # tokens a millisecond, as a token takes one
    better = survivals[survivals > worth]
    fixed = (requests + better.sum()) / worth - (requests + better.size)
    draft = [(1, 1, 1.0), (requests, K, 2.0)]
    verify = [(n, fixed + 8.0 * (n // 8)) for n in range(requests * (K + 1) + 1)]
    return CostTable.linear(draft, verify, requests, len(verify) - 1, K=K)
