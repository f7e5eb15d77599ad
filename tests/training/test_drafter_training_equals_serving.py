"""The network that is trained and the drafter that is served compute the same logits and confidences."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_models import LLAMA, SHAPE, make_network, write_llama

from avlab.engine.cache import Batch
from avlab.engine.drafters.base import DraftInput
from avlab.engine.drafters.block import BlockDrafter, read_drafter
from avlab.engine.target import Target
from avlab.speculation.features import probability
from avlab.training.export import export, quantise
from avlab.training.model import DrafterNetwork

V = LLAMA["vocab_size"]


def exported(tmp_path, shape, **changes):
    """A target, the folder of a drafter for it, and the network as the folder holds it, rounding included."""
    folder = write_llama(tmp_path / "target", seed=4, **changes)
    network = make_network(folder, shape, seed=1)
    ids = torch.arange(V)[:: V // shape.draft_vocabulary]
    drafter = export(network, ids, tmp_path / "drafter", {"made": "in a test"})
    target = Target(folder, torch.float32)
    again = DrafterNetwork(target.config, shape)
    tensors, card = read_drafter(drafter)
    assert torch.equal(tensors.pop("vocabulary"), ids) and card["made"] == "in a test"
    again.load_state_dict(tensors)
    return target, drafter, network, again, ids


def verified(target, state_layers, lengths):
    """Requests of these lengths, all but the newest token verified: texts, cache, states at the last verified."""
    generator = torch.Generator().manual_seed(0)
    tokens = [torch.randint(0, V, (n,), generator=generator) for n in lengths]
    cache = target.new_cache(len(lengths))
    counts = [n - 1 for n in lengths]
    batch = Batch.build(range(len(lengths)), [0] * len(lengths), counts, torch.float32, "cpu")
    final, taps = target.forward(torch.cat([t[:-1] for t in tokens]), batch, cache, state_layers)
    return tokens, cache, torch.cat([final, *taps], 1)[torch.tensor(counts).cumsum(0) - 1]


SHAPES = {
    "as shipped": SHAPE,
    "other layers": replace(SHAPE, key_layers=(0, 3), state_layers=(2,), K=3),
    "one position": replace(SHAPE, K=1),
    "long block": replace(SHAPE, K=11, draft_vocabulary=64),
}


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": False, "num_key_value_heads": 1}])
@pytest.mark.parametrize("name", SHAPES)
@torch.no_grad()
def test_training_and_serving_agree(tmp_path, name, changes):
    shape = SHAPES[name]
    target, folder, _, network, ids = exported(tmp_path, shape, **changes)
    lengths = [2, 9, 33, 21]
    B, K = len(lengths), shape.K
    tokens, cache, states = verified(target, shape.state_layers, lengths)
    keys = [k.clone() for k in cache.keys]
    values = [v.clone() for v in cache.values]
    newest = torch.stack([t[-1] for t in tokens])
    drafter = BlockDrafter(folder, target)
    drafts = drafter.propose(
        DraftInput(
            cache_rows=list(range(B)),
            starts=[n - 1 for n in lengths],
            newest=newest,
            states=states,
            temperature=torch.ones(B),
            uniforms=torch.tensor(np.random.default_rng(0).random((B, K))),
            cache=cache,
            history=[t.tolist() for t in tokens],
        ),
        K,
    )

    embedding = target.embedding
    previous = torch.cat([newest[:, None], drafts.tokens[:, :-1]], 1)
    position = torch.tensor([n - 1 for n in lengths])
    L = 40  # what lies beyond an anchor is hidden by the mask
    mask = torch.zeros(B, 1, L).masked_fill_(torch.arange(L) >= position[:, None, None], float("-inf"))
    logits, confidence = network(
        embedding[newest][:, None],
        states[:, None],
        position[:, None],
        [keys[i][:, :, :L] for i in shape.key_layers],
        [values[i][:, :, :L] for i in shape.key_layers],
        mask,
        embedding[previous][:, None],
        target.head_rows(ids),
    )
    torch.testing.assert_close(drafts.draft_probs, logits[:, 0].softmax(-1), atol=1e-5, rtol=0)
    head = probability(drafts.features["head_log_odds"])
    np.testing.assert_allclose(head, confidence[:, 0].sigmoid(), atol=1e-5)
    assert drafts.draft_probs.std(0).min() > 0 and np.ptp(head) > 0.01  # the inputs mattered


def test_export_rounds_each_row_to_a_half_step(tmp_path):
    _, folder, network, again, _ = exported(tmp_path, SHAPE)
    for name, value in network.state_dict().items():
        stored = again.state_dict()[name]
        if value.ndim == 2 and name.endswith(".weight"):
            step = value.abs().amax(1, keepdim=True) / 127
            assert ((stored - value).abs() <= 0.501 * step).all(), name
        else:
            assert torch.equal(stored, value), name
    integers, scale = quantise(torch.tensor([[0.0, 0.0], [1.0, -2.54]]))
    assert integers.tolist() == [[0, 0], [50, -127]] and scale.isfinite().all()
    assert (folder / "drafter.safetensors").stat().st_size < 2 * sum(
        v.numel() for v in network.state_dict().values()
    )


@torch.no_grad()
def test_the_copied_layers_are_the_targets(tmp_path):
    """Before training a copied layer, given the target's own input, gives the target's own output."""
    folder = write_llama(tmp_path / "target", seed=4)
    target, network = Target(folder, torch.float32), make_network(folder)
    tokens, cache, _ = verified(target, (), [12])
    K = SHAPE.K
    batch = Batch.build([0], [11 - K], [K], torch.float32, "cpu")
    _, taps = target.forward(tokens[0][11 - K : 11], batch, cache, (2, 3))
    turn = network.turns[torch.arange(11 - K, 11)].view(1, 1, K, 1, -1)
    mask = torch.zeros(1, 1, 11).masked_fill_(torch.arange(11) >= 11 - K, float("-inf"))
    keys, values = cache.keys[2][:1, :, :11], cache.values[2][:1, :, :11]
    out = network.layers[1](taps[0].view(1, 1, K, -1), turn, keys, values, mask)
    torch.testing.assert_close(out[0, 0], taps[1], atol=2e-5, rtol=0)
