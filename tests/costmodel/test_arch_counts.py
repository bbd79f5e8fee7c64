"""Exact counts of every bundled model against published tensor counts and hand-checked formulas."""

from __future__ import annotations

import pytest

from costmodel.arch import Attention, LatentAttention, LinearAttention, MoeMlp
from costmodel.counts import (
    attention_flops_of,
    attention_flops_per_context_token,
    head_dtype,
    head_params,
    kv_bytes_per_token,
    kv_bytes_per_token_of,
    layer_groups,
    matmul_params_per_token,
    n_active_params,
    n_params,
    product_dtype,
    sliding_kv_cap_bytes,
    state_bytes_of,
    state_bytes_per_sequence,
    weight_bytes,
)
from costmodel.dtypes import BYTES_PER_WEIGHT, compute_dtype, kv_bytes_each, weight_bytes_each
from costmodel.facts import model_facts
from costmodel.models import model, model_names
from costmodel.products import (
    attention_products,
    expert_params,
    layer_params,
    layer_vector_params,
    mlp_params,
    mlp_products,
    products,
)
from hwprofiles.errors import InputError

# Model: total, active, matmul per decoded token, KV bytes per token (bf16), sliding KV cap, state bytes per sequence,
# attention FLOP per token per context token. 19 of the totals equal the tensor counts on the publishers' pages; the
# others follow from the same formulas.
GOLDEN = [
    ("SmolLM2-135M", 134_515_008, 134_515_008, 134_515_008, 23_040, 0, 0, 69_120),
    ("Qwen3-0.6B", 596_049_920, 596_049_920, 596_049_920, 114_688, 0, 0, 229_376),
    ("Qwen3-1.7B", 1_720_574_976, 1_720_574_976, 1_720_574_976, 114_688, 0, 0, 229_376),
    ("Qwen3-4B", 4_022_468_096, 4_022_468_096, 4_022_468_096, 147_456, 0, 0, 589_824),
    ("Qwen3-8B", 8_190_735_360, 8_190_735_360, 7_568_405_504, 147_456, 0, 0, 589_824),
    ("Qwen3-14B", 14_768_307_200, 14_768_307_200, 13_990_394_880, 163_840, 0, 0, 819_200),
    ("Qwen3-32B", 32_762_123_264, 32_762_123_264, 31_984_210_944, 262_144, 0, 0, 2_097_152),
    ("Qwen3-30B-A3B", 30_532_122_624, 3_353_032_704, 3_041_867_776, 98_304, 0, 0, 786_432),
    ("Qwen3-235B-A22B", 235_093_634_560, 22_190_763_520, 21_568_433_664, 192_512, 0, 0, 3_080_192),
    ("Qwen3.5-0.8B", 752_393_024, 752_393_024, 752_393_024, 12_288, 0, 19_537_920, 49_152),
    ("Qwen3.5-2B", 1_881_825_088, 1_881_825_088, 1_881_825_088, 12_288, 0, 19_537_920, 49_152),
    ("Qwen3.5-4B", 4_205_751_296, 4_205_751_296, 4_205_751_296, 32_768, 0, 51_511_296, 131_072),
    ("Qwen3.5-9B", 8_953_803_264, 8_953_803_264, 7_936_684_544, 32_768, 0, 51_511_296, 131_072),
    ("Qwen3.5-27B", 26_895_998_464, 26_895_998_464, 25_624_600_064, 65_536, 0, 153_944_064, 393_216),
    ("Qwen3.5-35B-A3B", 34_660_610_688, 3_454_988_928, 2_946_429_568, 20_480, 0, 64_389_120, 163_840),
    ("Qwen3.5-122B-A10B", 122_111_526_912, 9_771_288_576, 9_008_449_536, 24_576, 0, 153_649_152, 393_216),
    ("Qwen3.5-397B-A17B", 396_346_350_336, 17_349_040_896, 16_331_922_176, 30_720, 0, 192_061_440, 491_520),
    ("Llama-3.2-1B", 1_235_814_400, 1_235_814_400, 1_235_814_400, 32_768, 0, 0, 131_072),
    ("Llama-3.2-3B", 3_212_749_824, 3_212_749_824, 3_212_749_824, 114_688, 0, 0, 344_064),
    ("Llama-3.1-8B", 8_030_261_248, 8_030_261_248, 7_504_924_672, 131_072, 0, 0, 524_288),
    ("Llama-3.1-70B", 70_553_706_496, 70_553_706_496, 69_503_033_344, 327_680, 0, 0, 2_621_440),
    ("Llama-3.1-405B", 405_853_388_800, 405_853_388_800, 403_752_042_496, 516_096, 0, 0, 8_257_536),
    ("Mistral-7B-v0.3", 7_248_023_552, 7_248_023_552, 7_113_805_824, 131_072, 0, 0, 524_288),
    ("Mixtral-8x7B-v0.1", 46_702_792_704, 12_879_925_248, 12_748_853_248, 131_072, 0, 0, 524_288),
    ("phi-4", 14_659_507_200, 14_659_507_200, 14_145_704_960, 204_800, 0, 0, 819_200),
    ("gemma-3-4b-it", 3_880_263_168, 3_880_263_168, 3_880_263_168, 20_480, 121_634_816, 0, 40_960),
    ("gemma-3-27b-it", 27_009_346_304, 27_009_346_304, 27_009_346_304, 81_920, 436_207_616, 0, 163_840),
    ("gpt-oss-20b", 20_914_757_184, 4_187_440_704, 3_608_307_264, 24_576, 3_145_728, 0, 196_608),
    ("gpt-oss-120b", 116_829_156_672, 5_711_982_912, 5_132_849_472, 36_864, 4_718_592, 0, 294_912),
    ("GLM-4.5-Air", 106_852_251_264, 13_424_129_664, 12_803_372_672, 188_416, 0, 0, 2_260_992),
    ("GLM-4.5", 352_797_829_024, 33_632_266_144, 32_856_319_904, 376_832, 0, 0, 4_521_984),
    ("GLM-4.6", 352_797_829_024, 33_632_266_144, 32_856_319_904, 376_832, 0, 0, 4_521_984),
    ("DeepSeek-V3", 671_026_419_200, 37_552_297_472, 36_625_618_432, 70_272, 0, 0, 16_990_208),
    ("DeepSeek-R1", 671_026_419_200, 37_552_297_472, 36_625_618_432, 70_272, 0, 0, 16_990_208),
    ("Kimi-K2-Instruct", 1_026_408_232_448, 32_861_500_928, 31_687_095_808, 70_272, 0, 0, 8_495_104),
]


@pytest.mark.parametrize(("name", "total", "active", "matmul", "kv", "cap", "state", "flops"), GOLDEN)
def test_counts_equal_the_published_and_hand_checked_figures(name, total, active, matmul, kv, cap, state, flops):
    arch = model(name)
    assert n_params(arch) == total
    assert n_active_params(arch) == active
    assert matmul_params_per_token(arch) == matmul
    assert kv_bytes_per_token(arch) == kv
    assert sliding_kv_cap_bytes(arch) == cap
    assert state_bytes_per_sequence(arch) == state
    assert attention_flops_per_context_token(arch) == flops


def test_qwen3_5_9b_checkpoint_size_to_the_byte():
    # The published checkpoint is 19,306,216,416 bytes: the language model, the vision tower (456,010,480 parameters)
    # and one MTP layer (243,290,624) in bf16, with decays and norms of the 24 recurrent layers in fp32.
    assert weight_bytes(model("Qwen3.5-9B"), "bf16") + 2 * (456_010_480 + 243_290_624) == 19_306_216_416


@pytest.mark.parametrize(
    ("name", "billions", "active_billions"),
    [("MiniMax-M2.5", 229, 10), ("GLM-5", 744, 40), ("DeepSeek-V3.2", 671, 37), ("Qwen3-32B-FP8", 32.8, 32.8)],
)
def test_totals_near_what_publishers_state(name, billions, active_billions):
    # Published figures are rounded, and some leave the input embedding out of "active": 12 % covers that.
    assert n_params(model(name)) == pytest.approx(billions * 1e9, rel=0.003)
    assert n_active_params(model(name)) == pytest.approx(active_billions * 1e9, rel=0.12)


@pytest.mark.parametrize(("name", "gigabytes"), [("gpt-oss-20b", 13.8), ("gpt-oss-120b", 65.2)])
def test_mxfp4_checkpoints_have_their_published_size(name, gigabytes):
    # 13.8e9 and 65.2e9 bytes published: experts in 17/32 byte, everything else in bf16.
    assert weight_bytes(model(name), "mxfp4") == pytest.approx(gigabytes * 1e9, rel=0.005)


@pytest.mark.parametrize("name", model_names())
def test_products_experts_vectors_and_head_add_up_to_the_matmul_parameters(name):
    arch = model(name)
    total = head_params(arch) + arch.hidden
    for layer, count in layer_groups(arch):
        part = sum(p.k * p.n for p in products(layer, arch.hidden)) + layer_vector_params(layer, arch.hidden)
        if isinstance(layer.mlp, MoeMlp):
            part += layer.mlp.top_k * expert_params(layer.mlp, arch.hidden)
        assert part == layer_params(layer, arch.hidden, active=True)
        total += count * part
    assert total == matmul_params_per_token(arch)


@pytest.mark.parametrize("name", model_names())
def test_counts_do_not_depend_on_grouping_and_are_ordered(name):
    arch = model(name)
    assert sum(n for _, n in layer_groups(arch)) == len(arch.layers)
    by_layer = sum(layer_params(layer, arch.hidden) for layer in arch.layers)
    embeddings = head_params(arch) * (1 if arch.tied_embeddings else 2)
    assert n_params(arch) == by_layer + embeddings + arch.hidden
    assert matmul_params_per_token(arch) <= n_active_params(arch) <= n_params(arch)
    assert weight_bytes(arch, "int4") < weight_bytes(arch, "fp8") < weight_bytes(arch, "bf16")
    assert kv_bytes_per_token(arch, "fp8") <= kv_bytes_per_token(arch, "bf16") == kv_bytes_per_token(arch, "fp16")


@pytest.mark.parametrize("name", model_names())
def test_attention_flops_slope_is_the_difference_of_two_long_contexts(name):
    # Beyond every window and every top-k, one more context token costs exactly the slope.
    arch = model(name)
    cost = {
        n: sum(c * attention_flops_of(layer.attention, n) for layer, c in layer_groups(arch)) for n in (90_000, 90_001)
    }
    assert cost[90_001] - cost[90_000] == attention_flops_per_context_token(arch)


def test_weights_in_16_bit_are_two_bytes_each_except_the_fp32_vectors():
    for name in ("Llama-3.1-8B", "gpt-oss-20b", "DeepSeek-V3"):
        assert weight_bytes(model(name), "bf16") == 2 * n_params(model(name))
        assert weight_bytes(model(name), "fp32") == 4 * n_params(model(name))


def test_fp8_keeps_head_embedding_norms_and_router_in_16_bit():
    arch = model("Qwen3-30B-A3B")
    small = sum(
        n * (layer_vector_params(layer, arch.hidden) + sum(p.params for p in products(layer, 2048) if not p.quantised))
        for layer, n in layer_groups(arch)
    )
    kept = 2 * head_params(arch) + arch.hidden + small
    expected = 2 * kept + (n_params(arch) - kept) * (1 + 4 / 16384)
    assert weight_bytes(arch, "fp8") == pytest.approx(expected, rel=1e-12)


def test_stored_types_follow_the_checkpoint_only_for_its_own_type():
    arch = model("gpt-oss-20b")
    qkv = products(arch.layers[0], arch.hidden)[0]
    assert product_dtype(arch, "mxfp4", qkv) == "bf16"
    assert product_dtype(arch, "fp8", qkv) == "fp8"
    assert head_dtype(arch, "mxfp4") == "bf16"
    assert head_dtype(arch, "q8_0") == "q8_0"
    assert product_dtype(arch, "q8_0", qkv) == "q8_0"


def test_a_gguf_file_quantises_the_embedding_too():
    # 8.03e9 weights at 34/32 byte is the 8.5 GB of a Q8_0 file of Llama-3.1-8B.
    assert weight_bytes(model("Llama-3.1-8B"), "q8_0") == pytest.approx(8.54e9, rel=0.005)


def test_qwen3_5_products_by_hand():
    # 4B, hidden 2560: q 16 x 256 doubled by the gate, k and v 4 x 256 each; K heads 16 x 128, V heads 32 x 128.
    arch = model("Qwen3.5-4B")
    linear, full = arch.layers[0], arch.layers[3]
    assert isinstance(linear.attention, LinearAttention)
    assert [(p.name, p.k, p.n) for p in products(full, 2560)] == [
        ("qkv", 2560, 2 * 4096 + 2 * 1024),
        ("out", 4096, 2560),
        ("gate_up", 2560, 2 * 9216),
        ("down", 9216, 2560),
    ]
    assert [(p.name, p.k, p.n) for p in attention_products(linear.attention, 2560)] == [
        ("in_qkvz", 2560, 2 * 2048 + 2 * 4096),
        ("in_ba", 2560, 64),
        ("out", 4096, 2560),
    ]


def test_mixture_products_by_hand():
    arch = model("Qwen3.5-397B-A17B")
    mlp = arch.layers[0].mlp
    assert [(p.name, p.k, p.n, p.quantised) for p in mlp_products(mlp, 4096)] == [
        ("router", 4096, 512, False),
        ("shared_gate_up", 4096, 2048, True),
        ("shared_down", 1024, 4096, True),
        ("shared_gate", 4096, 1, False),
    ]
    assert mlp_params(mlp, 4096) - mlp_params(mlp, 4096, active=True) == (512 - 10) * 3 * 4096 * 1024


def test_sparse_attention_reads_an_indexer_and_caps_its_choice():
    sparse, plain = model("DeepSeek-V3.2").layers[0].attention, model("DeepSeek-V3").layers[0].attention
    assert isinstance(sparse, LatentAttention)
    # 576 numbers in bf16, and 128 bytes of index key with one fp32 scale.
    assert kv_bytes_per_token_of(sparse) == 576 * 2 + 132
    assert kv_bytes_per_token_of(plain) == 576 * 2
    core = 2 * 128 * (2 * 512 + 64)
    assert attention_flops_of(sparse, 1000) == 1000 * (core + 2 * 64 * 128)
    assert attention_flops_of(sparse, 50_000) == 2048 * core + 50_000 * 2 * 64 * 128


def test_a_window_caps_attention_and_cache():
    sliding = Attention(n_heads=8, n_kv_heads=4, d_head=256, window=1024)
    assert attention_flops_of(sliding, 10) == 4 * 8 * 256 * 10
    assert attention_flops_of(sliding, 5000) == attention_flops_of(sliding, 1024) == 4 * 8 * 256 * 1024
    assert state_bytes_of(sliding) == 0


def test_state_does_not_grow_with_context():
    linear = model("Qwen3.5-397B-A17B").layers[0].attention
    # 64 V heads x 128 x 128 in fp32, and 3 columns of 2 x 2048 + 8192 convolution channels in bf16.
    assert state_bytes_of(linear) == 64 * 128 * 128 * 4 + (2 * 2048 + 8192) * 3 * 2
    assert attention_flops_of(linear, 1) == attention_flops_of(linear, 100_000) == 7 * 64 * 128 * 128
    assert kv_bytes_per_token_of(linear) == 0


def test_bytes_per_weight_table():
    assert weight_bytes_each("fp8") == 1 + 4 / 16384
    assert weight_bytes_each("mxfp4") == 0.53125
    assert weight_bytes_each("nvfp4") == 0.5625
    assert weight_bytes_each("int4") == 0.515625
    assert weight_bytes_each("q8_0") == 1.0625
    assert all(fact.source for fact in BYTES_PER_WEIGHT.values())
    assert BYTES_PER_WEIGHT["q4_k_m"].tier == "assumed"
    with pytest.raises(InputError, match=r"unknown weight dtype 'pf8'.*'fp8'"):
        weight_bytes_each("pf8")
    with pytest.raises(InputError, match="unknown kv dtype 'fp4'"):
        kv_bytes_each("fp4")


@pytest.mark.parametrize(
    ("weights", "peaks", "expected"),
    [
        ("fp8", {"bf16", "fp8"}, "fp8"),
        ("fp8", {"bf16", "fp16", "int8"}, "bf16"),
        ("int8", {"bf16", "int8"}, "int8"),
        ("int4", {"bf16", "int4", "int8"}, "bf16"),
        ("nvfp4", {"bf16", "fp8", "fp4"}, "fp4"),
        ("nvfp4", {"bf16", "fp8"}, "bf16"),
        ("mxfp4", {"bf16", "fp4"}, "bf16"),
        ("q4_k_m", {"fp16", "fp32"}, "fp16"),
        ("q8_0", {"fp32"}, "fp32"),
        ("bf16", {"fp16", "int8"}, "fp16"),
        ("fp16", {"fp16", "bf16"}, "fp16"),
        ("fp32", {"fp32", "bf16"}, "fp32"),
    ],
)
def test_which_peak_binds_a_product(weights, peaks, expected):
    assert compute_dtype(weights, peaks) == expected


@pytest.mark.parametrize(("weights", "peaks"), [("bf16", {"int8"}), ("fp32", {"bf16"}), ("int4", set())])
def test_no_usable_peak_is_an_error_that_says_what_is_missing(weights, peaks):
    with pytest.raises(InputError, match=f"no peak for {weights} weights: needs one of"):
        compute_dtype(weights, peaks)


@pytest.mark.parametrize("name", model_names())
def test_facts_cover_the_contract_and_every_layer_once(name):
    facts = model_facts(model(name))
    contract = {"n_params", "n_active_params", "kv_bytes_per_token", "state_bytes_per_sequence", "n_layers", "layers"}
    assert contract <= set(facts)
    indices = [i for group in facts["layers"] for i in group["indices"]]
    assert sorted(indices) == list(range(facts["n_layers"]))
    assert all(len(group["indices"]) == group["count"] for group in facts["layers"])
    assert facts["source"]
