"""The shipped drafter: one parallel pass over the target's own cache, then a small recurrence over the drawn tokens.

A block of `depth` rows follows the newest token. Its layers began as copies of three of the target's layers and read
the keys and values that the target cached for those layers, so context costs the drafter nothing. The block's own keys
and values go into the same cache, at positions the target has not verified yet and will overwrite: the layers are the
target's `Layer`, unchanged. Rows are causal inside the block, so a draft of depth d is the first d rows of a longer
one. The Markov part lets position k see the tokens drawn before it (DSpark, arXiv 2607.05147, its recurrent variant).
"""

import time
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.nn import functional as F

from avlab.engine.branches import Branches, text_of
from avlab.engine.branches import forward as branches_forward
from avlab.engine.cache import KVCache
from avlab.engine.checkpoint import Weights
from avlab.engine.checkpoint_files import CheckpointError, read_json
from avlab.engine.drafters.along import ReadText
from avlab.engine.drafters.base import DrafterContext, DrafterKind, DraftInput, features_given, register
from avlab.engine.drafters.draws import Draws, needs_weights, row_features
from avlab.engine.drafts import Drafts, DraftVocabulary
from avlab.engine.linear import Linear
from avlab.engine.model_config import ModelConfig
from avlab.engine.native import Native
from avlab.engine.target import Layer, Stack, Target, rms_norm
from avlab.speculation.features import DEFAULT_FEATURES, LOG_ODDS_LIMIT

HEAD = "head_log_odds"


class BlockDrafter:
    """Serves the network of `avlab.training.model` from its safetensors file. See that module for the arithmetic."""

    def __init__(
        self,
        folder: Path,
        target: Target,
        K: int | None = None,
        head: bool = True,
        features: tuple[str, ...] = DEFAULT_FEATURES,
    ):
        """K: how many of the trained positions to draft (default: all). head: whether the confidence head is on.

        features: those wanted beside what policies read.
        """
        weights, card = read_drafter(folder)
        c, shape = target.config, card["shape"]
        if K is not None and shape["K"] < K:
            raise CheckpointError(
                f"The drafter in {folder} makes at most {shape['K']} drafts, {K} were asked for: lower K."
            )
        if (card["hidden"], card["target_vocabulary"]) != (c.hidden, c.vocabulary):
            raise CheckpointError(
                f"The drafter in {folder} was made for a target of hidden size {card['hidden']} and vocabulary "
                f"{card['target_vocabulary']}; this target has {c.hidden} and {c.vocabulary}: give the drafter that "
                "belongs to it, or run without one (--drafter none)."
            )
        self.key_layers, self.state_layers = tuple(shape["key_layers"]), tuple(shape["state_layers"])
        if max(self.key_layers + self.state_layers) >= c.layers:
            raise CheckpointError(
                f"The drafter in {folder} reads the target's layer {max(self.key_layers + self.state_layers)}; this "
                f"target has layers 0 to {c.layers - 1}: give the drafter that belongs to it."
            )
        self.name, self.target, self.K = "block", target, K or shape["K"]
        self.features = features_given(features, (HEAD,) if head else ())
        self.epsilon = c.norm_epsilon
        for name, tensor in weights.items():
            weights[name] = tensor.to(
                target.device, target.dtype if tensor.is_floating_point() else tensor.dtype
            )
        H, W, M, Q = c.hidden, shape["input_width"], shape["markov_rank"], shape["draft_vocabulary"]
        inputs = (2 + len(self.state_layers)) * H
        ids = weights.take("vocabulary", Q)
        if int(ids.min()) < 0 or int(ids.max()) >= c.vocabulary:
            raise CheckpointError(
                f"The drafter in {folder} has a vocabulary with tokens that the target lacks."
            )
        self.vocabulary = DraftVocabulary(ids, c.vocabulary)

        def linear(name: str, rows: int, columns: int) -> Linear:
            return Linear(weights.take(f"{name}.weight", rows, columns), weights.maybe(f"{name}.bias", rows))

        self.layers = [Layer.of_parts(weights, f"layers.{i}", c) for i in range(len(self.key_layers))]
        for layer in self.layers:
            layer.native = target.native
        self._stack: tuple[KVCache, Stack] | None = None  # the layers over the cache in use
        self.input_hidden, self.first_direct = (
            linear("input_hidden", W, inputs),
            linear("first_direct", H, inputs),
        )
        self.first_out, self.later_out = linear("first_out", H, W), linear("later_out", H, W)
        self.markov_state, self.markov_carry = linear("markov_state", M, H), linear("markov_carry", M, M)
        self.markov_out, self.confidence = linear("markov_out", Q, M), linear("confidence", 1, H + M)
        self.most_rows = min(self.markov_carry.most_rows, self.markov_out.most_rows)
        self.head = Linear(target.head_rows(ids))
        # the Markov input of every token the target can say, computed once: [V, rank]
        self.token_drive = F.linear(target.embedding, weights.take("markov_token.weight", M, H))
        self.input_norm, self.final_norm = weights.take("input_norm", inputs), weights.take("final_norm", H)
        self.first_carry, self.later_carry = weights.take("first_carry", H), weights.take("later_carry", H)
        self.mask = weights.take("mask", shape["K"] - 1, H)
        weights.check_all_taken()

    @torch.inference_mode()
    def propose(self, inputs: DraftInput, depth: int) -> Drafts:
        x, base, drive = self.block(inputs, depth)
        native = self.target.native if len(x) <= self.most_rows else None
        drafts, states = (
            self._at_once(native, inputs, base, drive) if native else self._in_turn(inputs, base, drive)
        )
        self.add_head(drafts, x, states)
        return drafts

    def _in_turn(self, inputs: DraftInput, base: Tensor, drive: Tensor) -> tuple[Drafts, Tensor]:
        """Drafts position by position, without the head's word; the recurrence's states [B, depth, M]."""
        draws = Draws(inputs.temperature, inputs.uniforms, self.features)
        state = torch.zeros_like(drive[:, 0])
        previous, tokens, states = inputs.newest, [], []
        for k in range(base.shape[1]):
            state, logits = self.position(previous, state, base[:, k], drive[:, k])
            previous = self.vocabulary.ids[draws.draw(logits)]
            tokens.append(previous)
            states.append(state)
        return draws.drafts(torch.stack(tokens, 1), self.vocabulary), torch.stack(states, 1)

    def _at_once(
        self, native: Native, inputs: DraftInput, base: Tensor, drive: Tensor
    ) -> tuple[Drafts, Tensor]:
        """The same by one native call."""
        weights = torch.empty(base.shape) if needs_weights(self.features) else None
        columns, q, feature, states = native.recur(
            base.transpose(0, 1),
            drive.transpose(0, 1),
            self.token_drive,
            self.markov_carry.native_weight,
            self.markov_out.native_weight,
            self.vocabulary.ids,
            inputs.newest,
            inputs.temperature,
            inputs.uniforms.contiguous(),
            weights,
        )
        began = time.perf_counter()
        features = row_features(self.features, feature, weights, columns)
        milliseconds = 0.0 if weights is None else (time.perf_counter() - began) * 1e3
        drafts = Drafts(self.vocabulary.ids[columns], q, self.vocabulary, features, milliseconds)
        return drafts, states.transpose(0, 1)

    def position(self, previous: Tensor, state: Tensor, base: Tensor, drive: Tensor) -> tuple[Tensor, Tensor]:
        """The recurrence at a position, behind the tokens drawn before it, [B]: its state [B, M] and logits [B, Q].

        base [B, Q], drive [B, M]: what the parallel pass gives for the position.
        """
        state = F.silu(self.markov_carry.plus(state, drive + self.token_drive[previous]))
        return state, self.markov_out.plus(state, base)

    def add_head(self, drafts: Drafts, x: Tensor, states: Tensor) -> None:
        """What the confidence head says of these drafts, where it is on.

        x: [B, depth, H] states of the parallel pass; states: [B, depth, M] of the recurrence.
        """
        if HEAD in self.features:
            column = self._head_log_odds(x.flatten(0, 1), states.flatten(0, 1)).view(len(x), -1)
            drafts.features = drafts.features.and_also(HEAD, column.double().cpu().numpy())

    def _head_log_odds(self, x: Tensor, states: Tensor) -> Tensor:
        """[N, H], [N, M] -> [N]."""
        logits = self.confidence(torch.cat([x, states], -1)).float().squeeze(1)
        return logits.clamp(-LOG_ODDS_LIMIT, LOG_ODDS_LIMIT)

    def follow(self, text: ReadText) -> "BlockText":
        return BlockText(self, text)

    def block(self, inputs: DraftInput, depth: int) -> tuple[Tensor, Tensor, Tensor]:
        """The parallel pass: states [B, depth, H], the logits [B, depth, Q] and drive [B, depth, M] they give."""
        B = len(inputs.cache_rows)
        batch = self.target.batch(inputs.cache_rows, inputs.starts, [depth] * B)
        turn = self.target.turns[batch.positions].unsqueeze(1)
        x = self._rows(self.target.embedding[inputs.newest], inputs.states, depth)  # [B * depth, H]
        return self._given(self._stack_over(inputs.cache)(x, turn, batch), B)

    def _given(self, x: Tensor, B: int) -> tuple[Tensor, Tensor, Tensor]:
        """What the rows behind the last layer, [B * depth, H], give: as `block` says."""
        x = rms_norm(x, self.final_norm, self.epsilon, self.target.native)
        x = x.view(B, -1, x.shape[1])
        depth = x.shape[1]
        by_position = x.transpose(0, 1).flatten(0, 1)  # so that a position's rows are neighbours
        base, drive = (
            linear(by_position).view(depth, B, -1).transpose(0, 1)
            for linear in (self.head, self.markov_state)
        )
        return x, base, drive

    def _stack_over(self, cache: KVCache) -> Stack:
        if self._stack is None or self._stack[0] is not cache:
            keys, values = ([part[i] for i in self.key_layers] for part in (cache.keys, cache.values))
            self._stack = cache, Stack(self.layers, keys, values)
        return self._stack[1]

    def _rows(self, embedding: Tensor, states: Tensor, depth: int) -> Tensor:
        """[B, H], [B, S * H] -> the block's input rows [B * depth, H]."""
        B, H = embedding.shape
        z = F.rms_norm(torch.cat([embedding, states], 1).view(B, -1, H), (H,), None, self.epsilon)
        z = z.flatten(1) * self.input_norm
        u = self.input_hidden.silu(z)
        deep = states[:, H : 2 * H]
        first = self.first_direct.plus(z, self.first_out(u)) + deep * self.first_carry
        later = self.later_out(u) + deep * self.later_carry
        return torch.cat([first[:, None], later[:, None] + self.mask[: depth - 1]], 1).view(B * depth, H)

    def assume_read(self, cache_row: int, tokens: int) -> None:
        """It reads the target's cache, and keeps nothing of its own."""

    def forget(self, cache_row: int) -> None:
        """Nothing of a request outlives its cache row."""


def fits(folder: Path, target: ModelConfig) -> bool:
    """Whether the drafter in this folder was made for targets of this shape. Raises CheckpointError."""
    card = read_card(folder)
    return (card["hidden"], card["target_vocabulary"]) == (target.hidden, target.vocabulary)


class BlockText:
    """The drafter along a text that the target has read."""

    def __init__(self, drafter: BlockDrafter, text: ReadText):
        self.drafter, self.text = drafter, text
        self.keys = text_of(text.cache, text.row, drafter.key_layers)

    def begin(self, at: Tensor) -> "BlockSlots":
        drafter, text = self.drafter, self.text
        newest = text.tokens[at]
        x = drafter._rows(drafter.target.embedding[newest], text.states[at - 1], drafter.K)
        branches = Branches(at, torch.full_like(at, drafter.K))
        x, _ = branches_forward(drafter.layers, self.keys, drafter.target.turns, x, branches)
        return BlockSlots(drafter, *drafter._given(x, len(at)))


class BlockSlots:
    """Its drafts at anchors of a text, slot by slot: the parallel pass is done."""

    def __init__(self, drafter: BlockDrafter, x: Tensor, base: Tensor, drive: Tensor):
        self.drafter, self.x, self.base, self.drive = drafter, x, base, drive

    def next(self, k: int, owner: Tensor, previous: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        drive = self.drive[owner, k]
        before = torch.zeros_like(drive) if state is None else state
        return self.drafter.position(previous, before, self.base[owner, k], drive)

    def own_features(self, k: int, owner: Tensor, state: Tensor) -> Tensor | None:
        if HEAD not in self.drafter.features:
            return None
        return self.drafter._head_log_odds(self.x[owner, k], state)[:, None]


def make(context: DrafterContext) -> BlockDrafter:
    """The drafter of a folder; its K positions were trained. Raises CheckpointError."""
    return BlockDrafter(context.folder, context.target, context.K, context.head, context.features)


def read_card(folder: Path) -> dict:
    """A drafter's description, drafter.json. Raises CheckpointError for a missing or foreign file."""
    card = read_json(folder / "drafter.json")
    try:
        _ = card["hidden"], card["target_vocabulary"]
        _ = [card["shape"][name] for name in ("K", "input_width", "markov_rank", "draft_vocabulary")]
        _ = [*card["shape"]["key_layers"], *card["shape"]["state_layers"]]
    except (KeyError, TypeError) as error:
        raise CheckpointError(
            f"{folder / 'drafter.json'} is not a drafter's description: it lacks {error}."
        ) from None
    return card


def read_drafter(folder: Path) -> tuple[Weights, dict]:
    """The tensors and the card of a drafter folder; int8 weights are scaled back to float32 row by row.

    Raises CheckpointError for missing, truncated or foreign files.
    """
    card, path = read_card(folder), folder / "drafter.safetensors"
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist: the drafter is incomplete, install the project again.")
    tensors = Weights(folder, {})
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - a safetensors handle, not a dict
                if not name.endswith(".scale"):
                    value = file.get_tensor(name)
                    if value.dtype == torch.int8:
                        value = value.float() * file.get_tensor(f"{name}.scale").float()[:, None]
                    tensors[name] = value.float() if value.is_floating_point() else value.long()
    except SafetensorError as error:
        raise CheckpointError(f"{path} is truncated or not a safetensors file ({error}).") from None
    return tensors, card


register(DrafterKind("block", "a block drafter", "drafter.json", make, fits))
