"""The EAGLE-3 folder in vLLM: its own class loads it, and computes what this engine computes."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import write_llama, write_tokenizer
from vllm_environment import ask, needs_vllm

from avlab.engine.checkpoint import read_weights
from avlab.engine.drafters.along import ReadText
from avlab.engine.drafters.eagle3 import Eagle3Drafter
from avlab.engine.model_config import read_config
from avlab.engine.target import Target
from avlab.training.eagle3.export import export
from avlab.training.eagle3.network import Eagle3Network

pytestmark = [needs_vllm, pytest.mark.vllm]

LAYERS = (1, 2, 4)
SHAPE = {
    "hidden_size": 128,
    "intermediate_size": 64,
    "num_hidden_layers": 6,
}  # heads of 32: vLLM has no smaller


def test_vllms_class_computes_what_ours_does(tmp_path):
    folder = write_llama(tmp_path / "target", seed=4, sharpness=2.5, **SHAPE)
    write_tokenizer(folder)
    torch.manual_seed(1)
    weights, vocabulary = read_weights(folder, torch.float32, torch.device("cpu")), torch.arange(0, 64, 2)
    network = Eagle3Network(read_config(folder), LAYERS, len(vocabulary))
    network.start_from(weights, vocabulary)
    with torch.no_grad():
        for p in network.parameters():
            p.add_(0.1 * torch.randn_like(p) * p.std().clamp_min(0.1))
    head = export(network, vocabulary, tmp_path / "head", {})

    target = Target(folder, torch.float32)
    drafter, tokens = Eagle3Drafter(head, target, 2, 3), torch.randint(0, 64, (40,))
    with torch.inference_mode():
        batch, cache = target.batch([0], [0], [39]), target.new_cache(1)
        final, taps = target.forward(tokens[:-1], batch, cache, drafter.state_layers)
        text = drafter.follow(ReadText(tokens, torch.cat([final, *taps], 1), cache, 0))
        due = {"outputs": text.outputs, "logits": drafter.logits(text.outputs), "ids": drafter.vocabulary.ids}
    reference = tmp_path / "reference"
    given = {"embedding": target.embedding, "aux": torch.cat(taps, 1), "tokens": tokens[1:]}
    save_file({name: x.clone().contiguous() for name, x in given.items()}, reference)

    told = ask("vllm_eagle3.py", {"target": str(folder), "head": str(head), "reference": str(reference)})
    assert told == {"architectures": ["LlamaForCausalLMEagle3"], "layers": list(LAYERS)}
    found = load_file(f"{reference}.found")
    assert torch.equal(found["ids"], due["ids"])
    for name in ("outputs", "logits"):
        torch.testing.assert_close(found[name], due[name].clone(), atol=1e-3, rtol=1e-4)
