"""The EAGLE-3 head: what is trained is what is served, its folder is vLLM's, and training goes on where it was."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import costs, outputs, serve, write_llama

from avlab.engine.checkpoint import read_weights
from avlab.engine.checkpoint_files import CheckpointError
from avlab.engine.drafters.base import kind_of
from avlab.engine.drafters.eagle3 import Eagle3Drafter
from avlab.engine.engine import Engine, EngineConfig
from avlab.engine.model_config import read_config
from avlab.engine.recording.chances import Sampling
from avlab.engine.recording.recorder import Recorder
from avlab.engine.recording.texts import Text
from avlab.engine.request import Request
from avlab.engine.target import Target
from avlab.policies.arm import Arm
from avlab.training.data import Recordings
from avlab.training.eagle3.export import export
from avlab.training.eagle3.network import Eagle3Network
from avlab.training.eagle3.train import Schedule, Trainer
from avlab.training.generate import Conversation, ShardWriter, generate

CPU = torch.device("cpu")
LAYERS, K = (0, 2, 3), 3


def made(tmp_path, Q=24):
    """A target, the folder of a head for it, and the network as the folder holds it."""
    folder = write_llama(tmp_path / "target", seed=4, sharpness=2.5)
    torch.manual_seed(1)
    weights, vocabulary = read_weights(folder, torch.float32, CPU), torch.arange(0, 64)[:: 64 // Q][:Q]
    network = Eagle3Network(read_config(folder), LAYERS, Q)
    network.start_from(weights, vocabulary)
    with torch.no_grad():
        for p in network.parameters():
            p.add_(0.2 * torch.randn_like(p) * p.std().nan_to_num(1.0).clamp_min(0.1))
            p.copy_(p.bfloat16().float())  # as it is saved
    head = export(network, vocabulary, tmp_path / "head", {"made": "in a test"})
    return folder, head, network, vocabulary


class Watched(Eagle3Drafter):
    """Keeps what it was asked and what it proposed."""

    def __init__(self, *given):
        super().__init__(*given)
        self.seen = []

    def propose(self, inputs, depth):
        drafts = super().propose(inputs, depth)
        for row, history in enumerate(inputs.history):
            self.seen.append((list(history), drafts.tokens[row].tolist(), drafts.draft_probs[row].clone()))
        return drafts


def engine_of(target, drafter, policy, prefill=None, requests=4):
    depth = drafter.K if drafter else 0
    most = None if prefill is None else requests * (depth + 1) + prefill
    config = EngineConfig(max_num_seqs=requests, max_num_batched_tokens=most)
    return Engine(target, drafter, costs(depth, requests), config, Arm.parse(policy))


@torch.no_grad()
def rows_of(network, target, history, drafted):
    """The network's own distributions of the drafts behind a text, [K, Q]."""
    tokens = torch.tensor(history + drafted)
    batch = target.batch([0], [0], [len(history) - 1])
    _, taps = target.forward(tokens[: len(history) - 1], batch, target.new_cache(1), LAYERS)
    states = torch.zeros(1, len(tokens), len(LAYERS) * network.config.hidden)
    states[0, : len(history) - 1] = torch.cat(taps, 1)
    anchors = torch.tensor([[len(history) - 2]])
    return torch.cat(network(target.embedding[tokens][None], states, anchors, len(drafted)), 1)[0].softmax(-1)


@pytest.mark.parametrize("policy", ["fixed:3", "adaptive+depth", "verify:1"])
def test_training_and_serving_agree_at_every_draft_of_a_served_run(tmp_path, policy):
    folder, head, network, vocabulary = made(tmp_path)
    target = Target(folder, torch.float32)
    drafter = Watched(head, target, 5, K)
    assert torch.equal(drafter.vocabulary.ids, vocabulary) and drafter.state_layers == LAYERS
    engine = engine_of(target, drafter, policy, prefill=5)
    generator = torch.Generator().manual_seed(0)
    prompts = [torch.randint(0, 64, (n,), generator=generator).tolist() for n in (2, 13, 7, 21, 4, 9)]
    requests = [Request(i, prompt, 10, temperature=1.0, seed=i) for i, prompt in enumerate(prompts)]
    serve(engine, requests)
    assert len(drafter.seen) > 15
    for history, drafted, probs in drafter.seen:
        torch.testing.assert_close(probs, rows_of(network, target, history, drafted), atol=2e-4, rtol=1e-3)


def test_steps_without_drafts_are_caught_up(tmp_path):
    folder, head, network, _ = made(tmp_path)
    target = Target(folder, torch.float32)
    drafter = Watched(head, target, 5, K)
    engine = engine_of(target, drafter, "none")
    engine.add(Request(0, [3, 5, 7], 20, temperature=1.0, seed=3))
    for _ in range(6):
        engine.step()
    assert not drafter.seen
    engine.set_policy(Arm.parse("fixed:3"))
    engine.step()
    history, drafted, probs = drafter.seen[0]
    torch.testing.assert_close(probs, rows_of(network, target, history, drafted), atol=2e-4, rtol=1e-3)


def test_greedy_output_is_that_of_no_drafts(tmp_path):
    folder, head, _, _ = made(tmp_path)
    target = Target(folder, torch.float32)
    requests = [Request(i, [3, 5 + i, 7], 30, temperature=0.0) for i in range(6)]
    due = outputs(serve(engine_of(target, None, "none"), requests)[0])
    for policy in ("fixed:3", "adaptive:converged+depth+stop"):
        engine = engine_of(target, Eagle3Drafter(head, target, 5, K), policy)
        assert outputs(serve(engine, requests)[0]) == due


def test_recorded_greedy_anchors_are_the_steps_of_serving(tmp_path):
    folder, head, _, _ = made(tmp_path)
    target = Target(folder, torch.float32)
    drafter = Eagle3Drafter(head, target, 5, K)
    requests = [Request(i, [3, 5 + i, 7, 7 + i], 30, temperature=0.0) for i in range(4)]
    for request in requests:
        finished, reports = serve(engine_of(target, drafter, "fixed:3"), [request])
        tokens = finished[request.id].sequence.tokens
        text = Text("self", request.tokens, tokens[len(request.tokens) :], 30)
        recorded = Recorder(target, drafter, Sampling(0.0), seed=0).record(text)
        at = 0
        for report in (each for each in reports if each.slots is not None):
            offered = int(report.slots.scheduled[0])
            assert int(report.slots.accepted[0]) == min(int(recorded.accepted[at]), offered)
            here = report.slots.features["max_log_odds"][0, :offered]
            there = recorded.features[at, :offered, drafter.features.index("max_log_odds")]
            torch.testing.assert_close(
                torch.tensor(here).float(), torch.tensor(there).float(), atol=1e-2, rtol=1e-3
            )
            at += int(report.slots.accepted[0]) + 1
        assert at == len(text.output) - 1


def test_the_folder_is_what_vllm_loads(tmp_path):
    _, head, _, vocabulary = made(tmp_path)
    config, tensors = json.loads((head / "config.json").read_text()), load_file(head / "model.safetensors")
    assert config["architectures"] == ["LlamaForCausalLMEagle3"] and config["draft_vocab_size"] == len(
        vocabulary
    )
    assert config["eagle_aux_hidden_state_layer_ids"] == list(LAYERS)
    layer = {f"midlayer.{part}_layernorm.weight" for part in ("input", "post_attention")}
    layer |= {f"midlayer.self_attn.{name}_proj.weight" for name in "qkvo"}
    layer |= {f"midlayer.mlp.{name}_proj.weight" for name in ("gate", "up", "down")}
    others = {"fc.weight", "norm.weight", "lm_head.weight", "midlayer.hidden_norm.weight", "d2t", "t2d"}
    assert set(tensors) == layer | others
    assert torch.equal(torch.arange(len(vocabulary)) + tensors["d2t"], vocabulary)
    assert torch.equal(tensors["t2d"].nonzero()[:, 0], vocabulary)
    assert kind_of(head).name == "eagle3"


def test_a_head_that_cannot_be_served_is_one_sentence(tmp_path):
    folder, head, _, _ = made(tmp_path)
    target = Target(folder, torch.float32)
    plain, tensors = json.loads((head / "config.json").read_text()), load_file(head / "model.safetensors")
    wrong = {
        "hidden_size": (64, "made for a target of hidden size 64"),
        "norm_before_residual": (True, "norm_before_residual = true, which this engine"),
        "draft_vocab_size": (0, "draft_vocab_size as 0"),
        "num_key_value_heads": (3, "4 heads of size 8 that share 3 keys"),
        "rope_theta": ("big", "rope_theta"),
        "eagle_aux_hidden_state_layer_ids": ([1, 99], "rising numbers from 0 to 3"),
    }
    for name, (value, words) in wrong.items():
        (head / "config.json").write_text(json.dumps(plain | {name: value}))
        with pytest.raises(CheckpointError, match=words):
            Eagle3Drafter(head, target, 5, K)
    (head / "config.json").write_text(json.dumps(plain))
    for name, value, words in (
        ("d2t", torch.full((24,), 60), "d2t names tokens that the target lacks"),
        ("fc.weight", tensors["fc.weight"] * float("nan"), "no numbers"),
        ("more", torch.zeros(2), "nobody reads: more"),
    ):
        save_file(tensors | {name: value}, head / "model.safetensors")
        with pytest.raises(CheckpointError, match=words):
            Eagle3Drafter(head, target, 5, K)


def test_training_learns_and_goes_on_where_it_was(tmp_path):
    folder, _, _, vocabulary = made(tmp_path)
    target, c = Target(folder, torch.float32, length=640), read_config(folder)
    torch.manual_seed(0)
    stream = (Conversation([3, 5, i % 60], 1.0, "self", 3, 40) for i in range(60))
    with torch.inference_mode():
        writer = ShardWriter(tmp_path / "data")
        generate(target, stream, [], 63, writer, 1200, 8, key_layers=(0,), state_layers=LAYERS)
    found = Recordings([tmp_path / "data"], c.hidden, c.kv_heads, c.head_dim, (0,))
    weights = read_weights(folder, torch.float32, CPU)

    def trainer(updates):
        torch.manual_seed(2)
        fresh = Eagle3Network(c, LAYERS, len(vocabulary))
        fresh.start_from(weights, vocabulary)
        schedule = Schedule(updates=updates, conversations=8, anchors=24, K=3, warm_up=5)
        return Trainer(fresh, found, weights, vocabulary, schedule, tmp_path / "training")

    work, lines = trainer(40), []
    before = sum(work.evaluate()["acceptance"])
    work.run(lines.append, save_every=20)
    assert sum(work.evaluate()["acceptance"]) > before + 0.1
    again = trainer(44)
    assert again.load() and again.update == 40
    for name, value in again.network.state_dict().items():
        assert torch.equal(value, work.network.state_dict()[name]), name
    again.run(lines.append, save_every=20)
    assert again.update == 44 and any("held out" in line for line in lines)
