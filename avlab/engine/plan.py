"""Who takes part in a step, and with which rows: decoding requests, and prefill."""

from dataclasses import dataclass

import numpy as np
import torch

from avlab.engine import noise
from avlab.engine.request import Sequence
from avlab.engine.sampler import SamplingParameters
from avlab.speculation.decision import Offer

COLDEST = 1e-5  # below this temperature sampling is greedy, as in vLLM; logits over less would overflow


@dataclass(slots=True)
class StepPlan:
    """N sequences take part, by rising cache row; B of them decode, the others prefill a part of their prompt.

    prefill: [N] prompt tokens, 0 where a sequence decodes. ready: [B] which of the N decode. emitting: which will emit
    a token, those and prompts that end this step. seeds, counters: [N] what their noise is keyed by.
    """

    sequences: list[Sequence]
    prefill: list[int]
    ready: np.ndarray
    emitting: np.ndarray
    offer: Offer
    seeds: np.ndarray
    counters: np.ndarray
    parameters: SamplingParameters

    @property
    def decoding(self) -> list[Sequence]:
        return [self.sequences[i] for i in self.ready]

    def rows(self, drafts: list[list[int]], admitted: np.ndarray) -> tuple[list[int], list[int], list[int]]:
        """The target's pass: tokens [R], rows of each sequence [N], and which rows are sampled from.

        drafts: [B][depth] drawn tokens; admitted: [N]. A decoding sequence contributes its newest token and its
        admitted drafts, all sampled from; prefill its prompt tokens, of which only the prompt's very last row is.
        """
        tokens: list[int] = []
        counts: list[int] = []
        wanted: list[int] = []
        drawn = iter(drafts)
        for s, prompt, kept in zip(self.sequences, self.prefill, admitted, strict=True):
            if prompt:
                new = s.tokens[s.cached : s.cached + prompt]
                sampled = 1 if s.cached + prompt == s.prompt_length else 0
            else:
                new = [s.tokens[-1], *next(drawn, [])[:kept]]
                sampled = len(new)
            tokens += new
            counts.append(len(new))
            wanted += range(len(tokens) - sampled, len(tokens))
        return tokens, counts, wanted


def plan_step(
    held: list[Sequence],
    K: int,
    room: int,
    most_prefill: int,
    device: torch.device,
    uniforms: noise.Uniforms = noise.uniforms,
) -> StepPlan:
    """Plan a step over the sequences that hold a cache row.

    room: tokens a request may fill, prompt included. most_prefill: prompt tokens that the step computes at most.
    """
    left, turn = most_prefill, {}
    for s in sorted(held, key=lambda s: s.admitted_at):  # prompts in order of arrival, whatever their rows
        turn[s.cache_row] = 0 if s.decoding else min(left, s.prompt_length - s.cached)
        left -= turn[s.cache_row]
    sequences = [
        s for s in held if s.decoding or turn[s.cache_row]
    ]  # a prompt that waits for its turn has no rows
    prefill = [turn[s.cache_row] for s in sequences]
    decoding = np.array([s.decoding for s in sequences], dtype=bool)
    ends = [s.cached + n == s.prompt_length for s, n in zip(sequences, prefill, strict=True)]
    ready, emitting = np.flatnonzero(decoding), np.flatnonzero(decoding | ends)
    # a draft is of use as long as the request may emit one token more than it
    most = [min(K, s.remaining - 1, room - len(s.tokens) - 1) for s in (sequences[i] for i in ready)]
    requests = [s.request for s in sequences]
    seeds = np.array([r.seed % 2**64 for r in requests], dtype=np.uint64)
    counters = np.array([s.steps for s in sequences], dtype=np.int64)
    return StepPlan(
        sequences=sequences,
        prefill=prefill,
        ready=ready,
        emitting=emitting,
        offer=Offer(
            scheduled=np.maximum(np.array(most, dtype=np.int64), 0),
            earlier=np.array([sequences[i].earlier for i in ready]).reshape(len(ready), K),
            coins=uniforms(seeds[ready], noise.COIN, counters[ready], 1)[:, 0],
            requests=len(ready),
            emitting=len(emitting),
            other_tokens=len(ready) + sum(prefill),
        ),
        seeds=seeds,
        counters=counters,
        parameters=SamplingParameters(
            torch.tensor(
                [r.temperature if r.temperature >= COLDEST else 0.0 for r in requests], device=device
            ),
            torch.tensor([r.top_k for r in requests], device=device),
            torch.tensor([r.top_p for r in requests], device=device),
        ),
    )
