"""The EAGLE-3 head as a network to train: one decoder layer over the target's tapped states and its own outputs.

Layer and names are those of vLLM's `llama_eagle3.py`. Row i takes the embedding of token i + 1 and the fused states of
position i, attends to the rows before it, and predicts token i + 2. Behind an anchor it goes on with its own output in
the place of the target's states, as it does when it serves ("training-time test", EAGLE-3, arXiv 2503.01840).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from avlab.engine.model_config import ModelConfig
from avlab.engine.target import rotary_frequencies

LENGTH = 1024  # positions that training may reach


def block_of(name: str) -> str:
    """The part of a decoder layer that has this projection."""
    return "self_attn" if name in ("q_proj", "k_proj", "v_proj", "o_proj") else "mlp"


class Eagle3Network(nn.Module):
    """fc: [H, S * H] fuses the inputs of S target layers. Rotary pairs are as Hugging Face has them, apart."""

    def __init__(self, config: ModelConfig, state_layers: tuple[int, ...], draft_vocabulary: int):
        super().__init__()
        c = self.config = config
        H, Q, KV = c.hidden, c.heads * c.head_dim, c.kv_heads * c.head_dim

        def linear(into: int, out: int) -> nn.Linear:
            return nn.Linear(into, out, bias=False)

        self.state_layers = state_layers
        self.fc = linear(len(state_layers) * H, H)
        self.q_proj, self.k_proj, self.v_proj = linear(2 * H, Q), linear(2 * H, KV), linear(2 * H, KV)
        self.o_proj = linear(Q, H)
        self.gate_proj, self.up_proj = linear(H, c.intermediate), linear(H, c.intermediate)
        self.down_proj = linear(c.intermediate, H)
        self.lm_head = linear(H, draft_vocabulary)
        self.input_layernorm, self.hidden_norm, self.post_attention_layernorm, self.norm = (
            nn.Parameter(torch.ones(H)) for _ in range(4)
        )
        angles = rotary_frequencies(config, LENGTH).angle()
        self.cosine, self.sine = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)  # [LENGTH, D]

    def linears(self) -> dict[str, nn.Linear]:
        """The layer's projections by name, those of attention first."""
        return {
            name: module
            for name, module in self.named_children()
            if isinstance(module, nn.Linear) and name.endswith("_proj")
        }

    @torch.no_grad()
    def start_from(self, weights: dict[str, Tensor], vocabulary: Tensor) -> None:
        """Begin as the target's last layer, over the deepest tapped state. weights: the target's; vocabulary: [Q]."""
        H, last = self.config.hidden, f"model.layers.{self.config.layers - 1}."
        self.fc.weight.normal_(std=0.01)
        self.fc.weight[:, -H:] += torch.eye(H)
        for name, linear in self.linears().items():
            theirs = weights[f"{last}{block_of(name)}.{name}.weight"]
            if name in ("q_proj", "k_proj", "v_proj"):
                linear.weight[:, :H].normal_(std=0.01)
                linear.weight[:, H:] = theirs
            else:
                linear.weight.copy_(theirs)
        self.hidden_norm.copy_(weights[f"{last}input_layernorm.weight"])
        self.input_layernorm.fill_(1.0)
        self.post_attention_layernorm.copy_(weights[f"{last}post_attention_layernorm.weight"])
        self.norm.copy_(weights["model.norm.weight"])
        head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
        self.lm_head.weight.copy_(head[vocabulary])

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x.float(), x.shape[-1:], weight, self.config.norm_epsilon)

    def _input(self, embedding: Tensor, hidden: Tensor) -> Tensor:
        """[..., H], [..., H] -> [..., 2 H]."""
        parts = self._norm(embedding, self.input_layernorm), self._norm(hidden, self.hidden_norm)
        return torch.cat(parts, -1)

    def _heads(self, x: Tensor, position: Tensor | None) -> Tensor:
        """[C, n, heads * D] -> [C, heads, n, D], turned to its position [C, n] where one is given."""
        x = x.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)
        if position is None:
            return x
        cosine, sine = (table[position][:, None].to(x.dtype) for table in (self.cosine, self.sine))
        first, second = x.chunk(2, -1)
        return x * cosine + torch.cat([-second, first], -1) * sine

    def forward(self, embeddings: Tensor, states: Tensor, anchors: Tensor, K: int) -> list[Tensor]:
        """Logits of K drafts behind each anchor, teacher-forced: K times [C, a, Q].

        embeddings: [C, L, H] of the text's tokens; states: [C, L, S * H] the target's; anchors: [C, a] rows: the state
        of position i and token i + 1. Draft k is judged by what follows token i + 1 + k.
        """
        c, (C, L, _) = self.config, embeddings.shape
        share = c.heads // c.kv_heads
        fused = self.fc(states)
        positions = torch.arange(L - 1).expand(C, -1)
        every = self._input(embeddings[:, 1:], fused[:, :-1])
        keys = self._heads(self.k_proj(every), positions)  # [C, KV, L - 1, D]
        values = self._heads(self.v_proj(every), None)
        unseen = torch.arange(L - 1) > anchors[..., None]  # [C, a, L - 1]
        mask = torch.zeros(unseen.shape).masked_fill_(unseen, float("-inf"))[:, None].to(keys.dtype)
        pick = torch.arange(C)[:, None]
        hidden, own_keys, own_values, logits = fused[pick, anchors], [], [], []
        for k in range(K):
            z = self._input(embeddings[pick, (anchors + 1 + k).clamp_max(L - 1)], hidden)
            at = anchors + k
            q = self._heads(self.q_proj(z), at)  # [C, heads, a, D]
            if k:
                own_keys.append(self._heads(self.k_proj(z), at).repeat_interleave(share, 1))
                own_values.append(self._heads(self.v_proj(z), None).repeat_interleave(share, 1))
            folded = q.unflatten(1, (c.kv_heads, share)).flatten(2, 3)  # [C, KV, share * a, D]
            scores = (folded @ keys.transpose(-1, -2)).unflatten(2, (share, -1)).flatten(1, 2)
            scores = scores * c.head_dim**-0.5 + mask
            mine = [(q * key).sum(-1, keepdim=True) * c.head_dim**-0.5 for key in own_keys]
            shares = torch.cat([scores, *mine], -1).float().softmax(-1).to(values.dtype)
            text = shares[..., : L - 1].unflatten(1, (c.kv_heads, share)).flatten(2, 3)
            mixed = (text @ values).unflatten(2, (share, -1)).flatten(1, 2)
            for j, value in enumerate(own_values):
                mixed = mixed + shares[..., L - 1 + j, None] * value
            x = hidden + self.o_proj(mixed.transpose(1, 2).flatten(2))
            h = self._norm(x, self.post_attention_layernorm)
            hidden = x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))
            logits.append(self.lm_head(self._norm(hidden, self.norm)))
        return logits
