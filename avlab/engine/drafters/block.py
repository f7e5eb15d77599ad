"""The shipped drafter: one parallel pass over the target's own cache, then a small recurrence over the drawn tokens.

A block of `depth` rows follows the newest token. Its layers began as copies of three of the target's layers and read
the keys and values that the target cached for those layers, so context costs the drafter nothing. The block's own keys
and values go into the same cache, at positions the target has not verified yet and will overwrite: the layers are the
target's `Layer`, unchanged. Rows are causal inside the block, so a draft of depth d is the first d rows of a longer
one. The Markov part lets position k see the tokens drawn before it (DSpark, arXiv 2607.05147, its recurrent variant).
"""

import json
import time
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.nn import functional as F

from avlab.engine.cache import Batch
from avlab.engine.checkpoint import CheckpointError
from avlab.engine.drafters.base import DraftInput, Drafts, DraftVocabulary
from avlab.engine.linear import Linear
from avlab.engine.target import Layer, Target
from avlab.speculation.features import max_log_odds


class BlockDrafter:
    """Serves the network of `avlab.training.model` from its safetensors file. See that module for the arithmetic."""

    has_head = True

    def __init__(self, folder: Path, target: Target):
        tensors, card = read_drafter(folder)
        shape = card["shape"]
        if card["hidden"] != target.config.hidden or card["target_vocabulary"] != target.config.vocabulary:
            raise CheckpointError(
                f"The drafter in {folder} was made for a target of hidden size {card['hidden']} and vocabulary "
                f"{card['target_vocabulary']}; this target has {target.config.hidden} and "
                f"{target.config.vocabulary}: give the drafter that belongs to it, or run without one (--drafter none)."
            )
        tensors = {k: v.to(target.device, target.dtype if v.is_floating_point() else v.dtype) for k, v in tensors.items()}
        self.name, self.target, self.K = "block", target, shape["K"]
        self.key_layers, self.state_layers = tuple(shape["key_layers"]), tuple(shape["state_layers"])
        self.vocabulary = DraftVocabulary(tensors["vocabulary"], target.config.vocabulary)
        self.epsilon = target.config.norm_epsilon

        def linear(name: str) -> Linear:
            return Linear(tensors[f"{name}.weight"], tensors.get(f"{name}.bias"))

        self.layers = [Layer.of_parts(tensors, f"layers.{i}", target.config) for i in range(len(self.key_layers))]
        self.input_hidden, self.first_direct = linear("input_hidden"), linear("first_direct")
        self.first_out, self.later_out = linear("first_out"), linear("later_out")
        self.markov_state, self.markov_carry = linear("markov_state"), linear("markov_carry")
        self.markov_out, self.confidence = linear("markov_out"), linear("confidence")
        self.head = Linear(target.head_rows(self.vocabulary.ids))
        # the Markov input of every token the target can say, computed once: [V, rank]
        self.token_drive = F.linear(target.embedding, tensors["markov_token.weight"])
        self.plain = tensors

    @torch.inference_mode()
    def propose(self, inputs: DraftInput, depth: int) -> Drafts:
        B = len(inputs.slots)
        batch = Batch.build(inputs.slots, inputs.starts, [depth] * B, self.target.dtype, self.target.device)
        turn = self.target.turns[batch.positions].unsqueeze(1)
        x = self._rows(self.target.embedding[inputs.newest], inputs.states, depth)  # [B * depth, H]
        for layer, i in zip(self.layers, self.key_layers, strict=True):
            x = layer(x, turn, inputs.cache.keys[i], inputs.cache.values[i], batch)
        x = F.rms_norm(x, x.shape[1:], self.plain["final_norm"], self.epsilon)
        base = self.head(x).view(B, depth, -1)
        drive = self.markov_state(x).view(B, depth, -1)

        greedy = inputs.temperature == 0
        scale = torch.where(greedy, 1.0, inputs.temperature)[:, None]
        unscaled = bool((scale == 1).all())
        state = torch.zeros_like(drive[:, 0])
        previous, states, tokens, rows, features = inputs.newest, [], [], [], []
        feature_s = 0.0
        for k in range(depth):
            state = F.silu(self.markov_carry.plus(state, drive[:, k] + self.token_drive[previous]))
            logits = self.markov_out.plus(state, base[:, k]).float()  # [B, Q]
            if not unscaled:
                logits = logits / scale
            began = time.perf_counter()
            top = logits.argmax(-1)
            features.append(max_log_odds(logits, xp=torch, top=top))
            feature_s += time.perf_counter() - began
            q = logits.softmax(-1)
            cumulative = q.cumsum(-1)
            draw = inputs.uniforms[:, k, None].to(q.dtype) * cumulative[:, -1:]
            column = torch.searchsorted(cumulative, draw, right=True).squeeze(1).clamp_max(q.shape[1] - 1)
            if bool(greedy.any()):
                column = torch.where(greedy, top, column)
                q[greedy] = F.one_hot(top[greedy], q.shape[1]).to(q.dtype)
            previous = self.vocabulary.ids[column]
            tokens.append(previous)
            rows.append(q)
            states.append(state)
        joined = torch.cat([x.view(B, depth, -1), torch.stack(states, 1)], -1).view(B * depth, -1)
        head = torch.sigmoid(self.confidence(joined).float()).view(B, depth)
        return Drafts(
            tokens=torch.stack(tokens, 1),
            rows=torch.stack(rows, 1),
            vocabulary=self.vocabulary,
            feature=torch.stack(features, 1).double().cpu().numpy(),
            head=head.double().cpu().numpy(),
            feature_ms=feature_s * 1e3,
        )

    def _rows(self, embedding: Tensor, states: Tensor, depth: int) -> Tensor:
        """[B, H], [B, S * H] -> the block's input rows [B * depth, H]."""
        B, H = embedding.shape
        w = self.plain
        z = F.rms_norm(torch.cat([embedding, states], 1).view(B, -1, H), (H,), None, self.epsilon)
        z = z.flatten(1) * w["input_norm"]
        u = self.input_hidden.silu(z)
        deep = states[:, H : 2 * H]
        first = self.first_direct.plus(z, self.first_out(u)) + deep * w["first_carry"]
        later = self.later_out(u) + deep * w["later_carry"]
        return torch.cat([first[:, None], later[:, None] + w["mask"][: depth - 1]], 1).view(B * depth, H)

    def forget(self, slot: int) -> None:
        """Nothing of a request outlives its slot."""


def read_drafter(folder: Path) -> tuple[dict[str, Tensor], dict]:
    """The tensors and the card of a drafter folder; int8 weights are scaled back to float32 row by row.

    Raises CheckpointError for missing, truncated or foreign files.
    """
    card_path, weights_path = folder / "drafter.json", folder / "drafter.safetensors"
    for path in (card_path, weights_path):
        if not path.is_file():
            raise CheckpointError(
                f"{path} does not exist: name a drafter folder with --drafter, or run without one (--drafter none)."
            )
    try:
        card = json.loads(card_path.read_text(encoding="utf-8"))
        shape, _, _ = card["shape"], card["hidden"], card["target_vocabulary"]
        _ = shape["K"], shape["key_layers"], shape["state_layers"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{card_path} is not a drafter's description ({error!r}).") from None
    tensors: dict[str, Tensor] = {}
    try:
        with safe_open(weights_path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - a safetensors handle, not a dict
                if not name.endswith(".scale"):
                    value = file.get_tensor(name)
                    if value.dtype == torch.int8:
                        value = value.float() * file.get_tensor(f"{name}.scale").float()[:, None]
                    tensors[name] = value.float() if value.is_floating_point() else value.long()
    except SafetensorError as error:
        raise CheckpointError(f"{weights_path} is truncated or not a safetensors file ({error}).") from None
    return tensors, card


