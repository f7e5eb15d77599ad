"""A missing, damaged or foreign checkpoint is one clear sentence, before anything else starts."""

import json
import re

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import LLAMA, SHAPE, write_block_drafter, write_llama

from avlab.config import RunConfig
from avlab.engine.build import build, choose_drafter
from avlab.engine.checkpoint import weights_hash
from avlab.engine.checkpoint_files import CheckpointError
from avlab.engine.drafters.block import BlockDrafter
from avlab.engine.drafters.llama import LlamaDrafter
from avlab.engine.target import Target
from avlab.workers.building import build_settings


def one_sentence(error) -> str:
    """The message, if it is one line that ends like a sentence and holds no Python."""
    text = str(error.value)
    assert "\n" not in text and text.endswith((".", ")")) and "Traceback" not in text
    return text


@pytest.fixture
def target(tmp_path):
    return write_llama(tmp_path / "target")


def change_config(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in config.items() if v != "gone"}))


def change_weights(folder, change, name="model.safetensors"):
    tensors = load_file(folder / name)
    change(tensors)
    save_file(tensors, folder / name)


def set_tensor(name, *shape):
    return lambda folder: change_weights(folder, lambda t: t.__setitem__(name, torch.zeros(*shape)))


LLAMA3 = {"rope_type": "llama3", "factor": 8.0}
BAD_TARGETS = {
    "no folder": (lambda f: [p.unlink() for p in f.iterdir()], "config.json does not exist.*avlab fetch"),
    "no config": (lambda f: (f / "config.json").unlink(), "config.json does not exist"),
    "config is not JSON": (lambda f: (f / "config.json").write_text("{"), "cannot be read as JSON"),
    "config is not text": (
        lambda f: (f / "config.json").write_bytes(b"\xff\xfe\0"),
        "cannot be read as JSON",
    ),
    "config is a list": (lambda f: (f / "config.json").write_text("[1]"), "does not hold a JSON object"),
    "another architecture": (lambda f: change_config(f, model_type="qwen2"), "'qwen2'.*serves 'llama'"),
    "no architecture": (lambda f: change_config(f, model_type="gone"), "unknown type.*serves 'llama'"),
    "another activation": (lambda f: change_config(f, hidden_act="gelu"), 'activation "gelu"'),
    "unknown rope": (lambda f: change_config(f, rope_scaling={"rope_type": "yarn", "factor": 2.0}), '"yarn"'),
    "rope is not an object": (lambda f: change_config(f, rope_scaling="llama3"), "config.json"),
    "rope lacks a number": (lambda f: change_config(f, rope_scaling=LLAMA3), "lacks .*freq_factor"),
    "linear rope lacks its factor": (
        lambda f: change_config(f, rope_scaling={"rope_type": "linear"}),
        "lacks 'factor'",
    ),
    "rope is a word": (lambda f: change_config(f, rope_theta="far"), "not a number"),
    "a size is missing": (lambda f: change_config(f, vocab_size="gone"), "lacks 'vocab_size'"),
    "a size is a word": (lambda f: change_config(f, hidden_size="big"), "not a number"),
    "a size is null": (lambda f: change_config(f, num_hidden_layers=None), "not a number"),
    "no heads": (lambda f: change_config(f, num_attention_heads=0), "num_attention_heads"),
    "negative layers": (lambda f: change_config(f, num_hidden_layers=-1), "num_hidden_layers"),
    "heads that cannot share": (lambda f: change_config(f, num_key_value_heads=3), "4 heads.*3"),
    "odd heads": (lambda f: change_config(f, head_dim=7), "head_dim|heads"),
    "end token is a word": (lambda f: change_config(f, eos_token_id=["stop"]), "not a number"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "model.safetensors does not exist"),
    "no bytes": (lambda f: (f / "model.safetensors").write_bytes(b""), "truncated or not a safetensors"),
    "cut short": (
        lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-100]),
        "truncated or not a safetensors",
    ),
    "not safetensors": (lambda f: (f / "model.safetensors").write_bytes(b"PK" * 500), "truncated or not"),
    "a shard is missing": (
        lambda f: (f / "model.safetensors.index.json").write_text(
            '{"weight_map": {"a": "model-2.safetensors"}}'
        ),
        "model-2.safetensors does not exist",
    ),
    "an index of nothing": (
        lambda f: (f / "model.safetensors.index.json").write_text('{"weight_map": {}}'),
        "names no files|has no tensor",
    ),
    "a foreign index": (
        lambda f: (f / "model.safetensors.index.json").write_text('{"weight_map": ["a"]}'),
        "names no files",
    ),
    "a tensor is missing": (
        lambda f: change_weights(f, lambda t: t.pop("model.layers.2.mlp.up_proj.weight")),
        "no tensor 'model.layers.2.mlp.up_proj.weight'",
    ),
    "untied head is missing": (
        lambda f: change_config(f, tie_word_embeddings=False),
        "no tensor 'lm_head.weight'",
    ),
    "another vocabulary": (lambda f: change_config(f, vocab_size=65), r"\(64, 32\).*\(65, 32\)"),
    "another width": (
        lambda f: change_config(f, intermediate_size=47),
        "mlp.gate_proj.*do not belong together",
    ),
    "other heads": (lambda f: change_config(f, num_key_value_heads=1), "k_proj.*do not belong together"),
    "a norm of another size": (set_tensor("model.norm.weight", 31), "model.norm.*do not belong together"),
    "a bias that the configuration does not ask for": (
        set_tensor("model.layers.0.mlp.down_proj.bias", 32),
        "nobody reads: model.layers.0.mlp.down_proj.bias",
    ),
    "a flat matrix": (
        set_tensor("model.layers.1.self_attn.o_proj.weight", 32),
        "o_proj.*do not belong together",
    ),
}


@pytest.mark.parametrize("name", BAD_TARGETS)
def test_a_target_that_cannot_be_served(target, name):
    harm, says = BAD_TARGETS[name]
    harm(target)
    with pytest.raises(CheckpointError) as error:
        Target(target, torch.float32)
    text = one_sentence(error)
    assert re.search(says, text), text
    assert str(target) in text


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(CheckpointError, match="does not exist"):
        Target(tmp_path / "nowhere", torch.float32)


def test_weights_in_several_files_are_one_model(target, tmp_path):
    whole = Target(target, torch.float32)
    tensors = load_file(target / "model.safetensors")
    names = sorted(tensors)
    files = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for file, held in files.items():
        save_file({n: tensors[n] for n in held}, target / file)
    index = {"weight_map": {n: file for file, held in files.items() for n in held}}
    (target / "model.safetensors.index.json").write_text(json.dumps(index))
    (target / "model.safetensors").unlink()
    assert torch.equal(Target(target, torch.float32).embedding, whole.embedding)


def test_the_hash_follows_the_weights(target):
    before = weights_hash(target)
    assert re.fullmatch("[0-9a-f]{16}", before) and before == weights_hash(target)
    change_weights(target, lambda t: t["model.norm.weight"].add_(1e-3))
    assert weights_hash(target) != before


def change_card(folder, **changes):
    path = folder / "drafter.json"
    card = json.loads(path.read_text())
    shape = card["shape"] | changes.pop("shape", {})
    path.write_text(json.dumps(card | {"shape": shape} | changes))


def change_tensors(change):
    return lambda folder: change_weights(folder, change, "drafter.safetensors")


BAD_DRAFTERS = {
    "no card": (lambda f: (f / "drafter.json").unlink(), "drafter.json does not exist"),
    "card is not JSON": (lambda f: (f / "drafter.json").write_text("no"), "cannot be read as JSON"),
    "a foreign card": (lambda f: (f / "drafter.json").write_text("{}"), "not a drafter's description"),
    "a card without a shape": (lambda f: change_card(f, shape=None) or None, "not a drafter's description"),
    "no weights": (lambda f: (f / "drafter.safetensors").unlink(), "drafter.safetensors does not exist"),
    "cut short": (
        lambda f: (f / "drafter.safetensors").write_bytes((f / "drafter.safetensors").read_bytes()[:-9]),
        "truncated or not a safetensors",
    ),
    "another vocabulary": (
        lambda f: change_card(f, target_vocabulary=65),
        "65.*the drafter that belongs to it",
    ),
    "another hidden size": (lambda f: change_card(f, hidden=64), "hidden size 64"),
    "too few positions": (lambda f: change_card(f, shape={"K": 3}), "at most 3 drafts, 4 were asked for"),
    "layers the target lacks": (lambda f: change_card(f, shape={"key_layers": [1, 2, 9]}), "layer 9"),
    "states the target lacks": (lambda f: change_card(f, shape={"state_layers": [1, 4]}), "layer 4"),
    "a layer too many": (lambda f: change_card(f, shape={"key_layers": [0, 1, 2, 3]}), "no tensor 'layers.3"),
    "no tokens": (change_tensors(lambda t: t.pop("vocabulary")), "no tensor 'vocabulary'"),
    "tokens the target lacks": (change_tensors(lambda t: t["vocabulary"].add_(40)), "vocabulary"),
    "a tensor is missing": (
        change_tensors(lambda t: t.pop("markov_out.weight")),
        "no tensor 'markov_out.weight'",
    ),
    "a scale is missing": (change_tensors(lambda t: t.pop("markov_out.weight.scale")), "drafter.safetensors"),
    "other heads": (
        change_tensors(lambda t: t.__setitem__("layers.0.qkv.weight", torch.zeros(80, 32))),
        "layers.0.qkv.weight.*belong",
    ),
    "another rank": (
        change_tensors(lambda t: t.__setitem__("markov_carry.weight", torch.zeros(9, 8))),
        "markov_carry.weight.*belong",
    ),
}


@pytest.mark.parametrize("name", BAD_DRAFTERS)
def test_a_block_drafter_that_cannot_be_served(target, tmp_path, name):
    folder = write_block_drafter(tmp_path / "drafter", target)
    harm, says = BAD_DRAFTERS[name]
    if name == "a card without a shape":
        (folder / "drafter.json").write_text('{"hidden": 32, "target_vocabulary": 64, "shape": null}')
    else:
        harm(folder)
    with pytest.raises(CheckpointError) as error:
        BlockDrafter(folder, Target(target, torch.float32), SHAPE.K)
    text = one_sentence(error)
    assert re.search(says, text), text
    assert str(folder) in text


def test_a_draft_model_of_another_vocabulary(target, tmp_path):
    small = write_llama(tmp_path / "small", vocab_size=48)
    with pytest.raises(
        CheckpointError, match=r"48 tokens.*64: a draft model must share the target's tokenizer"
    ):
        LlamaDrafter(small, Target(target, torch.float32), 4, 3)


def test_a_draft_model_of_a_shorter_context(target, tmp_path):
    small = write_llama(tmp_path / "small", max_position_embeddings=100)
    with pytest.raises(CheckpointError, match=r"100 positions.*lower --max-model-len to 100"):
        LlamaDrafter(small, Target(target, torch.float32), 4, 3)
    LlamaDrafter(small, Target(target, torch.float32, length=100), 4, 3)


def choose(target, **settings):
    chosen, why_none = choose_drafter(RunConfig.make(target=str(target), **settings).drafter, target)
    return (chosen.kind.name, chosen.folder, why_none) if chosen else (None, None, why_none)


def test_the_drafter_is_chosen_by_what_its_folder_holds(target, tmp_path):
    block = write_block_drafter(tmp_path / "block", target)
    llama = write_llama(tmp_path / "llama", seed=2)
    (tmp_path / "empty").mkdir()
    assert choose(target, drafter=str(block)) == ("block", block, "")
    assert choose(target, drafter=str(llama)) == ("llama", llama, "")
    assert choose(target, drafter="none", policy="none") == (None, None, "")
    for folder in (tmp_path / "empty", tmp_path / "nowhere"):
        with pytest.raises(
            CheckpointError,
            match=r"neither drafter.json nor config.json: --drafter takes .* default, ngram, suffix, or none",
        ):
            choose(target, drafter=str(folder))


def test_the_shipped_drafter_is_left_out_where_it_does_not_fit(target, tmp_path, monkeypatch):
    other = write_llama(tmp_path / "other", hidden_size=64)
    shipped = write_block_drafter(tmp_path / "shipped", other)
    monkeypatch.setattr("avlab.engine.build.SHIPPED_DRAFTER", shipped)
    kind, folder, note = choose(target)
    assert (kind, folder) == (None, None) and note == "the shipped drafter does not fit target"
    assert choose(other) == ("block", shipped, "")


def test_a_context_too_short_for_the_drafts_is_said_at_once(target, tmp_path):
    folder = write_block_drafter(tmp_path / "drafter", target)
    change_config(target, max_position_embeddings=5)
    (target / "tokenizer.json").write_text("{}")
    config = RunConfig.make(target=str(target), drafter=str(folder), K=4, max_model_len=16, dtype="float32")
    with pytest.raises(CheckpointError, match=r"5 positions.*4 drafts") as error:
        monkeypatched_build(config)
    one_sentence(error)


def monkeypatched_build(config):
    """build() with a stand-in for the tokenizer, which these folders do not have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("avlab.engine.build.Text", lambda folder: None)
        return build(build_settings(config))


assert LLAMA["num_attention_heads"] == 4  # what "heads that cannot share" says
