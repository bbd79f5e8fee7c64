"""Reading `config.json` files: traps of real files, errors, and mutated files that must never escape as a traceback."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.arch import Attention, DenseMlp, LatentAttention, MoeMlp, Quantisation
from costmodel.config_fields import Fields
from costmodel.config_json import FAMILIES, read_config, read_fields
from costmodel.counts import n_params, weight_bytes
from costmodel.models import model, model_names
from hwprofiles.errors import InputError, ProfileError

ROOT = Path(__file__).parents[2]
DATA = ROOT / "costmodel" / "data" / "models"
ORIGINALS = ROOT.parent / "shared" / "model_configs"


def raw(name: str) -> dict:
    [file] = DATA.glob(f"*--{name}.json")
    return json.loads(file.read_text(encoding="utf-8"))


def read(document: dict):
    return read_config(document, "test", "a test")


def changed(name: str, **keys):
    document = raw(name)
    inner = document.get("text_config", document)
    for key, value in keys.items():
        inner.pop(key, None)
        if value is not ...:
            inner[key] = value
    return document


def unused_keys(document: dict, fields: Fields) -> set[str]:
    left = set(document) - fields.used - {"_source"}
    for key, child in fields.children.items():
        left |= {f"{key}.{k}" for k in unused_keys(document[key], child)}
    return left


# --- bundled files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", model_names())
def test_bundled_files_hold_only_keys_the_reader_uses_and_a_source(name):
    document = raw(name.split("/")[1])
    fields = Fields(document, name)
    read_fields(fields, name, "")
    assert unused_keys(document, fields) == set()
    assert len(document["_source"]) > 20


@pytest.mark.skipif(not ORIGINALS.is_dir(), reason="the collected configuration files are not beside the repository")
@pytest.mark.parametrize("name", [n for n in model_names() if (ORIGINALS / f"{n.replace('/', '--')}.json").is_file()])
def test_a_whole_config_reads_as_the_bundled_cut(name):
    whole = model(str(ORIGINALS / f"{name.replace('/', '--')}.json"))
    assert replace(whole, name=name, source="") == replace(model(name), source="")


@pytest.mark.skipif(not ORIGINALS.is_dir(), reason="the collected configuration files are not beside the repository")
def test_every_collected_config_is_bundled():
    assert {f.stem.replace("--", "/", 1) for f in ORIGINALS.glob("*.json")} <= set(model_names())


# --- names and paths -------------------------------------------------------------------------------------------------


def test_full_and_short_names_in_any_case_are_the_same_object():
    assert model("qwen/qwen3.5-4b") is model("Qwen3.5-4B") is model("Qwen/Qwen3.5-4B")
    assert model("Qwen3.5-4B").name == "Qwen/Qwen3.5-4B"
    assert len(model_names()) >= 40


@pytest.mark.parametrize(
    ("wrong", "near"),
    [("Qwen3.5-5B", "Qwen3.5-"), ("Qwen/Qwen3.5-40B", "Qwen/Qwen3.5-"), ("lama-3.1-8b", "Llama-3.1-8B")],
)
def test_an_unknown_name_is_answered_with_the_nearest(wrong, near):
    with pytest.raises(InputError, match=f"unknown model '{wrong}'; did you mean '{near}"):
        model(wrong)


def test_an_empty_name_is_unknown():
    with pytest.raises(InputError, match="unknown model ''"):
        model("")


def test_a_file_and_a_folder_read_the_same(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(raw("Qwen3-8B")), encoding="utf-8")
    by_folder, by_file = model(str(tmp_path)), model(str(tmp_path / "config.json"))
    assert by_folder.layers == by_file.layers == model("Qwen3-8B").layers
    assert by_file.name == str(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b"{", "is not valid JSON"),
        (b"[1]", "expected a JSON object, got list"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b'{"hidden_size": NaN}', "NaN is not allowed"),
        (b'{"hidden_size": -Infinity}', "-Infinity is not allowed"),
        (b'{"model_type": "llama", "model_type": "llama"}', "'model_type' is given twice"),
        (b"[" * 200_000, "nested too deeply"),
        (b"{}", "'model_type' is missing"),
    ],
)
def test_a_file_that_is_no_config_says_so_once(tmp_path, content, message):
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(ProfileError, match=message) as caught:
        model(str(file))
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_and_folders_without_a_config(tmp_path):
    with pytest.raises(ProfileError, match="no such file"):
        model(str(tmp_path / "absent.json"))
    with pytest.raises(ProfileError, match=r"the folder holds no config\.json"):
        model(str(tmp_path))


# --- traps of real files ---------------------------------------------------------------------------------------------


def test_head_dim_is_not_hidden_over_heads():
    assert model("Qwen3-0.6B").layers[0].attention.d_head == 128  # 1024 / 16 would be 64
    assert read(changed("Llama-3.1-8B", head_dim=...)).layers[0].attention.d_head == 4096 // 32


def test_head_dim_that_cannot_be_derived_is_asked_for():
    with pytest.raises(ProfileError, match="key 'head_dim' is missing"):
        read(changed("GLM-4.5-Air", head_dim=...))  # 4096 / 96 is no integer


def test_the_three_names_of_the_expert_count():
    for name, n_experts in (("Qwen3-30B-A3B", 128), ("Mixtral-8x7B-v0.1", 8), ("DeepSeek-V3", 256)):
        mlp = model(name).layers[-1].mlp
        assert isinstance(mlp, MoeMlp)
        assert mlp.n_experts == n_experts
    with pytest.raises(ProfileError, match="key 'n_routed_experts' is missing"):
        read(changed("DeepSeek-V3", n_routed_experts=..., num_experts=256))


def test_a_sliding_window_without_its_switch_means_nothing():
    full = model("Qwen3-8B")
    assert read(changed("Qwen3-8B", sliding_window=4096, use_sliding_window=False)).layers == full.layers
    half = read(changed("Qwen3-8B", sliding_window=4096, use_sliding_window=True, max_window_layers=20))
    assert [layer.attention.window for layer in half.layers] == [None] * 20 + [4096] * 16
    switched = read(changed("Qwen3-8B", sliding_window=None, use_sliding_window=True, max_window_layers=0))
    assert switched.layers == full.layers


def test_mistral_slides_unless_its_window_is_null():
    assert model("Mistral-7B-v0.3").layers[0].attention.window is None
    assert read(changed("Mistral-7B-v0.3", sliding_window=...)).layers[0].attention.window == 4096
    assert read(changed("Mistral-7B-v0.3", sliding_window=1000)).layers[7].attention.window == 1000


@pytest.mark.parametrize(("name", "dense"), [("DeepSeek-V3", 3), ("Kimi-K2-Instruct", 1), ("GLM-4.5", 3), ("GLM-5", 3)])
def test_the_first_layers_are_dense(name, dense):
    kinds = [isinstance(layer.mlp, DenseMlp) for layer in model(name).layers]
    assert kinds == [True] * dense + [False] * (len(kinds) - dense)


def test_tied_embeddings_default_by_family():
    assert model("gemma-3-27b-it").tied_embeddings  # absent from the file
    assert not read(changed("Qwen3-8B", tie_word_embeddings=...)).tied_embeddings
    assert read(changed("Qwen3-8B", tie_word_embeddings=True)).tied_embeddings
    assert not model("Qwen3.5-27B").tied_embeddings  # said by the outer object only


def test_contradicting_tied_embeddings_are_an_error():
    document = raw("Qwen3.5-4B")
    document["tie_word_embeddings"] = False
    with pytest.raises(ProfileError, match="'tie_word_embeddings' differs"):
        read(document)


def test_gemma_files_leave_out_class_defaults():
    arch = model("gemma-3-4b-it")
    full = Attention(n_heads=8, n_kv_heads=4, d_head=256, qk_norm="head")
    sliding = replace(full, window=1024)
    assert [layer.attention for layer in arch.layers] == ([sliding] * 5 + [full]) * 5 + [sliding] * 4
    assert arch.vocab == 262_208
    assert all(layer.n_norms == 4 for layer in arch.layers)


def test_gpt_oss_alternates_sliding_first_with_or_without_layer_types():
    arch = model("gpt-oss-20b")
    assert [layer.attention.window for layer in arch.layers] == [128, None] * 12
    assert read(changed("gpt-oss-20b", layer_types=...)).layers == arch.layers
    attention = arch.layers[0].attention
    assert attention.sinks
    assert attention.qkv_bias
    assert attention.out_bias


def test_qwen3_5_pattern_from_interval_or_layer_types():
    arch = model("Qwen3.5-4B")
    assert read(changed("Qwen3.5-4B", layer_types=...)).layers == arch.layers
    assert [isinstance(layer.attention, Attention) for layer in arch.layers] == [False, False, False, True] * 8
    half = read(changed("Qwen3.5-4B", mamba_ssm_dtype="bfloat16"))
    assert half.layers[0].attention.state_bytes_each == 2


def test_latent_attention_ignores_head_dim_and_kv_heads():
    attention = model("GLM-5").layers[0].attention  # its file says head_dim 64
    assert attention == LatentAttention(
        n_heads=64,
        q_rank=2048,
        kv_rank=512,
        d_nope=192,
        d_rope=64,
        d_value=256,
        index_heads=32,
        index_d_head=128,
        index_topk=2048,
    )


def test_shared_indexers_drop_weights_and_cache():
    kinds = (["full"] * 3 + ["shared"] * 3) * 13
    shared = read(changed("GLM-5", indexer_types=kinds))
    assert [layer.attention.index_heads for layer in shared.layers] == ([32] * 3 + [0] * 3) * 13
    assert all(layer.attention.index_topk == 2048 for layer in shared.layers)
    per_layer = 2048 * 32 * 128 + 6144 * 128 + 6144 * 32 + 2 * 128
    assert n_params(model("GLM-5")) - n_params(shared) == 39 * per_layer
    with pytest.raises(ProfileError, match="'indexer_types' is missing"):
        read(changed("GLM-5", index_topk_freq=4))


def test_dense_layers_of_sparse_qwen():
    arch = read(changed("Qwen3-30B-A3B", mlp_only_layers=[0, 5], intermediate_size=6144))
    assert [i for i, layer in enumerate(arch.layers) if isinstance(layer.mlp, DenseMlp)] == [0, 5]
    stepped = read(changed("Qwen3-30B-A3B", decoder_sparse_step=2, intermediate_size=6144))
    assert [isinstance(layer.mlp, MoeMlp) for layer in stepped.layers] == [False, True] * 24


def test_qwen2_has_biases_on_q_k_v_only():
    document = changed("Qwen3-8B", head_dim=...)
    document["model_type"] = "qwen2"
    attention = read(document).layers[0].attention
    assert (attention.qkv_bias, attention.out_bias, attention.qk_norm) == (True, False, "none")


def test_first_llama_without_kv_heads_has_one_per_head():
    assert read(changed("Llama-3.1-8B", num_key_value_heads=...)).layers[0].attention.n_kv_heads == 32
    with pytest.raises(ProfileError, match="'num_key_value_heads' is missing"):
        read(changed("Qwen3-8B", num_key_value_heads=...))


# --- quantisation ----------------------------------------------------------------------------------------------------


def quantised(name: str, **quant):
    return read(changed(name, quantization_config=quant))


def test_quantisation_of_bundled_files():
    assert model("DeepSeek-V3").quantisation == Quantisation(weight_dtype="fp8")
    assert model("MiniMax-M2.5").quantisation == Quantisation(weight_dtype="fp8")
    assert model("gpt-oss-120b").quantisation == Quantisation(weight_dtype="mxfp4", experts_only=True)
    assert model("Qwen3-8B").quantisation is None


def test_long_lists_of_small_modules_change_nothing():
    small = [f"model.layers.{i}.{part}" for i in range(48) for part in ("mlp.gate", "input_layernorm")]
    arch = quantised("Qwen3-30B-A3B", quant_method="fp8", modules_to_not_convert=["lm_head", *small])
    assert arch.quantisation == Quantisation(weight_dtype="fp8")


@pytest.mark.parametrize(
    "patterns",
    [
        ["lm_head", "model.language_model.layers.*.self_attn*", "*.linear_attn*", "*.mlp.shared_expert.*"],
        ["re:.*self_attn.*", "re:.*linear_attn.*", "re:.*shared_expert.*"],
        ["self_attn", "linear_attn", "shared_expert"],
        [
            f"model.language_model.layers.{i}.{part}*"
            for i in range(60)
            for part in ("self_attn", "linear_attn", "mlp.shared_expert")
        ],
    ],
)
def test_experts_alone_in_every_dialect_of_exclusion(patterns):
    arch = quantised("Qwen3.5-397B-A17B", quant_method="modelopt", quant_algo="NVFP4", ignore=patterns)
    assert arch.quantisation == Quantisation(weight_dtype="nvfp4", experts_only=True)
    # The published NVFP4 checkpoint of this model keeps the same parts in 16 bit and is about 0.6 bytes a weight.
    assert weight_bytes(arch, "nvfp4") == pytest.approx(0.6 * n_params(arch), rel=0.01)


def test_quantisation_in_the_outer_object_of_a_nested_file():
    document = raw("Qwen3.5-4B")
    document["quantization_config"] = {"quant_method": "awq", "bits": 4, "group_size": 128}
    assert read(document).quantisation == Quantisation(weight_dtype="int4")


@pytest.mark.parametrize(
    ("quant", "message"),
    [
        ({"quant_method": "hqq"}, "'quant_method' has the unknown value 'hqq'"),
        ({}, "'quant_method' is missing"),
        ({"quant_method": "fp8", "weight_block_size": [1, 32]}, r"'weight_block_size' must be \[128, 128\]"),
        ({"quant_method": "gptq", "bits": 3}, "'bits' must be 4 or 8"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "'group_size' must be 128"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "unknown value 'MIXED_PRECISION'"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["model.layers.3.self_attn"]}, "keeps 1 of 48 modules"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["re:("]}, "broken regular expression"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["experts"]}, "keeps experts in 16 bit"),
    ],
)
def test_a_quantisation_without_known_bytes_is_refused(quant, message):
    with pytest.raises(ProfileError, match=message):
        quantised("Qwen3-30B-A3B", **quant)


# --- errors ----------------------------------------------------------------------------------------------------------


def test_unknown_family_lists_the_known_ones():
    with pytest.raises(ProfileError, match=r"'model_type' has the unknown value 'qwen9'.*known: .*qwen3_5_moe"):
        read({"model_type": "qwen9"})


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("Qwen3-8B", "hidden_size", ..., "'hidden_size' is missing"),
        ("Qwen3-8B", "hidden_size", 4096.0, "'hidden_size' must be an integer from 1"),
        ("Qwen3-8B", "hidden_size", True, "'hidden_size' must be an integer"),
        ("Qwen3-8B", "hidden_size", "4096", "'hidden_size' must be an integer"),
        ("Qwen3-8B", "hidden_size", -1, "'hidden_size' must be an integer"),
        ("Qwen3-8B", "vocab_size", 10**12, "'vocab_size' must be an integer from 1 to"),
        ("Qwen3-8B", "num_hidden_layers", 10**6, "'num_hidden_layers' must be an integer from 1 to 2000"),
        ("Qwen3-8B", "num_key_value_heads", 7, "'num_key_value_heads' must divide num_attention_heads 32, got 7"),
        ("Qwen3-8B", "tie_word_embeddings", "no", "'tie_word_embeddings' must be true or false"),
        ("Qwen3-30B-A3B", "num_experts_per_tok", 129, "'num_experts_per_tok' must be at most num_experts 128"),
        ("Qwen3.5-4B", "layer_types", ["full_attention"], "'layer_types' must have 32 entries"),
        ("Qwen3.5-4B", "layer_types", ["mamba"] * 32, "'layer_types' holds the unknown kind 'mamba'"),
        ("Qwen3.5-4B", "layer_types", "full", "'layer_types' must be a list of names"),
        ("Qwen3.5-4B", "linear_num_value_heads", 17, "'linear_num_value_heads' must be a multiple"),
        ("Qwen3.5-4B", "mamba_ssm_dtype", "float8", "'mamba_ssm_dtype' has the unknown value 'float8'"),
        ("gpt-oss-20b", "experts_per_token", 8, "'experts_per_token' differs"),
        ("DeepSeek-V3", "first_k_dense_replace", 62, "'first_k_dense_replace' must be an integer from 0 to 61"),
        ("DeepSeek-V3", "attention_bias", True, "'attention_bias' must be false"),
        ("DeepSeek-V3.2", "q_lora_rank", None, "'q_lora_rank' is missing"),
        ("MiniMax-M2.5", "attn_type_list", [0] * 62, "'attn_type_list' must be all 1"),
        ("MiniMax-M2.5", "shared_intermediate_size", 8, "'shared_intermediate_size' must be 0"),
    ],
)
def test_wrong_values_name_key_file_and_range(name, key, value, message):
    with pytest.raises(ProfileError, match=message) as caught:
        read(changed(name, **{key: value}))
    assert str(caught.value).startswith("model config test")


def test_a_nested_family_without_its_text_config():
    with pytest.raises(ProfileError, match="'text_config' is missing"):
        read({"model_type": "qwen3_5"})
    with pytest.raises(ProfileError, match="'text_config' must be an object"):
        read({"model_type": "qwen3_5", "text_config": [1]})


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=6,
)
SMALL = st.integers(min_value=-2, max_value=70)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_mutated_config_reads_or_is_refused_with_one_line(data):
    name = data.draw(st.sampled_from(model_names()))
    document = copy.deepcopy(raw(name.split("/")[1]))
    places = [document] + [v for v in document.values() if isinstance(v, dict)]
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(places))
        key = data.draw(st.sampled_from(sorted(place)))
        if data.draw(st.booleans()):
            place[key] = data.draw(JSON_VALUES | SMALL)
        else:
            place.pop(key)
        if not place:
            break
    try:
        arch, message = read(document), ""
    except ProfileError as error:
        arch, message = None, str(error)
    assert "\n" not in message
    if arch is not None:
        assert n_params(arch) > 0
        assert weight_bytes(arch, "fp8") > 0


@settings(max_examples=100, deadline=None)
@given(document=st.dictionaries(st.text(max_size=8), JSON_VALUES), family=st.sampled_from(sorted(FAMILIES)) | st.text())
def test_arbitrary_objects_are_refused(document, family):
    with pytest.raises(ProfileError):
        read({**document, "model_type": family})


@settings(max_examples=50, deadline=None)
@given(document=JSON_VALUES)
def test_anything_that_is_no_object_is_refused(document):
    with pytest.raises(ProfileError):
        read_config(document, "test", "a test")
