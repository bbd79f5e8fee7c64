"""`specroof step`: it adds up, agrees with the step model and with counting by hand, and refuses what cannot be."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.counts import head_params, layer_groups, matmul_params_per_token
from costmodel.deployment import deploy
from costmodel.products import products
from costmodel.request import Pass
from costmodel.step import StepModel
from hwprofiles.errors import InputError
from simulator.factors import with_factors
from simulator.step_cost import step_cost

BIG = ["--model", "Qwen/Qwen3.5-397B-A17B", "--hardware", "h200", "--n-devices", "8", "--weight-dtype", "fp8"]
SMALL = ["--model", "Qwen/Qwen3.5-4B", "--hardware", "h200"]


@pytest.fixture
def step(run_cli):
    def run(*args):
        outcome = run_cli("step", *args, "--json")
        assert outcome.code == 0, outcome.err
        return json.loads(outcome.out)

    return run


@pytest.fixture(scope="module")
def big():
    return deploy("Qwen/Qwen3.5-397B-A17B", "h200", n_devices=8, weight_dtype="fp8")


@pytest.fixture(scope="module")
def small():
    return deploy("Qwen/Qwen3.5-4B", "h200")


def dense():
    from costmodel.models import model_names
    from hwprofiles import hardware_names

    name = next(n for n in model_names() if "Llama-3.1-8B" in n or "Llama-3.2-3B" in n)
    return deploy(name, next(h for h in hardware_names() if h.startswith("a100")))


# -- golden ---------------------------------------------------------------------------------------------------------


def test_one_token_of_397b_touches_its_active_parameters_without_the_embedding(step):
    found = step(*BIG, "--decode", "1@4000")
    # 17 B active, less the 1 B input embedding (a lookup): ten of 512 experts, shared expert, projections, head.
    assert found["touched_params"] == pytest.approx(16.3e9, rel=0.005)
    assert found["touched_params"] == pytest.approx(matmul_params_per_token(deploy_big().model), rel=1e-3)


def deploy_big():
    return deploy("Qwen/Qwen3.5-397B-A17B", "h200", n_devices=8, weight_dtype="fp8")


def test_512_tokens_of_397b_touch_nearly_all_of_it(step):
    found = step(*BIG, "--prefill", "512@0")
    # With independent routing a pass of 512 tokens misses a given expert with (1 - 10/512)^512 = 4e-5: all 395 G. The
    # factor expert_correlation (kappa, 0.65) thins the pass to about 333 independent tokens, which miss 0.14 % of it.
    assert found["touched_params"] == pytest.approx(395e9, rel=0.005)
    independent = step(*BIG, "--prefill", "512@0", "--set", "expert_correlation=1")
    assert 1.0005 < independent["touched_params"] / found["touched_params"] < 1.003


def test_kappa_cannot_change_what_one_token_touches(step):
    plain = step(*BIG, "--decode", "1@4000")
    assert (
        step(*BIG, "--decode", "1@4000", "--set", "expert_correlation=1")["touched_params"] == plain["touched_params"]
    )


def test_397b_facts_beside_the_times(step):
    found = step(*BIG, "--decode", "1@4000")
    assert found["cache_block_tokens"] == 528  # one saved state per block at 8 devices
    assert (found["weight_dtype"], found["kv_dtype"], found["compute_dtype"]) == ("fp8", "bf16", "fp8")
    assert found["bytes"]["kv"] == 4001 * 122_880  # 15 layers, 2 KV heads replicated on 8 devices: not 30,720 a token
    assert found["kv_cache_tokens"] > 1_000_000


# -- theory and invariants --------------------------------------------------------------------------------------------


def test_flops_of_a_dense_model_by_hand():
    dep = dense()
    arch, (new, context) = dep.model, (300, 700)
    weights = sum(n * sum(p.params for p in products(layer, arch.hidden)) for layer, n in layer_groups(arch))
    seen = sum(range(context + 1, context + new + 1))
    attention = sum(n * 4 * layer.attention.n_heads * layer.attention.d_head for layer, n in layer_groups(arch)) * seen
    found = step_cost(dep, prefill=[(new, context)])
    assert found.flops == pytest.approx(2 * new * weights + 2 * head_params(arch) + attention, rel=1e-9)
    assert found.touched_params == weights + head_params(arch)
    assert found.bytes["weights"] == pytest.approx(2 * found.touched_params)


@given(
    prefill=st.lists(st.tuples(st.integers(1, 2000), st.integers(0, 20_000)), max_size=3),
    decode=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20_000)), max_size=3),
)
def test_it_is_the_step_model_itself(prefill, decode, small):
    if not prefill and not decode:
        return
    found = step_cost(small, prefill, decode)
    contexts = [c for n, c in decode for _ in range(n)]
    seconds, shares = StepModel(small).step([Pass(n, c, True) for n, c in prefill], contexts)
    assert found.time_s == pytest.approx(seconds, rel=1e-9)
    total = shares.sum(axis=0)
    kinds = ("weights", "kv", "state", "activations", "interconnect")
    expected = dict(zip(("flops", *kinds), total[:6], strict=True))
    assert found.flops == pytest.approx(expected.pop("flops"), rel=1e-9)
    assert {k: found.bytes[k] for k in kinds} == pytest.approx(expected, rel=1e-9)
    assert found.energy_j == pytest.approx(total[6], rel=1e-9)


@pytest.mark.parametrize("args", [["--decode", "1@4000"], ["--prefill", "512@0", "--decode", "3@100"]], ids=" ".join)
def test_everything_adds_up(args, step):
    found = step(*BIG, *args)
    ops = found["ops"]
    assert math.fsum(op["time_s"] for op in ops) == pytest.approx(found["time_s"], rel=1e-9)
    assert math.fsum(op["share"] for op in ops) == pytest.approx(1)
    assert math.fsum(op["flops"] for op in ops) == pytest.approx(found["flops"], rel=1e-9)
    assert math.fsum(found["parts_s"].values()) == pytest.approx(found["time_s"], rel=1e-9)
    for kind, total in found["bytes"].items():
        assert math.fsum(op["bytes"][kind] for op in ops) == pytest.approx(total, rel=1e-9)
    assert sum(v for k, v in found["bytes"].items() if k != "total") == pytest.approx(found["bytes"]["total"])
    assert found["bound"] == max(found["parts_s"], key=found["parts_s"].get)
    assert found["low_s"] < found["time_s"] < found["high_s"]


def test_a_step_is_never_faster_than_its_bytes_or_flops(small, big):
    for dep in (small, big):
        for found in (step_cost(dep, decode=[(8, 8000)]), step_cost(dep, prefill=[(4096, 0)])):
            device, traffic = dep.hardware, sum(found.bytes[k] for k in ("weights", "kv", "state"))
            assert found.time_s > traffic / dep.n_devices / device.bandwidth_bytes_per_s.value
            assert found.time_s > found.flops / dep.n_devices / device.peak_flops_per_s["fp8"].value


def test_touched_parameters_do_not_depend_on_the_devices(big):
    four = deploy("Qwen/Qwen3.5-397B-A17B", "h200", n_devices=4, weight_dtype="fp8")
    at = [step_cost(dep, decode=[(4, 100)]) for dep in (four, big)]
    assert at[0].touched_params == at[1].touched_params
    assert at[0].bytes["weights"] < at[1].bytes["weights"]  # routers and KV projections are replicated


def test_big_prefill_is_bound_by_compute_and_big_batches_by_memory():
    dep = dense()
    assert step_cost(dep, prefill=[(8192, 0)]).bound == "compute"
    assert step_cost(dep, decode=[(8, 8000)]).bound == "memory"


def test_without_uncertain_factors_there_is_no_band(small):
    values = {k: f.value for k, f in {**small.efficiency.factors, **small.engine.factors}.items()}
    found = step_cost(with_factors(small, values), decode=[(1, 1000)])
    assert found.low_s == found.time_s == found.high_s
    assert found.time_s == step_cost(small, decode=[(1, 1000)]).time_s


def test_wider_factors_make_a_wider_band(small):
    plain = step_cost(small, decode=[(1, 1000)])
    fixed = step_cost(with_factors(small, {"gemm_memory": 0.8}), decode=[(1, 1000)])
    assert fixed.high_s - fixed.low_s < plain.high_s - plain.low_s


def test_a_factor_set_by_hand_moves_the_time_its_own_way(step):
    slow = step(*SMALL, "--decode", "1@1000", "--set", "gemm_memory=0.4")
    plain = step(*SMALL, "--decode", "1@1000")
    assert slow["time_s"] > 1.5 * plain["time_s"]
    assert slow["sources"]["h200.gemm_memory"] == {"tier": "assumed", "source": "set by hand"}


def test_every_factor_says_its_tier(step):
    found = step(*SMALL, "--decode", "1@1000")
    assert sum(found["tiers"].values()) == len(found["sources"])
    assert all(entry["tier"] in found["tiers"] and entry["source"] for entry in found["sources"].values())
    assert found["sources"]["h200.bandwidth_bytes_per_s"]["tier"] == "datasheet"


def test_several_passes_are_one_step(step):
    """Two passes together read the weights once."""
    both = step(*SMALL, "--prefill", "512@0", "--prefill", "512@0")
    one = step(*SMALL, "--prefill", "512@0")
    assert both["bytes"]["weights"] == one["bytes"]["weights"]
    assert both["bytes"]["kv"] == 2 * one["bytes"]["kv"]
    assert one["time_s"] < both["time_s"] < 2 * one["time_s"]


def test_more_than_the_engine_takes_at_once_is_said(run_cli):
    outcome = run_cli("step", *SMALL, "--prefill", "9000@0", "--decode", "300@10", "--json")
    assert outcome.code == 0
    assert len(json.loads(outcome.out)["notes"]) == 2
    assert "token budget" in outcome.err
    assert "sequences" in outcome.err


def test_the_table_names_every_operation(run_cli, step):
    text = run_cli("step", *SMALL, "--decode", "2@100").out
    found = step(*SMALL, "--decode", "2@100")
    assert all(op["name"] in text for op in found["ops"])
    assert f"{1e3 * found['time_s']:.3f} ms [" in text
    frame = step_cost(deploy("Qwen/Qwen3.5-4B", "h200"), decode=[(2, 100)]).table()
    assert list(frame.index) == [op["name"] for op in found["ops"]]
    assert frame["time_s"].sum() == pytest.approx(found["time_s"])


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], ["--prefill", "--decode"]),
        (["--prefill", "abc"], ["--prefill", "abc", "NEW@CONTEXT"]),
        (["--decode", "1@"], ["--decode", "1@", "SEQS@CONTEXT"]),
        (["--decode", "1.5@10"], ["1.5@10"]),
        (["--decode", "1@-1"], ["1@-1"]),
        (["--prefill", "0@10"], ["prefill 0@10"]),
        (["--prefill", "999999999999@0"], ["999999999999@0"]),
        (["--prefill", "100@262100"], ["262200", "262144"]),
        (["--decode", "1@262144"], ["262145", "262144"]),
        (["--decode", "100000@4000"], ["KV cache", "400100000"]),
        (["--decode", "1@10", "--set", "gemm_memry=1"], ["gemm_memory"]),
        (["--decode", "1@10", "--set", "gemm_memory=0"], ["gemm_memory", "above 0"]),
        (["--decode", "1@10", "--set", "gemm_memory=80"], ["gemm_memory", "at most 1", "80"]),
        (["--decode", "1@10", "--set", "gemm_memory=nan"], ["gemm_memory"]),
        (["--decode", "1@10", "--set", "gemm_memory=true"], ["gemm_memory", "True"]),
        (["--decode", "1@10", "--set", "roof_exponent=0.5"], ["roof_exponent", "1 to 8"]),
        (["--decode", "1@10", "--set", "gemm_memory"], ["KEY=VALUE"]),
        (["--decode", "1@10", "--n-devices", "3"], ["n_devices = 3", "divide"]),
        (["--decode", "1@10", "--engine", "vllm-v"], ["vllm-v1"]),
        (["--decode", "1@10", "--weight-dtype", "fp9"], ["fp8"]),
    ],
    ids=lambda value: " ".join(value) if value and value[0].startswith("--") else None,
)
def test_one_clear_line(args, words, run_cli):
    outcome = run_cli("step", *SMALL, *args)
    assert (outcome.code, outcome.out) == (2, "")
    (line,) = outcome.err.splitlines()
    assert all(word in line for word in words), line


def test_the_library_refuses_in_the_same_words(small):
    with pytest.raises(InputError, match="prefill 0@5"):
        step_cost(small, prefill=[(0, 5)])
    with pytest.raises(InputError, match="needs work"):
        step_cost(small)
