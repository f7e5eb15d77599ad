"""Training of the block drafter: losses, schedule, checkpoints. Resumes where it stopped."""

import json
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

from avlab.training.checkpoints import load_training, save_training
from avlab.training.data import Recordings, TrainingBatch
from avlab.training.model import DrafterNetwork


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long and how fast. Rates follow a cosine to zero after a linear warm-up.

    Cross-entropy alone for the first `cross_entropy_part` of the updates, then mixed into total variation, as in the
    DSpark paper (arXiv 2607.05147: weights 0.1 and 0.9, positions weighted by exp(-k / gamma), a confidence loss).
    """

    updates: int = 3000
    conversations: int = 16
    anchors: int = 16
    copied_rate: float = 6e-4
    new_rate: float = 2e-3
    warm_up: int = 60
    cross_entropy_part: float = 0.15
    cross_entropy_weight: float = 0.1
    gamma: float = 4.0
    shallow: int = 3
    seed: int = 0


@dataclass(slots=True)
class Losses:
    """Sums over the valid rows of a batch, by position: acceptance is 1 - total variation, [K]."""

    total: Tensor
    acceptance: Tensor
    reached: Tensor
    tokens_per_step: float


def losses(
    network: DrafterNetwork,
    batch: TrainingBatch,
    embedding: Tensor,
    head: Tensor,
    cross_entropy_weight: float,
    gamma: float,
) -> Losses:
    """The loss of one batch. head: [draft vocabulary, H], the rows of the target's head that the drafter shares; the
    target's probabilities there come from its recorded final states and normalisers."""
    logits, confidence = network(
        embedding[batch.newest],
        batch.states,
        batch.position,
        batch.keys,
        batch.values,
        batch.mask,
        embedding[batch.previous],
        head,
    )
    with torch.no_grad():
        p = (F.linear(batch.final, head).float() - batch.log_normaliser[..., None]).exp()
        outside = (1 - p.sum(-1)).clamp_min(0)
    log_q = logits.float().log_softmax(-1)
    cross_entropy = -(p * log_q).sum(-1)  # [C, a, K]
    variation = 0.5 * ((p - log_q.exp()).abs().sum(-1) + outside)
    acceptance = 1 - variation.detach()
    confidence_loss = F.binary_cross_entropy_with_logits(confidence.float(), acceptance, reduction="none")
    K = logits.shape[2]
    weight = batch.valid * torch.exp(-torch.arange(K) / gamma)
    mixed = cross_entropy_weight * cross_entropy + (1 - cross_entropy_weight) * variation + confidence_loss
    total = (weight * mixed).sum() / weight.sum()
    seen = acceptance * batch.valid
    survival = torch.cat([torch.ones_like(seen[..., :1]), seen[..., :-1].cumprod(-1)], -1) * batch.valid
    return Losses(
        total,
        (survival * seen).sum((0, 1)).detach(),
        survival.sum((0, 1)).detach(),
        1 + float(seen.cumprod(-1).sum(-1).mean()),
    )


class Trainer:
    """Owns the network, the optimiser and the checkpoint folder."""

    def __init__(
        self,
        network,
        recordings: Recordings,
        weights: dict[str, Tensor],
        vocabulary: Tensor,
        schedule: Schedule,
        folder: Path,
        dtype: torch.dtype = torch.float32,
    ):
        """dtype: of the products; parameters, losses and the optimiser stay float32."""
        self.network, self.recordings, self.schedule, self.folder = (
            network,
            recordings,
            schedule,
            folder,
        )
        self.products = partial(torch.autocast, "cpu", torch.bfloat16, enabled=dtype == torch.bfloat16)
        self.embedding = weights["model.embed_tokens.weight"]
        head = weights.get("lm_head.weight", self.embedding)
        self.head, self.vocabulary = head[vocabulary].contiguous(), vocabulary
        copied = [p for layer in network.layers for p in layer.parameters()] + [network.final_norm]
        known = {id(p) for p in copied}
        fresh = [p for p in network.parameters() if id(p) not in known]
        groups = [
            {"params": copied, "lr": schedule.copied_rate, "base": schedule.copied_rate},
            {"params": fresh, "lr": schedule.new_rate, "base": schedule.new_rate},
        ]
        self.optimiser = torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.01)
        self.update = 0
        self.rank, self.workers = (
            (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        )

    def run(self, say: Callable[[str], None] = print, save_every: int = 200) -> None:
        """Train to the end of the schedule, saving and evaluating now and then."""
        s = self.schedule
        began = time.monotonic()
        recent: list[Losses] = []
        while self.update < s.updates:
            rng = random.Random(f"{s.seed} {self.update} {self.rank}")
            part = self.update / s.updates
            rate = min(1, (self.update + 1) / s.warm_up) * 0.5 * (1 + math.cos(math.pi * part))
            for group in self.optimiser.param_groups:
                group["lr"] = group["base"] * rate
            share = min(s.conversations // self.workers, len(self.recordings.train))
            pieces = rng.sample(self.recordings.train, share)
            K, anchors = self.network.shape.K, s.anchors
            if (
                self.update % 2
            ):  # every other update many shallow blocks: first positions decide most, and cost least
                K, anchors = min(s.shallow, K), anchors * K // min(s.shallow, K)
            batch = self.batch(pieces, anchors, rng, K)
            weight = 1.0 if part < s.cross_entropy_part else s.cross_entropy_weight
            with self.products():
                result = losses(self.network, batch, self.embedding, self.head, weight, s.gamma)
            self.optimiser.zero_grad(set_to_none=True)
            result.total.backward()
            self._share_gradients()
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            self.optimiser.step()
            self.update += 1
            if K == self.network.shape.K:  # only whole blocks are told of
                recent.append(replace(result, total=result.total.detach()))
            if self.update % 25 == 0:
                accepted = torch.stack([each.acceptance for each in recent]).sum(0)
                reached = torch.stack([each.reached for each in recent]).sum(0)
                loss = sum(float(each.total) for each in recent) / len(recent)
                tokens = sum(each.tokens_per_step for each in recent) / len(recent)
                seconds = (time.monotonic() - began) / 25
                began = time.monotonic()
                say(
                    f"update {self.update}/{s.updates} loss {loss:.3f} "
                    f"acceptance {' '.join(f'{float(a):.3f}' for a in accepted / reached)} "
                    f"tokens/step {tokens:.3f} {seconds:.2f} s/update"
                )
                recent = []
            if (self.update % save_every == 0 or self.update == s.updates) and self.rank == 0:
                self.save()
                say(self.describe(self.evaluate()))

    def _share_gradients(self) -> None:
        """The mean gradient of all workers, each of which saw its own conversations."""
        if self.workers == 1:
            return
        held = [p.grad for p in self.network.parameters()]
        flat = torch.cat([g.flatten() for g in held])
        dist.all_reduce(flat)
        flat /= self.workers
        for gradient, mean in zip(held, flat.split([g.numel() for g in held]), strict=True):
            gradient.copy_(mean.view_as(gradient))

    def batch(self, pieces, anchors: int, rng: random.Random, K: int | None = None) -> TrainingBatch:
        shape = self.network.shape
        return self.recordings.batch(
            pieces, anchors, K or shape.K, shape.key_layers, len(shape.state_layers), rng
        )

    @torch.no_grad()
    def evaluate(self, conversations: int = 64, anchors: int = 8) -> dict:
        """Acceptance by position and tokens per step on held-out conversations at temperature 1."""
        rng = random.Random(1)
        pieces = self.recordings.held_out
        pieces = rng.sample(pieces, min(conversations, len(pieces)))
        accepted = reached = torch.zeros(self.network.shape.K)
        tokens = []
        for i in range(0, len(pieces), 8):
            batch = self.batch(pieces[i : i + 8], anchors, rng)
            with self.products():
                r = losses(self.network, batch, self.embedding, self.head, 1.0, self.schedule.gamma)
            accepted, reached = accepted + r.acceptance, reached + r.reached
            tokens.append(r.tokens_per_step)
        return {
            "acceptance": (accepted / reached).tolist(),
            "tokens_per_step": sum(tokens) / len(tokens),
        }

    @staticmethod
    def describe(result: dict) -> str:
        rates = " ".join(f"{a:.3f}" for a in result["acceptance"])
        return f"held out: acceptance {rates}, tokens/step {result['tokens_per_step']:.3f}"

    def save(self) -> None:
        """Network, optimiser moments and place in the schedule, written whole or not at all."""
        meta = {"update": str(self.update), "shape": json.dumps(self.network.shape.as_dict())}
        save_training(self.folder, self.network, self.optimiser, self.vocabulary, meta)

    def load(self) -> bool:
        """Go on from the folder's checkpoint, if there is one."""
        update = load_training(self.folder, self.network, self.optimiser)
        self.update = self.update if update is None else update
        return update is not None
