"""What of a checkpoint is not understood is refused by name, or named; nothing of it is passed over in silence."""

import json
import re

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import write_llama

from avlab.engine.checkpoint_files import CheckpointError
from avlab.engine.model_config import read_config, unknown_keys
from avlab.engine.target import Target

Q, K, V, O = (f"model.layers.0.self_attn.{each}_proj" for each in "qkvo")
UP = "model.layers.1.mlp.up_proj"


@pytest.fixture
def folder(tmp_path):
    return write_llama(tmp_path / "target")


def configure(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def store(folder, **tensors):
    """The folder's tensors with these in addition, or in place of those of the same name; None removes one."""
    path = folder / "model.safetensors"
    found = load_file(path) | {name: tensor for name, tensor in tensors.items() if tensor is not None}
    save_file({name: found[name] for name in found if tensors.get(name, 0) is not None}, path)


def refused(folder, *, text=False) -> str:
    with pytest.raises(CheckpointError) as caught:
        Target(folder, torch.float32)
    said = str(caught.value)
    assert "\n" not in said and said.endswith((".", ")")) and len(said) < 500, said
    assert str(folder) in said
    return said


# ---- config.json -----------------------------------------------------------------------------------------------

KEYS = {
    "sliding_window": 256,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "partial_rotary_factor": 0.5,
    "rotary_pct": 0.25,
    "rope_interleaved": True,
    "logit_scale": 0.0625,
    "logits_scaling": 8.0,
    "embedding_multiplier": 12.0,
    "residual_multiplier": 0.22,
    "attention_multiplier": 1.0,
    "query_pre_attn_scalar": 256,
    "scale_emb": 12,
    "scale_depth": 1.4,
    "dim_model_base": 256,
    "clip_qkv": 8.0,
    "use_qk_norm": True,
    "qkv_bias": True,
    "bias": True,
    "alibi": True,
    "parallel_attn": True,
    "num_local_experts": 8,
    "no_rope_layers": [1, 0, 1, 1],
    "layer_types": ["sliding_attention", "full_attention"],
    "attention_sink_size": 4,
    "num_nextn_predict_layers": 1,
    "mup_enabled": True,
    "pruned_heads": {"0": [1]},
    "is_encoder_decoder": True,
    "my_gate_scale": 0.5,
}


@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_changes_the_arithmetic_is_refused_by_name(folder, key):
    configure(folder, **{key: KEYS[key]})
    assert re.search(rf"asks for what the reference engine does not compute: {key} \(", refused(folder))


@pytest.mark.parametrize("value", [None, False, [], {}, ""])
def test_a_key_that_says_there_is_nothing_of_the_kind_does_no_harm(folder, value):
    configure(folder, **dict.fromkeys(KEYS, value))
    Target(folder, torch.float32)


def test_neutral_numbers_do_no_harm(folder):
    configure(
        folder, partial_rotary_factor=1.0, logit_scale=1, embedding_multiplier=1.0, num_local_experts=0,
        layer_types=["full_attention"] * 4, sliding_window=4096, use_sliding_window=False, max_window_layers=28,
        quantization_config=None, attention_dropout=0.1, hidden_dropout=0.1, pretraining_tp=2, torch_dtype="float16",
    )  # fmt: skip
    Target(folder, torch.float32)
    assert unknown_keys(folder) == []


def test_a_key_that_nobody_knows_is_named(folder):
    configure(folder, wandb_run="x1", dataset={"name": "mine"}, tuned=True)
    Target(folder, torch.float32)
    assert unknown_keys(folder) == ["wandb_run", "dataset", "tuned"]


QUANTISED = {
    "float8": {"quant_method": "fp8", "activation_scheme": "dynamic"},
    "GPTQ": {"quant_method": "gptq", "bits": 4},
    "AWQ": {"quant_method": "awq"},
    "bitsandbytes": {"quant_method": "bitsandbytes", "load_in_4bit": True},
    "compressed tensors": {"quant_method": "compressed-tensors"},
    "no method": {"bits": 4},
    "a word": "int8",
}


@pytest.mark.parametrize("name", QUANTISED)
@pytest.mark.parametrize("key", ["quantization_config", "compression_config"])
def test_quantised_weights_are_refused_by_the_configuration(folder, key, name):
    configure(folder, **{key: QUANTISED[name]})
    said = refused(folder)
    assert f"has a {key}: the weights are quantised" in said and "in bfloat16, float16 or float32" in said


@pytest.mark.parametrize(
    "file", ["quantize_config.json", "quant_config.json", "hf_quant_config.json", "adapter_config.json"]
)
def test_what_lies_beside_the_configuration_is_seen(folder, file):
    (folder / file).write_text("{}")
    assert file in refused(folder)


MODELS = {
    "a draft head": ({"architectures": ["LlamaForCausalLMEagle3"]}, "LlamaForCausalLMEagle3"),
    "a classifier": ({"architectures": ["LlamaForSequenceClassification"]}, "SequenceClassification"),
    "an architecture that is no list": ({"architectures": "LlamaForCausalLM2"}, "LlamaForCausalLM2"),
    "code of its own": ({"auto_map": {"AutoModelForCausalLM": "modeling_mine.Mine"}}, "code of its own.*Mine"),
    "another activation": ({"hidden_act": "gelu_pytorch_tanh"}, "gelu_pytorch_tanh"),
    "no activation": ({"hidden_act": None}, "activation null"),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_is_no_plain_llama_is_refused(folder, name):
    changes, says = MODELS[name]
    configure(folder, **changes)
    assert re.search(says, refused(folder))


ROPE = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
ROTARY = {
    "yarn": ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rotary scaling .yarn"),
    "longrope": ({"rope_scaling": {"type": "longrope", "short_factor": [1.0]}}, "longrope"),
    "dynamic": ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "dynamic"),
    "a kind that is no word": ({"rope_scaling": {"rope_type": 3}}, "rotary scaling 3"),
    "a list": ({"rope_scaling": ["linear"]}, "rotary scaling"),
    "two kinds": ({"rope_scaling": {"rope_type": "linear", "type": "llama3", "factor": 2.0}}, "two values"),
    "two bases": ({"rope_theta": 10000.0, "rope_parameters": {"rope_theta": 5e5}}, "two values.*rope_theta"),
    "two places": (
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "rope_parameters": {"rope_type": "default"}},
        "two values",
    ),
    "a factor that no default has": ({"rope_scaling": {"rope_type": "default", "factor": 4.0}}, "factor of 4.0"),
    "a part of the head": (
        {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5, "rope_theta": 1e4}},
        "partial_rotary_factor of 0.5",
    ),
    "an attention factor": (
        {"rope_scaling": {"rope_type": "llama3", **ROPE, "attention_factor": 1.2}},
        "attention_factor of 1.2",
    ),
    "by kinds of layers": ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "full_attention"),
    "no distance of its bounds": (
        {"rope_scaling": {"rope_type": "llama3", **ROPE, "high_freq_factor": 1.0}},
        "not above its low",
    ),
    "an infinite factor": ({"rope_scaling": {"rope_type": "linear", "factor": float("inf")}}, "factor.*Infinity"),
    "a negative factor": ({"rope_scaling": {"rope_type": "linear", "factor": -2}}, "factor"),
    "a factor of true": ({"rope_scaling": {"rope_type": "linear", "factor": True}}, "factor"),
}  # fmt: skip


@pytest.mark.parametrize("name", ROTARY)
def test_a_rotary_embedding_that_is_not_served_is_refused(folder, name):
    changes, says = ROTARY[name]
    configure(folder, **changes)
    assert re.search(says, refused(folder))


def test_rotary_settings_that_agree_may_stand_twice(folder):
    rope = {"rope_type": "llama3", **ROPE, "rope_theta": 500.0}
    configure(folder, rope_theta=500.0, rope_scaling=rope | {"type": "llama3"}, rope_parameters=rope)
    assert dict(read_config(folder).rope_scaling) == ROPE


@pytest.mark.parametrize(
    "name",
    ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
     "num_key_value_heads", "head_dim", "max_position_embeddings"],
)  # fmt: skip
@pytest.mark.parametrize(
    "value", [float("inf"), float("nan"), -1, 0, 1.5, 10**30, 10**8, True, "64", [64], {"a": 1}]
)
def test_a_size_that_is_none_is_one_sentence(folder, name, value):
    configure(folder, **{name: value})
    assert re.search(rf"gives {name} as .*: it must be", refused(folder))


@pytest.mark.parametrize("name", ["rms_norm_eps", "rope_theta"])
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), -1.0, 0, True, "1e-5", [1]])
def test_a_number_that_is_none_is_one_sentence(folder, name, value):
    configure(folder, **{name: value})
    assert re.search(rf"gives {name} as .*: it must be", refused(folder))


@pytest.mark.parametrize("name", ["tie_word_embeddings", "attention_bias", "mlp_bias"])
@pytest.mark.parametrize("value", [1, "true", [True]])
def test_a_flag_that_is_none_is_one_sentence(folder, name, value):
    configure(folder, **{name: value})
    assert f"gives {name} as" in refused(folder)


@pytest.mark.parametrize(
    "text", ["[" * 200_000, '{"a": ' * 200_000, '{"a": 1' + "0" * 5000 + "}", '{"\\ud800": 1']
)
def test_json_that_cannot_be_read_is_one_sentence(folder, text):
    (folder / "config.json").write_text(text)
    assert "cannot be read as JSON" in refused(folder)


# ---- tensors ---------------------------------------------------------------------------------------------------

GARBAGE = {
    "float8 with a scale": ({f"{Q}.weight": torch.zeros(32, 32).to(torch.float8_e4m3fn)}, "q_proj.weight is F8"),
    "int8": ({f"{UP}.weight": torch.zeros(48, 32, dtype=torch.int8)}, "up_proj.weight is I8"),
    "float8's scale alone": ({f"{Q}.weight_scale": torch.ones(1)}, "q_proj.weight_scale"),
    "its inverse": ({f"{Q}.weight_scale_inv": torch.ones(1)}, "weight_scale_inv"),
    "GPTQ": ({f"{Q}.qweight": torch.zeros(4, 32, dtype=torch.int32), f"{Q}.weight": None}, "GPTQ or AWQ"),
    "bitsandbytes": ({f"{Q}.weight.absmax": torch.ones(16)}, "bitsandbytes"),
    "bitsandbytes, 8 bits": ({f"{Q}.SCB": torch.ones(16)}, "bitsandbytes"),
    "compressed tensors": ({f"{Q}.weight_packed": torch.zeros(32, 4, dtype=torch.int32)}, "weight_packed"),
    "blocks of MXFP4": ({"model.layers.0.mlp.gate_proj_blocks": torch.zeros(4, dtype=torch.uint8)}, "MXFP4"),
    "a query's bias alone": ({f"{Q}.bias": torch.ones(32)}, r"nobody reads: .*q_proj.bias"),
    "a tensor too many": ({"model.extra.weight": torch.ones(3)}, "nobody reads: model.extra.weight"),
    "a layer too many": ({"model.layers.4.mlp.up_proj.weight": torch.ones(48, 32)}, "nobody reads: model.layers.4"),
    "a norm of queries": ({"model.layers.0.self_attn.q_norm.weight": torch.ones(8)}, "nobody reads.*q_norm"),
    "an adapter's": ({f"{Q}.lora_A.weight": torch.ones(2, 32)}, "nobody reads.*lora_A"),
    "another head": ({"lm_head.weight": torch.ones(64, 32)}, "tie_word_embeddings"),
    "no number": ({f"{Q}.weight": torch.full((32, 32), float("nan"))}, "q_proj.weight holds infinities"),
    "infinity": ({"model.norm.weight": torch.full((32,), float("inf"))}, "model.norm.weight holds infinities"),
}  # fmt: skip


@pytest.mark.parametrize("name", GARBAGE)
def test_a_tensor_that_is_not_understood_is_refused_by_name(folder, name):
    tensors, says = GARBAGE[name]
    store(folder, **tensors)
    assert re.search(says, refused(folder))


def biases(**which):
    sizes = {"q": 32, "k": 16, "v": 16, "o": 32}
    return {
        f"model.layers.{layer}.self_attn.{each}_proj.bias": torch.ones(sizes[each])
        for layer in range(4)
        for each in which["of"]
    }


@pytest.mark.parametrize("of", ["q", "qk", "qkv", "o"])
def test_biases_of_some_projections_are_refused_whatever_the_configuration_says(folder, of):
    store(folder, **biases(of=of))
    assert "nobody reads" in refused(folder)
    configure(folder, attention_bias=True)
    assert re.search(r"no tensor '.*self_attn.[qkvo]_proj.bias'", refused(folder))


def test_biases_of_all_projections_are_read_where_the_configuration_says_so(folder):
    store(folder, **biases(of="qkvo"))
    assert "nobody reads" in refused(folder)
    configure(folder, attention_bias=True)
    assert Target(folder, torch.float32).layers[0].qkv.bias is not None


def test_a_head_that_equals_the_embedding_and_old_frequencies_do_no_harm(folder):
    embedding = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    frequencies = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    store(folder, **{"lm_head.weight": embedding.clone()}, **frequencies)
    Target(folder, torch.float32)


# ---- files -----------------------------------------------------------------------------------------------------


def index(folder, **files):
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))


def test_an_index_that_cannot_be_followed(folder):
    index(folder, **{"model.norm.weight": "../elsewhere.safetensors"})
    assert "outside its folder" in refused(folder)
    index(folder, **{"model.norm.weight": "/etc/passwd"})
    assert "outside its folder" in refused(folder)
    index(folder, **{"model.norm.weight": 3})
    assert "names no files" in refused(folder)
    index(folder, **{"model.norm.weight": "model-00001-of-00002.safetensors"})
    assert "model-00001-of-00002.safetensors does not exist" in refused(folder)
    save_file({"model.norm.weight": torch.ones(32)}, folder / "model-00001-of-00002.safetensors")
    assert "remove the one that is not meant" in refused(folder)


def test_a_tensor_in_two_files(folder):
    save_file({"model.norm.weight": torch.ones(32)}, folder / "more.safetensors")
    index(
        folder, **{"model.norm.weight": "more.safetensors", "model.embed_tokens.weight": "model.safetensors"}
    )
    assert "model.norm.weight in two files" in refused(folder)


OTHER = {
    "pytorch_model.bin": "PyTorch's format alone",
    "pytorch_model-00001-of-00002.bin": "PyTorch's format alone",
    "model.pt": "PyTorch's format alone",
    "consolidated.00.pth": "Meta's own format",
    "llama.Q4_K_M.gguf": "GGUF",
    "adapter_model.safetensors": "an adapter",
    "tf_model.h5": "TensorFlow",
    "flax_model.msgpack": "Flax",
    "model.onnx": "ONNX",
    "model-00001-of-00003.safetensors": "parts of weights, and no model.safetensors.index.json",
    "model.safetensors.incomplete": "was not finished",
}


@pytest.mark.parametrize("name", OTHER)
@pytest.mark.parametrize("configured", [True, False])
def test_a_folder_with_other_weights_is_told_what_it_holds(folder, name, configured):
    (folder / "model.safetensors").rename(folder / name)
    if not configured:
        (folder / "config.json").unlink()
    said = refused(folder)
    assert OTHER[name] in said and (configured or "config.json does not exist" in said)


def test_a_pointer_of_git_lfs(folder):
    (folder / "model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    )
    assert "git lfs pull" in refused(folder)


def test_a_place_in_a_hubs_cache_names_the_snapshot_to_give(folder, tmp_path):
    model = tmp_path / "hub" / "models--some--llama"
    snapshot = model / "snapshots" / "0123abc"
    snapshot.parent.mkdir(parents=True)
    folder.rename(snapshot)
    (model / "blobs").mkdir()
    (model / "refs").mkdir()
    for given in (model, tmp_path / "hub", tmp_path, model / "snapshots"):
        said = refused(given)
        assert str(snapshot) in said or given == tmp_path, said
    (snapshot / "config.json").unlink()
    assert "without a whole snapshot" in refused(model)
