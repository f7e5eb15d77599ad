"""Training of the EAGLE-3 head: batches, loss, schedule and checkpoints. Resumes where it stopped."""

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from avlab.training.checkpoints import load_training, save_training
from avlab.training.data import Piece, Recordings
from avlab.training.eagle3.network import Eagle3Network


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long and how fast; rates follow a cosine to zero after a linear warm-up.

    K: drafts behind an anchor that see the head's own outputs. gamma: draft k weighs exp(-k / gamma). The loss is
    cross-entropy for the first `cross_entropy_part` of the updates, then 0.1 of it and 0.9 of total variation, as for
    the block drafter (DSpark, arXiv 2607.05147).
    """

    updates: int = 1500
    conversations: int = 8
    anchors: int = 96
    K: int = 5
    rate: float = 1e-3
    head_rate: float = 4e-4
    warm_up: int = 40
    cross_entropy_part: float = 0.2
    cross_entropy_weight: float = 0.1
    gamma: float = 4.0
    seed: int = 0


@dataclass(slots=True)
class Found:
    """A batch's loss, and by draft position the sums of survival times acceptance and of survival, [K] each."""

    loss: Tensor
    accepted: Tensor
    reached: Tensor


class Trainer:
    """Owns the network, the optimiser and the checkpoint folder."""

    def __init__(
        self,
        network: Eagle3Network,
        recordings: Recordings,
        weights: dict[str, Tensor],
        vocabulary: Tensor,
        schedule: Schedule,
        folder: Path,
    ):
        """weights: the target's, float32. vocabulary: [Q] target tokens that the head can say."""
        self.network, self.recordings, self.schedule, self.folder = network, recordings, schedule, folder
        self.embedding, self.vocabulary = weights["model.embed_tokens.weight"], vocabulary
        self.target_head = weights.get("lm_head.weight", self.embedding)[vocabulary].contiguous()
        head = list(network.lm_head.parameters())
        rest = [p for name, p in network.named_parameters() if not name.startswith("lm_head")]
        self.optimiser = torch.optim.AdamW(
            [
                {"params": rest, "lr": schedule.rate, "base": schedule.rate},
                {"params": head, "lr": schedule.head_rate, "base": schedule.head_rate},
            ],
            betas=(0.9, 0.95),
            weight_decay=0.01,
        )
        self.update = 0

    def run(self, say: Callable[[str], None], save_every: int = 50) -> None:
        """Train to the end of the schedule, saving and evaluating now and then."""
        s, began = self.schedule, time.monotonic()
        accepted, reached, loss = torch.zeros(s.K), torch.zeros(s.K), 0.0
        while self.update < s.updates:
            rng, part = random.Random(f"{s.seed} {self.update}"), self.update / s.updates
            rate = min(1, (self.update + 1) / s.warm_up) * 0.5 * (1 + math.cos(math.pi * part))
            for group in self.optimiser.param_groups:
                group["lr"] = group["base"] * rate
            weight = 1.0 if part < s.cross_entropy_part else s.cross_entropy_weight
            pieces = rng.sample(self.recordings.train, min(s.conversations, len(self.recordings.train)))
            found = self.look(pieces, s.anchors, rng, weight)
            self.optimiser.zero_grad(set_to_none=True)
            found.loss.backward()
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            self.optimiser.step()
            self.update += 1
            accepted, reached = accepted + found.accepted, reached + found.reached
            loss += float(found.loss.detach())
            if self.update % 10 == 0:
                seconds = (time.monotonic() - began) / 10
                say(
                    f"update {self.update}/{s.updates} loss {loss / 10:.3f} {rates(accepted / reached)} "
                    f"{seconds:.2f} s/update"
                )
                accepted, reached, loss, began = torch.zeros(s.K), torch.zeros(s.K), 0.0, time.monotonic()
            if self.update % save_every == 0 or self.update == s.updates:
                self.save()
                say("held out: " + rates(torch.tensor(self.evaluate()["acceptance"])))
                began = time.monotonic()

    def look(self, pieces: list[Piece], anchors: int, rng: random.Random, weight: float) -> Found:
        """The loss of some anchors of these conversations. weight: of cross-entropy; the rest is total variation's."""
        s, H = self.schedule, self.network.config.hidden
        C, L, K = len(pieces), max(p.length for p in pieces), s.K
        tokens = torch.zeros(C, L, dtype=torch.long)
        states, final = torch.zeros(C, L, len(self.network.state_layers) * H), torch.zeros(C, L, H)
        normaliser = torch.full((C, L), math.nan)
        chosen = torch.zeros(C, anchors, dtype=torch.long)
        for c, p in enumerate(pieces):
            file, rows = self.recordings.files[p.shard], slice(p.offset, p.offset + p.length)
            tokens[c, : p.length] = file.get_slice("tokens")[rows].long()
            read = file.get_slice("states")[rows].float()
            final[c, : p.length], states[c, : p.length] = read[:, :H], read[:, H:]
            normaliser[c, : p.length] = file.get_slice("log_normaliser")[rows]
            chosen[c] = torch.tensor(rng.choices(range(max(p.first - 1, 0), p.length - 2), k=anchors))
        judged = (chosen[..., None] + 1 + torch.arange(K)).clamp_max(L - 1)  # [C, a, K] rows of the target
        each = torch.arange(C)[:, None, None]
        norms = normaliser[each, judged]
        valid = norms.isfinite() & (chosen[..., None] + 1 + torch.arange(K) < L)
        with torch.autocast("cpu", torch.bfloat16):
            found = self.network(F.embedding(tokens, self.embedding), states, chosen, K)
        total, acceptance = torch.zeros(()), []
        weights = valid * torch.exp(-torch.arange(K) / s.gamma)
        for k, logits in enumerate(found):
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                scores = F.linear(final[each[..., 0], judged[..., k]], self.target_head)
            due = (scores.float() - norms[..., k, None].nan_to_num(math.inf)).exp()
            log_q = logits.float().log_softmax(-1)
            overlap = torch.minimum(due, log_q.exp()).sum(-1)  # 1 - total variation
            one = weight * -(due * log_q).sum(-1) + (1 - weight) * (1 - overlap)
            total = total + (weights[..., k] * one).sum()
            acceptance.append(overlap.detach())
        seen = torch.stack(acceptance, -1) * valid
        survival = torch.cat([torch.ones_like(seen[..., :1]), seen[..., :-1].cumprod(-1)], -1) * valid
        return Found(total / weights.sum(), (survival * seen).sum((0, 1)), survival.sum((0, 1)))

    @torch.no_grad()
    def evaluate(self, conversations: int = 24, anchors: int = 24) -> dict[str, list[float]]:
        """Acceptance by position at temperature 1, on conversations that are held out."""
        rng, K = random.Random(1), self.schedule.K
        pieces = rng.sample(self.recordings.held_out, min(conversations, len(self.recordings.held_out)))
        accepted, reached = torch.zeros(K), torch.zeros(K)
        for i in range(0, len(pieces), 8):
            found = self.look(pieces[i : i + 8], anchors, rng, 1.0)
            accepted, reached = accepted + found.accepted, reached + found.reached
        return {"acceptance": (accepted / reached).tolist()}

    def save(self) -> None:
        """Network, optimiser moments and place in the schedule, written whole or not at all."""
        meta = {"update": str(self.update), "tokens": str(self.recordings.tokens)}
        save_training(self.folder, self.network, self.optimiser, self.vocabulary, meta)

    def load(self) -> bool:
        """Go on from the folder's checkpoint, if there is one."""
        update = load_training(self.folder, self.network, self.optimiser)
        self.update = self.update if update is None else update
        return update is not None


def rates(acceptance: Tensor) -> str:
    """Acceptance by position, and the tokens a step that follow from it where all are verified."""
    each = " ".join(f"{float(a):.3f}" for a in acceptance)
    return f"acceptance {each}, tokens/step {1 + float(acceptance.cumprod(0).sum()):.3f}"
