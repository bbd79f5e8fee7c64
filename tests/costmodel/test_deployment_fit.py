"""What fits where: memory, heads, missing datasheet figures, cache blocks, replicated KV."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costmodel.deployment import (
    cache_rule,
    deploy,
    kv_bytes_per_token,
    kv_capacity_tokens,
    sequence_bytes_per_rank,
    weights_per_device_bytes,
)
from costmodel.engines import ENGINE_FACTORS, engine
from hwprofiles import CapacityError, InputError, hardware, hardware_names

BIG = "Qwen/Qwen3.5-397B-A17B"


def test_a_model_that_does_not_fit_says_what_it_needs_and_what_there_is():
    with pytest.raises(CapacityError, match="does not fit") as caught:
        deploy(BIG, "h200")
    # 396,346,350,336 parameters of 2 bytes, plus 3.5 GB reserve; 90 % of 149.79 GB can be used
    assert 396_346_350_336 * 2 + 3.5e9 < caught.value.needed_bytes < 800e9
    assert caught.value.available_bytes == pytest.approx(0.9 * 149_786_984_448)


def test_eight_devices_hold_it_in_fp8():
    dep = deploy(BIG, "h200", n_devices=8, weight_dtype="fp8")
    # routers (60 x 4096 x 512) and shared-expert gates stay whole on every device; the rest is split
    whole = 60 * 4096 * (512 + 1) * 2
    from costmodel.counts import weight_bytes

    assert weights_per_device_bytes(dep) == pytest.approx((weight_bytes(dep.model, "fp8") - whole) / 8 + whole)


@pytest.mark.parametrize(("n_devices", "block"), [(1, 2096), (2, 2096), (4, 1056), (8, 528)])
def test_cache_block_of_the_397b(n_devices, block):
    # state per layer: 64 x 128 x 128 x 4 + (2 x 16 x 128 + 64 x 128) x 3 x 2 = 4,268,032 bytes, split over devices;
    # KV per token and layer: 2 x 256 x 2 bytes for each of max(1, 2 / n) heads; pages of 16 tokens
    dep = deploy(BIG, "b300", n_devices=n_devices, weight_dtype="nvfp4")
    rule = cache_rule(dep)
    assert rule.state_aligned
    assert rule.block_tokens == block


def test_cache_block_of_the_4b_and_of_plain_attention():
    assert cache_rule(deploy("Qwen/Qwen3.5-4B", "h200")).block_tokens == 528
    plain = cache_rule(deploy("Qwen/Qwen3-8B", "h200"))
    assert (plain.block_tokens, plain.state_aligned) == (16, False)


@pytest.mark.parametrize(("n_devices", "total"), [(2, 30_720), (4, 61_440), (8, 122_880)])
def test_kv_heads_are_replicated_when_devices_outnumber_them(n_devices, total):
    # 15 full layers x 2 (K and V) x 2 heads x 256 x 2 bytes = 30,720; with one head per device at least, 8 devices
    # hold 8 heads' worth
    assert kv_bytes_per_token(deploy(BIG, "b300", n_devices=n_devices, weight_dtype="nvfp4")) == total


def test_latent_attention_keeps_its_whole_cache_on_every_device():
    # (512 + 64) x 2 bytes x 61 layers on each of 8 devices
    dep = deploy("deepseek-ai/DeepSeek-V3", "h200", n_devices=8)
    assert kv_bytes_per_token(dep) == 8 * 61 * 576 * 2


def test_kv_capacity_is_what_memory_leaves():
    dep = deploy("Qwen/Qwen3-8B", "h200")
    # 8,190,735,360 parameters in bf16, 147,456 bytes of KV per token, no state and no windows
    free = 0.9 * 149_786_984_448 - 2 * 8_190_735_360 - 3.5e9
    assert kv_capacity_tokens(dep) == int(free / 147_456)


def test_sliding_windows_cost_a_fixed_part_per_sequence():
    dep = deploy("google/gemma-3-4b-it", "h200")
    assert sequence_bytes_per_rank(dep) == 121_634_816  # 29 layers x 2 x 4 heads x 256 x 2 bytes x 1024 tokens
    assert kv_bytes_per_token(dep) == 20_480  # the five full layers alone


@pytest.mark.parametrize("n_devices", [3, 5, 64])
def test_heads_that_do_not_divide_are_refused(n_devices):
    with pytest.raises(InputError, match="does not divide"):
        deploy(BIG, "h200", n_devices=n_devices, weight_dtype="fp8")


def test_heads_that_do_not_divide_are_named():
    with pytest.raises(InputError, match="64 linear-attention value heads and 16 key heads"):
        deploy(BIG, "h200", n_devices=3, weight_dtype="fp8")
    with pytest.raises(InputError, match=r"the 32 query heads .* divisors of 32"):
        deploy("meta-llama/Llama-3.1-8B", "h200", n_devices=3)


def test_a_device_without_printed_bandwidth_cannot_be_deployed_on():
    bare = [h for h in map(hardware, hardware_names()) if h.bandwidth_bytes_per_s is None or h.memory_bytes is None]
    assert bare
    for device in bare:
        with pytest.raises(InputError, match="no memory size or bandwidth"):
            deploy("Qwen/Qwen3-0.6B", device)


def test_a_device_without_a_link_stands_alone():
    alone = replace(hardware("h200"), link=None)
    with pytest.raises(InputError, match="no link"):
        deploy("Qwen/Qwen3-8B", alone, n_devices=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_devices": 0}, "n_devices must be >= 1"),
        ({"n_devices": -2}, "n_devices must be >= 1"),
        ({"max_seqs": 0}, "must be >= 1"),
        ({"chunk_tokens": 0}, "must be >= 1"),
        ({"weight_dtype": "fp7"}, "did you mean 'fp8'"),
        ({"kv_dtype": "fp9"}, "did you mean 'fp8'"),
        ({"engine_name": "vlm-v1"}, "did you mean 'vllm-v1'"),
    ],
)
def test_bad_options_are_refused_with_a_hint(options, message):
    with pytest.raises(InputError, match=message):
        deploy("Qwen/Qwen3-8B", "h200", **options)


def test_a_token_budget_below_the_state_block_is_refused():
    with pytest.raises(InputError, match="below the cache block of 528"):
        deploy("Qwen/Qwen3.5-4B", "h200", chunk_tokens=512)


def test_the_checkpoint_says_the_weight_dtype():
    assert deploy("deepseek-ai/DeepSeek-V3", "h200", n_devices=8).weight_dtype == "fp8"
    assert deploy("Qwen/Qwen3-8B", "h200").weight_dtype == "bf16"


def test_the_engine_generation_says_where_its_numbers_come_from():
    profile = engine("vllm-v1")
    assert set(profile.factors) == set(ENGINE_FACTORS)
    for factor in profile.factors.values():
        assert 0 < factor.low <= factor.value <= factor.high
        assert factor.source
    for tier, source in profile.sources.values():
        assert tier
        assert source
