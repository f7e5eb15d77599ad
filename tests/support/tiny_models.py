"""Targets and drafters small enough to build in a test: random weights in the files that the engine reads."""

import json
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from avlab.engine.checkpoint import read_weights
from avlab.engine.drafters.block import BlockDrafter
from avlab.engine.drafters.llama import LlamaDrafter
from avlab.engine.engine import Engine, EngineConfig, StepReport
from avlab.engine.model_config import read_config
from avlab.engine.request import Finished, Request
from avlab.engine.target import Target
from avlab.policies.arm import Arm
from avlab.speculation.costs import CostTable
from avlab.speculation.features import DEFAULT_FEATURES
from avlab.training.export import export
from avlab.training.model import DrafterNetwork, DrafterShape

CPU = torch.device("cpu")
LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "attention_bias": False,
    "mlp_bias": False,
    "eos_token_id": None,
    "bos_token_id": None,
}
SHAPE = DrafterShape(
    K=4, key_layers=(1, 2, 3), state_layers=(1, 2), input_width=24, markov_rank=8, draft_vocabulary=32
)


def write_llama(folder: Path, seed: int = 0, sharpness: float = 1.5, **changes) -> Path:
    """A random Llama in Hugging Face format. sharpness: about the standard deviation of its logits."""
    c = {**LLAMA, **changes}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(c))
    generator = torch.Generator().manual_seed(seed)
    H, I, V = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    D = c.get("head_dim") or H // c["num_attention_heads"]
    Q, KV = c["num_attention_heads"] * D, c["num_key_value_heads"] * D

    def random(*shape: int, scale: float | None = None) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * (shape[-1] ** -0.5 if scale is None else scale)

    weights = {"model.embed_tokens.weight": random(V, H, scale=sharpness * H**-0.5)}
    weights["model.norm.weight"] = 1 + random(H, scale=0.1)
    if not c["tie_word_embeddings"]:
        weights["lm_head.weight"] = random(V, H, scale=sharpness * H**-0.5)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        for name, out, into in (("q", Q, H), ("k", KV, H), ("v", KV, H), ("o", H, Q)):
            weights[f"{p}self_attn.{name}_proj.weight"] = random(out, into) * (2 if name in "qk" else 1)
            if c["attention_bias"]:
                weights[f"{p}self_attn.{name}_proj.bias"] = random(out, scale=0.3)
        for name, out, into in (("gate", I, H), ("up", I, H), ("down", H, I)):
            weights[f"{p}mlp.{name}_proj.weight"] = random(out, into)
            if c["mlp_bias"]:
                weights[f"{p}mlp.{name}_proj.bias"] = random(out, scale=0.3)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{p}{name}.weight"] = 1 + random(H, scale=0.1)
    save_file(weights, folder / "model.safetensors")
    return folder


def write_tokenizer(target: Path) -> None:
    """A tokenizer of few words, and a chat template, into a target's folder."""
    words = ["[UNK]", "[END]", "the", "a", "of", "to", "and", "in", "is", "it", "for", "you"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(target / "tokenizer.json"))
    template = "{% for turn in messages %}the {{ turn['content'] }} of{% endfor %}"
    (target / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))


def make_network(target: Path, shape: DrafterShape = SHAPE, seed: int = 0) -> DrafterNetwork:
    """A block drafter for this target, its new weights random enough that every part of it matters."""
    torch.manual_seed(seed)
    network = DrafterNetwork(read_config(target), shape)
    network.start_from(read_weights(target, torch.float32, CPU))
    with torch.no_grad():
        network.markov_out.weight.normal_(std=0.3)
        network.confidence.weight.normal_(std=0.3)
        network.input_norm.normal_(1, 0.1)
        network.mask.normal_(std=0.3)
        network.first_carry.normal_(0.9, 0.1)
        network.later_carry.normal_(0.9, 0.1)
    return network


def write_block_drafter(
    folder: Path, target: Path, shape: DrafterShape = SHAPE, vocabulary: Iterable[int] = (), seed: int = 0
) -> Path:
    """An untrained block drafter as a folder. vocabulary: the tokens it can propose; default: spread evenly."""
    V = read_config(target).vocabulary
    ids = sorted(vocabulary) or [i * V // shape.draft_vocabulary for i in range(shape.draft_vocabulary)]
    return export(make_network(target, shape, seed), torch.tensor(ids), folder, {})


def costs(K: int, slots: int, tokens: int = 4096, bump: float = 0.0) -> CostTable:
    """A cost table for an engine of this size. bump: makes verification dear from 12 tokens on (not convex)."""
    draft = [(1, 1, 0.1), (1, max(K, 2), 0.2), (slots + 1, 1, 0.4), (slots + 1, max(K, 2), 0.8)]
    verify = [(1, 1.0), (11, 1.1), (12, 1.1 + bump), (30, 1.2 + bump), (tokens, 40.0 + bump)]
    if not K:
        return CostTable.linear([(1, 0.0)], verify, slots, tokens)
    return CostTable.linear(draft, verify, slots, tokens, K=K)


def make_engine(
    target: Target | Path,
    drafter: str = "none",
    folder: Path | None = None,
    arm: str = "none",
    max_num_seqs: int = 8,
    K: int = 4,
    bump: float = 0.0,
    prefill: int | None = None,
    features: tuple[str, ...] = DEFAULT_FEATURES,
    **settings,
) -> Engine:
    """An engine in float32; drafter: none, block or llama, from `folder`. prefill: prompt tokens of a step."""
    if isinstance(target, Path):
        target = Target(target, torch.float32)
    made = None
    if drafter == "block":
        made = BlockDrafter(folder, target, K, features=features)
    elif drafter == "llama":
        made = LlamaDrafter(folder, target, max_num_seqs + 1, K, features)
    depth = made.K if made else 0
    table = costs(depth, max_num_seqs, bump=bump)
    if prefill is not None:
        settings["max_num_batched_tokens"] = max_num_seqs * (depth + 1) + prefill
    return Engine(target, made, table, EngineConfig(max_num_seqs=max_num_seqs, **settings), Arm.parse(arm))


def serve(engine: Engine, requests: Iterable[Request], limit: int = 5000) -> tuple[dict, list[StepReport]]:
    """Serve to the end: what finished, by request id, and every step's report."""
    for request in requests:
        engine.add(request)
    finished: dict[int, Finished] = {}
    reports = []
    while engine.running or engine.waiting:
        reports.append(engine.step())
        finished |= {f.sequence.request.id: f for f in reports[-1].finished}
        assert len(reports) < limit, "the engine does not come to an end"
    return finished, reports


def outputs(finished: dict[int, Finished]) -> dict[int, list[int]]:
    """The output tokens of finished requests, by request id."""
    return {i: f.sequence.tokens[f.sequence.prompt_length :] for i, f in finished.items()}
