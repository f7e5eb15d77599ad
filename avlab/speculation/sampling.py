"""Speculative sampling on arrays: the distributions p and q, acceptance, residual, and the sampler itself.

This is the reference that the engine's fused sampler is tested against; it is written to be read.
Source: Leviathan et al. 2023 and Chen et al. 2023; masks as in vLLM's sampler.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Sampling(NamedTuple):
    """How a token is drawn. temperature 0 is greedy; top_k 0 and top_p 1 cut nothing."""

    temperature: float
    top_k: int
    top_p: float

    def words(self) -> str:
        """In words: "greedy", or "temperature 0.6, top-p 0.95"."""
        if self.temperature == 0:
            return "greedy"
        cuts = [f"top-k {self.top_k}"] * (self.top_k > 0) + [f"top-p {self.top_p:g}"] * (self.top_p < 1)
        return ", ".join([f"temperature {self.temperature:g}", *cuts])


# What most reasoning models recommend, and where the shipped pair ranks drafts as well as published systems do
# (docs/replay.md). The card of the shipped target recommends 0.2 and 0.9.
USUAL = Sampling(0.6, 0, 0.95)
MODELS_OWN = Sampling(1.0, 0, 1.0)  # the model's own distribution, nothing cut


def softmax(logits) -> np.ndarray:
    """Probabilities from logits over the last axis, float64; -inf gives exactly 0."""
    logits = np.asarray(logits, dtype=np.float64)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def one_hot(token, V: int) -> np.ndarray:
    """Certainty of a token: ids [...] to distributions [..., V]."""
    return (np.arange(V) == np.asarray(token)[..., None]).astype(np.float64)


def draft_distribution(logits, temperature, greedy: bool = False) -> np.ndarray:
    """q, the distribution a draft token is drawn from: temperature and nothing else, as in vLLM.

    logits [..., V]; temperature a number or [...]. At temperature 0, or when drafting is greedy, q is one-hot
    on the most likely token (the lowest id among equals).
    """
    logits = np.asarray(logits, dtype=np.float64)
    temperature = np.broadcast_to(np.asarray(temperature, dtype=np.float64), logits.shape[:-1])[..., None]
    certain = one_hot(logits.argmax(axis=-1), logits.shape[-1])
    if greedy:
        return certain
    return np.where(temperature > 0, softmax(logits / np.where(temperature > 0, temperature, 1.0)), certain)


def target_distribution(logits, temperature, top_k=0, top_p=1.0) -> np.ndarray:
    """p, the distribution to keep: temperature, then top-k, then top-p on what remains, renormalised.

    logits [..., V]; temperature, top_k (0: all tokens) and top_p (1: all mass) numbers or arrays [...].
    Tokens are ranked by logit, equals by token id. Top-p keeps tokens until their mass reaches top_p; the
    token that crosses is kept, so at least one always is. Temperature 0 gives a one-hot p.
    """
    p = draft_distribution(logits, temperature)
    rows, V = p.shape[:-1], p.shape[-1]
    top_k = np.broadcast_to(np.asarray(top_k), rows)[..., None]
    top_p = np.broadcast_to(np.asarray(top_p, dtype=np.float64), rows)[..., None]
    order = np.argsort(-np.asarray(logits, dtype=np.float64), axis=-1, kind="stable")
    ranked = np.take_along_axis(p, order, axis=-1)
    ranked = np.where((top_k <= 0) | (np.arange(V) < top_k), ranked, 0.0)
    ranked /= ranked.sum(axis=-1, keepdims=True)
    above = np.zeros_like(ranked)  # mass ranked above each token
    above[..., 1:] = np.cumsum(ranked, axis=-1)[..., :-1]
    ranked = np.where((top_p >= 1.0) | (above < top_p) | (np.arange(V) == 0), ranked, 0.0)
    kept = np.empty_like(ranked)
    np.put_along_axis(kept, order, ranked, axis=-1)
    return kept / kept.sum(axis=-1, keepdims=True)


def acceptance_probability(p, q) -> np.ndarray:
    """Chance that a token drawn from q is accepted, for each: min(1, p/q), [..., V]; at q = 0, 1 if p > 0."""
    p, q = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    return np.minimum(1.0, np.divide(p, q, out=(p > 0).astype(np.float64), where=q > 0))


def residual(p, q) -> np.ndarray:
    """Distribution of the recovered token after a rejection: (p - q)+ normalised, [..., V].

    Where p equals q nothing is ever rejected, and p stands in.
    """
    p, q = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    excess = np.maximum(p - q, 0.0)
    mass = excess.sum(axis=-1, keepdims=True)
    return np.where(mass > 0, excess / np.where(mass > 0, mass, 1.0), p)


def draw(distribution, uniform) -> np.ndarray:
    """Tokens [...] by inverting the running sum of [..., V] at uniforms [...] in [0, 1); none has mass 0."""
    distribution = np.asarray(distribution, dtype=np.float64)
    running = np.cumsum(distribution, axis=-1)
    token = (running <= np.asarray(uniform)[..., None] * running[..., -1:]).sum(axis=-1)
    last = distribution.shape[-1] - 1 - (distribution[..., ::-1] > 0).argmax(axis=-1)
    return np.minimum(token, last)


class Outcome(NamedTuple):
    """accepted [B]: draft tokens kept; token [B]: the target's own next; rejected [B]: it is a recovered one."""

    accepted: np.ndarray
    token: np.ndarray
    rejected: np.ndarray


def speculative_sample(p, q, drafts, admitted, acceptance_uniforms, token_uniforms) -> Outcome:
    """Verify drafts so that what comes out is distributed as the target alone would have it.

    p [B, K + 1, V]: target distributions, row k following k draft tokens (beyond `admitted` without effect).
    q [B, K, V]: draft distributions; drafts [B, K]: tokens drawn from them; admitted [B]: prefix lengths.
    acceptance_uniforms [B, K], token_uniforms [B]: independent of each other and of the draws in `drafts`.
    """
    p, q, drafts, admitted = np.asarray(p), np.asarray(q), np.asarray(drafts), np.asarray(admitted)
    acceptance_uniforms, token_uniforms = np.asarray(acceptance_uniforms), np.asarray(token_uniforms)
    every = np.arange(len(drafts))
    K = drafts.shape[1]
    accept = np.take_along_axis(acceptance_probability(p[:, :K], q), drafts[:, :, None], axis=2)[:, :, 0]
    kept = (acceptance_uniforms < accept) & (np.arange(K) < admitted[:, None])  # [B, K]
    accepted = kept.cumprod(axis=1).sum(axis=1)
    rejected = accepted < admitted
    after = p[every, accepted]
    after[rejected] = residual(after[rejected], q[rejected, accepted[rejected]])
    return Outcome(accepted, draw(after, token_uniforms), rejected)
