"""The block drafter as a trainable module. `avlab.engine.drafters.block` serves the same arithmetic; a test says so."""

from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from avlab.engine.model_config import ModelConfig
from avlab.engine.target import interleave, rotary_frequencies


@dataclass(frozen=True, slots=True)
class DrafterShape:
    """What the drafter is made of: block length, the target's layers it reads and starts from, widths."""

    K: int = 7
    key_layers: tuple[int, ...] = (18, 23, 29)
    state_layers: tuple[int, ...] = (18, 24)
    input_width: int = 768
    markov_rank: int = 128
    draft_vocabulary: int = 12288

    def as_dict(self) -> dict:
        return asdict(self)


class DrafterLayer(nn.Module):
    """A copy of one of the target's layers; its queries read the target's cached keys and the block's own."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        H, D = config.hidden, config.head_dim
        self.config = config
        self.qkv = nn.Linear(H, (config.heads + 2 * config.kv_heads) * D, bias=False)
        self.out = nn.Linear(config.heads * D, H, bias=False)
        self.gate = nn.Linear(H, config.intermediate, bias=False)
        self.up = nn.Linear(H, config.intermediate, bias=False)
        self.down = nn.Linear(config.intermediate, H, bias=False)
        self.attention_norm = nn.Parameter(torch.ones(H))
        self.mlp_norm = nn.Parameter(torch.ones(H))

    def forward(self, x: Tensor, turn: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """x: [C, a, K, hidden] for a anchors in each of C conversations; turn: [C, a, K, 1, D/2].

        keys, values: [C, KV, L, D]; mask: [C, a, L] additive, by what an anchor had verified.
        """
        c = self.config
        C, a, K, H = x.shape
        KV, D, share = c.kv_heads, c.head_dim, c.heads // c.kv_heads
        h = F.rms_norm(x, (H,), self.attention_norm, c.norm_epsilon)
        qkv = self.qkv(h).view(C, a, K, -1, D)
        qk = torch.view_as_complex(qkv[..., : c.heads + KV, :].float().unflatten(-1, (-1, 2)).contiguous())
        qk = torch.view_as_real(qk * turn).flatten(-2)
        q = qk[..., : c.heads, :].unflatten(3, (KV, share))  # [C, a, K, KV, share, D]
        k, v = qk[..., c.heads :, :], qkv[..., c.heads + KV :, :]  # [C, a, K, KV, D]
        context = torch.einsum("cakgsd,cgld->cgaksl", q, keys) + mask[:, None, :, None, None]
        block = torch.einsum("cakgsd,cajgd->cgaksj", q, k)
        causal = torch.full((K, K), float("-inf")).triu(1)[:, None]  # [K, 1, K]: row k sees rows 0..k
        scores = torch.cat([context * D**-0.5, block * D**-0.5 + causal], -1).softmax(-1)
        L = keys.shape[2]
        mixed = torch.einsum("cgaksl,cgld->cakgsd", scores[..., :L], values)
        mixed = mixed + torch.einsum("cgaksj,cajgd->cakgsd", scores[..., L:], v)
        x = x + self.out(mixed.flatten(3))
        h = F.rms_norm(x, (H,), self.mlp_norm, c.norm_epsilon)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class DrafterNetwork(nn.Module):
    """K rows after the newest token; row k gives the distribution of draft k once draft k-1 is known."""

    def __init__(self, config: ModelConfig, shape: DrafterShape):
        super().__init__()
        H, W, M = config.hidden, shape.input_width, shape.markov_rank
        inputs = (2 + len(shape.state_layers)) * H  # embedding, final state, tapped states
        self.config, self.shape = config, shape
        self.input_norm = nn.Parameter(torch.ones(inputs))
        self.input_hidden = nn.Linear(inputs, W, bias=False)
        self.first_direct = nn.Linear(inputs, H, bias=False)
        self.first_out = nn.Linear(W, H, bias=False)
        self.later_out = nn.Linear(W, H, bias=False)
        self.first_carry = nn.Parameter(torch.full((H,), 0.9))
        self.later_carry = nn.Parameter(torch.full((H,), 0.9))
        self.mask = nn.Parameter(torch.randn(shape.K - 1, H) * 0.02)
        self.layers = nn.ModuleList(DrafterLayer(config) for _ in shape.key_layers)
        self.final_norm = nn.Parameter(torch.ones(H))
        self.markov_token = nn.Linear(H, M, bias=False)
        self.markov_state = nn.Linear(H, M, bias=False)
        self.markov_carry = nn.Linear(M, M, bias=False)
        self.markov_out = nn.Linear(M, shape.draft_vocabulary, bias=False)
        self.confidence = nn.Linear(H + M, 1)
        for layer in (self.input_hidden, self.first_direct, self.markov_token, self.markov_state):
            nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
        for layer in (self.first_direct, self.first_out, self.later_out, self.markov_carry):
            nn.init.normal_(layer.weight, std=0.1 * layer.in_features**-0.5)
        nn.init.zeros_(self.markov_out.weight)
        nn.init.zeros_(self.confidence.weight)
        self.turns = rotary_frequencies(config, 2048)

    @torch.no_grad()
    def start_from(self, weights: dict[str, Tensor]) -> None:
        """Copy the target's layers named in the shape. weights: the target's tensors by their Hugging Face names."""
        c = self.config
        for layer, i in zip(self.layers, self.shape.key_layers, strict=True):
            assert isinstance(layer, DrafterLayer)  # a ModuleList does not say so
            p = f"model.layers.{i}."
            q = interleave(weights[p + "self_attn.q_proj.weight"], c.heads)
            k = interleave(weights[p + "self_attn.k_proj.weight"], c.kv_heads)
            layer.qkv.weight.copy_(torch.cat([q, k, weights[p + "self_attn.v_proj.weight"]]))
            layer.out.weight.copy_(weights[p + "self_attn.o_proj.weight"])
            for name in ("gate", "up", "down"):
                getattr(layer, name).weight.copy_(weights[p + f"mlp.{name}_proj.weight"])
            layer.attention_norm.copy_(weights[p + "input_layernorm.weight"])
            layer.mlp_norm.copy_(weights[p + "post_attention_layernorm.weight"])
        self.final_norm.copy_(weights["model.norm.weight"])

    def rows(self, embedding: Tensor, states: Tensor) -> Tensor:
        """embedding: [..., H] of the newest token; states: [..., S·H] (final, tapped) -> [..., K, H]."""
        H = self.config.hidden
        z = torch.cat([embedding, states], -1).unflatten(-1, (-1, H))
        z = F.rms_norm(z, (H,), None, self.config.norm_epsilon).flatten(-2) * self.input_norm
        u = F.silu(self.input_hidden(z))
        deep = states[..., H : 2 * H]  # the input of the first copied layer, one position earlier
        first = deep * self.first_carry + self.first_direct(z) + self.first_out(u)
        later = (deep * self.later_carry + self.later_out(u))[..., None, :] + self.mask
        return torch.cat([first[..., None, :], later], -2)

    def forward(
        self, embedding, states, position, keys, values, mask, previous, head
    ) -> tuple[Tensor, Tensor]:
        """Teacher-forced logits and confidence logits.

        embedding: [C, a, H]; states: [C, a, S·H]; position: [C, a] of the newest token; keys, values: a [C, KV, L, D]
        for each layer; mask: [C, a, L]; previous: [C, a, K, H] embeddings of the token before each draft;
        head: [draft vocabulary, H] -> ([C, a, K, draft vocabulary], [C, a, K]).
        """
        K = previous.shape[-2]  # rows are causal, so a shallower block is the beginning of a deeper one
        x = self.rows(embedding, states)[..., :K, :]
        turn = self.turns[position[..., None] + torch.arange(K)].unsqueeze(-2)
        for layer, k, v in zip(self.layers, keys, values, strict=True):
            x = layer(x, turn, k, v, mask)
        x = F.rms_norm(x, x.shape[-1:], self.final_norm, self.config.norm_epsilon)
        drive = self.markov_state(x) + self.markov_token(previous)  # [C, a, K, M]
        carried, state = [], torch.zeros_like(drive[..., 0, :])
        for k in range(K):
            state = F.silu(drive[..., k, :] + self.markov_carry(state))
            carried.append(state)
        markov = torch.stack(carried, -2)
        logits = F.linear(x, head) + self.markov_out(markov)
        confidence = self.confidence(torch.cat([x, markov], -1)).squeeze(-1)
        return logits, confidence
