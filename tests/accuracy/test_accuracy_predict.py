"""Predictions of single rows: units, reasons, physical floors and agreement with the step model."""

from __future__ import annotations

import math

import numpy as np
import pytest

from costmodel.counts import weight_bytes
from costmodel.deployment import deploy
from costmodel.models import model
from costmodel.request import Pass
from costmodel.step import StepModel
from hwprofiles.load import efficiency, hardware
from validate.accuracy import names
from validate.accuracy.factors import HOST
from validate.accuracy.predict import predict_rows, prepare
from validate.accuracy.tables import COLUMNS, Row, parse_note

BASE = {
    "source": "me", "hardware": "H100-SXM-80GB", "n_devices": "1", "model": "Qwen/Qwen3-8B", "weight_dtype": "bf16",
    "kv_dtype": "bf16", "engine": "vllm", "phase": "decode", "batch": "4", "input_tokens": "1", "context_tokens": "512",
    "output_tokens": "1", "metric": "step_ms", "value": "9.5", "unit": "ms", "kind": "silicon-database estimate",
    "note": "",
}  # fmt: skip


def row(**changes) -> Row:
    text = {**BASE, **{key: str(value) for key, value in changes.items()}}
    counts = [k for k in COLUMNS if k.endswith("tokens") or k == "batch"]
    count = {k: None if text[k] in ("", "max") else float(text[k]) for k in counts}
    words = ("source", "hardware", "model", "weight_dtype", "kv_dtype", "engine", "phase", "metric")
    plain = {k: text[k] for k in words}
    return Row(
        table=text.get("table", "mine"), line=2, n_devices=int(text["n_devices"]), value=float(text["value"]),
        unit=text["unit"], kind=text["kind"], note=parse_note(text["note"]), text=text, **plain, **count,
    )  # fmt: skip


def one(**changes):
    (found,) = predict_rows([row(**changes)], {}, {})
    return found


def test_a_decode_row_is_the_step_model_without_host_time():
    # One sequence, so that the step model's own decode run prices the same step; the engine's host time is taken off.
    dep = deploy("Qwen/Qwen3-8B", "h100", weight_dtype="bf16")
    factors = {**efficiency("dc_gpu").values(), "host_step_s": 0.0, "host_seq_s": 0.0}
    found = StepModel(dep, factors).decode_run_s([512], 1)[0]
    assert one(batch=1).value == pytest.approx(1e3 * found, rel=1e-9)


def test_a_prefill_row_is_the_step_model_too():
    dep = deploy("Qwen/Qwen3-8B", "h100", weight_dtype="bf16")
    factors = {**efficiency("dc_gpu").values(), "host_step_s": 0.0, "host_seq_s": 0.0}
    seconds, _ = StepModel(dep, factors).step([Pass(700, 300, True)], [])
    assert one(phase="prefill", batch=1, input_tokens=700, context_tokens=300).value == pytest.approx(1e3 * seconds)


def test_rates_are_tokens_over_the_time_of_the_step():
    step = one().value / 1e3
    assert one(metric="tok_s", unit="tokens/s").value == pytest.approx(4 / step)
    prefill = {"phase": "prefill", "input_tokens": 256, "context_tokens": 0}
    step = one(**prefill).value / 1e3
    assert one(**prefill, metric="tok_s", unit="tokens/s").value == pytest.approx(4 * 256 / step)


def test_seconds_and_milliseconds_are_the_same_time():
    batch = {"phase": "e2e", "input_tokens": 128, "output_tokens": 64}
    seconds = one(**batch, metric="latency_s", unit="s").value
    assert one(**batch, metric="latency_ms").value == pytest.approx(1e3 * seconds)


def test_a_batch_is_its_prefill_and_its_decode_steps():
    prefill = one(phase="prefill", input_tokens=128, context_tokens=0).value
    decode = one(context_tokens=160).value
    whole = one(phase="e2e", input_tokens=128, output_tokens=64, metric="latency_ms").value
    assert whole == pytest.approx(prefill + 63 * decode, rel=1e-9)


def test_a_batch_that_overflows_the_cache_runs_in_waves():
    small = {"hardware": "L40S", "phase": "e2e", "input_tokens": 2048, "output_tokens": 2048, "metric": "latency_ms"}
    assert one(**small, batch=256).value > 3 * one(**small, batch=16).value


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hardware": "Abacus"}, "device without a profile"),
        ({"model": "nobody/Nothing-1B"}, "model whose architecture is not bundled"),
        ({"weight_dtype": "fp7"}, "storage type that is not known"),
        ({"kv_dtype": "fp7"}, "storage type that is not known"),
        ({"batch": "max"}, "batch not stated"),
        ({"batch": "0"}, "batch below 1"),
        ({"phase": "prefill", "input_tokens": ""}, "prompt length not stated"),
        ({"phase": "e2e", "output_tokens": "", "metric": "latency_s"}, "lengths not stated"),
        ({"metric": "happiness"}, "metric happiness of phase decode has no model"),
        ({"metric": "op_ms", "phase": "gemm"}, "operator not named"),
        ({"metric": "op_ms", "phase": "gemm", "note": "m=1;n=2"}, "shape not stated"),
        ({"metric": "op_ms", "phase": "gemm", "note": "op=dance"}, "operator that is not modelled"),
        ({"metric": "op_ms", "phase": "attention"}, "heads not stated"),
        ({"model": "meta-llama/Llama-3.1-405B"}, "weights exceed the memory of the stated devices"),
        ({"metric": "tpot_ms", "kind": "serving", "phase": "e2e", "note": "mtp=3"}, "multi-token prediction"),
        (
            {"metric": "happiness_p99", "kind": "serving", "phase": "e2e"},
            "metric happiness_p99 of serving has no model",
        ),
        ({"metric": "tpot_ms", "kind": "serving", "phase": "e2e", "batch": ""}, "neither concurrency nor request rate"),
    ],
)
def test_what_cannot_be_predicted_says_why(changes, reason):
    found = one(**changes)
    assert found.status.startswith(reason)
    assert math.isnan(found.value)
    assert found.subject is None


def test_a_skipped_row_does_not_disturb_its_neighbours():
    rows = [row(), row(model="nobody/Nothing-1B"), row(batch=8)]
    found = predict_rows(rows, {}, {})
    assert [p.status == "ok" for p in found] == [True, False, True]
    assert found[0].value == pytest.approx(one().value)
    assert found[2].value > found[0].value


@pytest.mark.parametrize("batch", [1, 4, 64])
@pytest.mark.parametrize("context", [0, 512, 8192])
@pytest.mark.parametrize("new", [1, 16, 512])
@pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3.5-4B"])
def test_a_verify_pass_is_never_faster_than_its_memory_traffic(name, new, context, batch):
    # At the peak of every factor: weights, KV and state have to be read once, whatever else a pass does.
    passed = row(model=name, phase="prefill", batch=batch, input_tokens=new, context_tokens=context, value=1)
    (found,) = predict_rows([passed], {}, {})
    floor_ms = found.floor_share  # the row says 1 ms
    assert found.value >= floor_ms
    if name == "Qwen/Qwen3-8B":
        arch, device = model(name), hardware("h100")
        embedding = arch.hidden * arch.vocab * 2.0
        assert floor_ms / 1e3 >= 0.98 * (weight_bytes(arch, "bf16") - embedding) / device.bandwidth_bytes_per_s.value


def test_samples_of_a_factor_price_all_rows_at_once():
    prepared = prepare([row(), row(batch=8), row(phase="prefill", input_tokens=300)])
    single = [prepared.values({"h100": {"gemm_memory": e}}, {}) for e in (0.6, 0.9)]
    both = prepared.values({"h100": {"gemm_memory": np.array([[0.6], [0.9]])}}, {})
    assert both.shape == (2, 3)
    np.testing.assert_allclose(both, single, rtol=1e-12)


def test_the_most_special_factor_speaks_last():
    keys = ["h100", "h100/bf16", "h100/bf16/vllm"]
    prepared = prepare([row()])
    tables = [{key: {"gemm_memory": 0.5 + 0.1 * i} for i, key in enumerate(keys[: n + 1])} for n in range(3)]
    values = [float(prepared.values(t, {})[0]) for t in tables]
    assert values[0] > values[1] > values[2]
    other = {"h100/fp8": {"gemm_memory": 0.1}, "h100/bf16/trtllm": {"gemm_memory": 0.1}, "a100": {"gemm_memory": 0.1}}
    assert float(prepared.values(other, {})[0]) == pytest.approx(float(prepared.values({}, {})[0]))


def test_host_time_belongs_to_the_generation_and_not_to_the_device():
    measured = row(kind="measured", source="splitwise-sim", engine="vllm (2023)")
    prepared = prepare([measured])
    bare = float(prepared.values({}, {})[0])
    hosted = float(prepared.values({}, {"vllm-2023": {"host_step_s": 5e-3, "host_seq_s": 1e-3}})[0])
    assert hosted - bare == pytest.approx(9.0)  # 5 ms and 1 ms for each of 4 sequences
    assert one().value == pytest.approx(bare)


def test_the_smaller_of_a_device_and_a_slow_host_never_wins():
    prepared = prepare([row(kind="measured", source="splitwise-sim", engine="vllm (2023)")])
    floored = float(prepared.values({}, {"vllm-2023": {"layer_floor_s": 1e-3}})[0])
    assert floored == pytest.approx(36.0)  # 36 layers of one millisecond


def test_bands_hold_the_prediction_and_are_wider_for_unseen_devices():
    known = predict_rows([row()], {"h100": {}}, {})[0]
    unseen = predict_rows([row()], {}, {})[0]
    for p in (known, unseen):
        assert p.low < p.value < p.high
    assert unseen.high / unseen.low > known.high / known.low


def test_operators_need_no_model():
    product = one(metric="op_ms", phase="gemm", model="-", note="m=4096;n=4096;k=4096")
    assert product.value > 1e3 * 2 * 4096**3 / hardware("h100").peak_flops_per_s["bf16"].value
    note = "kind=generation;heads=32;kv_heads=8;head_dim=128;one_layer=1"
    attention = one(metric="op_ms", phase="attention", model="-", weight_dtype="-", context_tokens=8192, note=note)
    assert attention.value > 1e3 * 4 * 8192 * 2 * 2 * 8 * 128 / hardware("h100").bandwidth_bytes_per_s.value / 4


def test_serving_closed_loop_charges_the_prefills_in_between():
    serving = {"phase": "e2e", "metric": "tpot_ms", "kind": "measured (serving)", "engine": "vllm-0.19.0"}
    short = one(**serving, batch=16, input_tokens=128, output_tokens=1024, context_tokens=0)
    long = one(**serving, batch=16, input_tokens=8192, output_tokens=64, context_tokens=0)
    decode = one(batch=16, context_tokens=128 + 512).value
    assert decode < short.value < 1.2 * decode
    assert long.value > 5 * decode


def test_an_open_loop_takes_its_concurrency_from_the_rate():
    serving = {"phase": "e2e", "metric": "tpot_ms", "kind": "measured (serving)", "batch": "", "input_tokens": 512,
               "output_tokens": 256, "context_tokens": 0}  # fmt: skip
    slow, fast = (one(**serving, note=f"rate_req_s={rate}") for rate in (0.01, 8))
    alone = one(batch=1, context_tokens=512 + 128).value
    assert slow.value == pytest.approx(alone, rel=0.02)
    assert fast.value > 1.1 * slow.value


def test_every_device_and_model_of_the_alias_table_exists():
    tables = names._tables()
    assert [n for n in tables["hardware"] if names.find_device(n) is None] == []
    assert [n for n in tables["models"] if names.find_model(n) is None] == []
    assert [n for n in tables["weights"] if names.find_weight_dtype(n) is None] == []


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("meta-llama/Meta-Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("Qwen3-30B-A3B-Instruct-2507-Q4_K_M.gguf", "Qwen/Qwen3-30B-A3B"),
        ("mlx-community/Qwen3-0.6B-4bit", "Qwen/Qwen3-0.6B"),
        ("Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf", "meta-llama/Llama-3.1-8B"),
        ("ArliAI_Qwen3.5-27B-RpRMax-v1-Q4_K_M.gguf", "Qwen/Qwen3.5-27B"),
        ("gpt-oss-20b-MXFP4.gguf", "openai/gpt-oss-20b"),
    ],
)
def test_names_of_files_and_variants(written, meant):
    found = names.find_model(written)
    assert found is not None
    assert found.name == meant


@pytest.mark.parametrize("written", ["Qwen3.5-7B-Nothing", "GPT-5", "xQwen3-8B2", ""])
def test_no_name_is_guessed(written):
    assert names.find_model(written) is None


def test_host_defaults_are_no_time_at_all():
    assert all(value == 0.0 for name, value in HOST.items() if name.endswith("_s"))
