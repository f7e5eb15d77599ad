"""What a rule does to text: whole answers by the engine's step, and what the target says of each of their tokens."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from avlab.bias.audit.audit import step_costs
from avlab.bias.audit.rules import AuditError, AuditRule, install
from avlab.bias.audit.shared_drafter import WatchedDrafter
from avlab.bias.text_measures import Texts, repetition
from avlab.engine.drafters.base import Drafter
from avlab.engine.drafts import Drafts
from avlab.engine.engine import Engine, EngineConfig
from avlab.engine.report import StepReport
from avlab.engine.request import Request
from avlab.engine.sampler import LogitRows
from avlab.engine.target import Target
from avlab.policies.fixed import NONE

TOGETHER = 16  # requests served at once


class Answers:
    """Answers to prompts under a rule, each with noise of its own that is the same under every rule.

    The engine is an `Engine` like any other, and nothing but its policy is replaced.
    """

    def __init__(
        self,
        target: Target,
        drafter: Drafter,
        prompts: Sequence[list[int]],
        rule: AuditRule,
        max_new_tokens: int,
        temperature: float = 1.0,
        seed: int = 0,
    ):
        if temperature <= 0:
            raise AuditError("At temperature 0 every sound rule writes the same text: give more than 0.")
        if rule.kind == "budget":
            raise AuditError(
                f"The rule {rule.text} has a cost that is set for one prompt: take maximum:t, drawn:t, or another."
            )
        K, self.temperature, watched = drafter.K, temperature, WatchedDrafter(drafter)
        costs = step_costs(np.full((TOGETHER, K), 0.5))
        config = EngineConfig(max_num_seqs=TOGETHER)
        self.engine = Engine(target, watched, costs, config, NONE, uniforms=rule.uniforms)
        self.engine.observer = self._listen
        install(rule, self.engine, watched)
        for number, tokens in enumerate(prompts):
            self.engine.add(Request(number, tokens, max_new_tokens, temperature, seed=seed << 32 | number))
        self.tokens: list[list[int]] = [[] for _ in prompts]
        self.said = np.zeros((len(prompts), 2))  # sums of log-probability and of entropy

    def serve(self) -> Iterator[int]:
        """Serve every request; yields how many have ended, after each step."""
        ended = 0
        while self.engine.queue or self.engine.sequences:
            ended += len(self.engine.step().finished)
            yield ended

    @torch.inference_mode()
    def _listen(self, report: StepReport, drafts: Drafts | None, rows: LogitRows) -> None:
        """Add up what the target's rows say of the tokens that came from them."""
        if not report.emitted:
            return
        drawn, requests, tokens = emitting_rows(report)
        log_p, entropy = surprise(rows.logits[drawn], tokens, self.temperature)
        np.add.at(self.said, requests, np.stack([log_p, entropy], 1))
        for request, new in report.emitted:
            self.tokens[request.id] += new

    def texts(self, among: Sequence[int] | None = None) -> Texts:
        """Sums over the outputs, or over some of them."""
        numbers = range(len(self.tokens)) if among is None else among
        return Texts.of([(len(self.tokens[i]), *self.said[i], *repetition(self.tokens[i])) for i in numbers])


def emitting_rows(report: StepReport) -> tuple[list[int], list[int], list[int]]:
    """Which of a step's rows of logits each emitted token was drawn from: (rows, request ids, tokens), [n] each.

    A decoding request has a row for its newest token and one for each admitted draft; a prompt that ended has one.
    """
    admitted: dict[int, int] = {}
    if report.slots is not None:
        admitted = dict(zip(report.slots.request.tolist(), report.slots.admitted.tolist(), strict=True))
    rows: list[int] = []
    requests: list[int] = []
    tokens: list[int] = []
    first = 0
    for request, new in report.emitted:
        rows += range(first, first + len(new))
        requests += [request.id] * len(new)
        tokens += new
        first += 1 + admitted.get(request.id, 0)
    return rows, requests, tokens


def surprise(logits: Tensor, tokens: list[int], temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """Log-probability of a token in each row and the row's entropy, in nats, [n] float64 each. logits: [n, V]."""
    scaled = logits / temperature
    log_p = scaled.log_softmax(1)
    entropy = torch.special.entr(log_p.exp()).sum(1)
    own = log_p.gather(1, torch.tensor(tokens, device=logits.device)[:, None])[:, 0]
    return own.double().cpu().numpy(), entropy.double().cpu().numpy()
