"""vLLM's counters of FLOPs and bytes against the cost model: equal once the named differences are added."""

from __future__ import annotations

import json
from importlib import resources
from types import SimpleNamespace

import pytest

from costmodel.deployment import deploy
from costmodel.models import model
from costmodel.request import Pass, plan_request
from costmodel.step import StepModel
from validate.counters import COMPONENTS, Step, Work, ours, solo_steps
from validate.counters_differences import differences

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

QWEN, LLAMA, MOE, FP8 = "Qwen/Qwen3-8B", "meta-llama/Llama-3.1-70B", "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-32B-FP8"
STEPS = {
    "cold prefill in two chunks": [Step((Pass(4000, 0, False),)), Step((Pass(4000, 4000, True),))],
    "verify 300 behind 8000": [Step((Pass(300, 8000, True),))],
    "decode 1": [Step((), (8000,))],
    "decode 16": [Step((), (8000,) * 16)],
    "mixed": [Step((Pass(300, 5000, True), Pass(1, 100, False)), (10, 700, 9000))],
}


def shape_of(name, quantised, cache_dtype, devices, experts_apart):
    """What vLLM's estimate reads of its configuration, from a model's config.json."""
    import torch

    file = resources.files("costmodel") / "data" / "models" / (name.replace("/", "--") + ".json")
    fields = json.loads(file.read_text())
    fields.pop("quantization_config", None)
    hf = SimpleNamespace(**fields)
    described = SimpleNamespace(
        get_vocab_size=lambda: hf.vocab_size,
        get_hidden_size=lambda: hf.hidden_size,
        get_total_num_kv_heads=lambda: hf.num_key_value_heads,
        get_head_size=lambda: fields.get("head_dim") or hf.hidden_size // hf.num_attention_heads,
        get_sliding_window=lambda: fields.get("sliding_window"),
        get_num_experts=lambda: fields.get("num_experts") or fields.get("num_local_experts", 0),
        get_num_experts_per_tok=lambda: fields.get("num_experts_per_tok", 0),
        hf_text_config=hf,
        hf_config=hf,
        dtype=torch.bfloat16,
        disable_sliding_window=False,
        is_deepseek_mla=False,
    )
    parallel = SimpleNamespace(
        data_parallel_size=1,
        tensor_parallel_size=devices,
        pipeline_parallel_size=1,
        enable_expert_parallel=experts_apart,
    )
    return SimpleNamespace(
        model_config=described,
        cache_config=SimpleNamespace(cache_dtype=cache_dtype),
        quant_config=SimpleNamespace(get_name=lambda: quantised) if quantised else None,
        parallel_config=parallel,
    )


def theirs(metrics, steps):
    """vLLM's estimate of some steps, by our components."""
    from vllm.v1.metrics.perf import ExecutionContext

    total = dict.fromkeys(COMPONENTS, Work())
    attention = next(m for m in metrics.metrics if m.component_type() == "attn")
    heads = max(1, attention.num_attention_heads // attention.tp_size)
    for step in steps:
        context = ExecutionContext()
        for p in step.prefill:
            context.add(p.new_tokens, p.context_tokens + p.new_tokens, is_prefill=True)
        for cached in step.decode:
            context.add(1, cached + 1, is_prefill=False)
        queries = context.total_num_tokens() * heads * attention.head_dim * 2 * attention.num_hidden_layers
        parts = [(k, Work(flops=v)) for k, v in metrics.get_num_flops_breakdown(context).items()]
        for key, n in metrics.get_read_bytes_breakdown(context).items():
            if key == "attn.attn_input":
                parts.append((key, Work(kv_read_bytes=n - queries, input_bytes=queries)))
            else:
                parts.append((key, Work(weight_bytes=n) if "weight" in key else Work(input_bytes=n)))
        for key, n in metrics.get_write_bytes_breakdown(context).items():
            parts.append((key, Work(kv_write_bytes=n) if key.endswith("kv_cache") else Work(output_bytes=n)))
        for key, work in parts:
            total[component(key)] = total[component(key)].plus(work)
    return total


def component(key):
    kind, name = key.split(".")
    if kind == "attn":
        return "attention" if name.startswith("attn_") or name == "kv_cache" else "projections"
    return {"ffn": "mlp", "unembed": "head"}[kind]


def explained(step_model, steps):
    found = ours(step_model, steps)
    for d in differences(step_model, steps):
        found[d.component] = found[d.component].plus(d.work)
    return found


@pytest.fixture(scope="module")
def estimate():
    perf = pytest.importorskip("vllm.v1.metrics.perf", reason="vLLM is not installed here, or counts no FLOPs")

    def make(name, *, quantised=None, cache="auto", devices=1, experts_apart=False):
        return perf.ModelMetrics(shape_of(name, quantised, cache, devices, experts_apart))

    return make


CASES = {
    "dense": (QWEN, {}, {}),
    "tensor parallel": (LLAMA, {"n_devices": 4}, {"devices": 4}),
    "experts": (MOE, {}, {}),
    "expert parallel": (MOE, {"n_devices": 4, "expert_parallel": 4}, {"devices": 4, "experts_apart": True}),
    "windows": ("openai/gpt-oss-20b", {"weight_dtype": "bf16"}, {}),
    "8 bit": (FP8, {"kv_dtype": "fp8"}, {"quantised": "fp8", "cache": "fp8"}),
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_ours_and_the_named_differences_are_theirs_in_every_component(estimate, case, steps):
    name, deployed, shaped = case
    step_model = StepModel(deploy(name, "h200", **deployed))
    counted, expected = theirs(estimate(name, **shaped), steps), explained(step_model, steps)
    for part in COMPONENTS:
        for field, a, b in zip(Work._fields, counted[part], expected[part], strict=True):
            scales = 3e-4 if name == FP8 and field == "weight_bytes" else 1e-9  # vLLM leaves out a block's scale
            assert b == pytest.approx(a, rel=scales, abs=1.0), (part, field)


@pytest.mark.parametrize("name", [QWEN, LLAMA, MOE])
def test_without_differences_weights_kv_and_products_are_within_five_percent(estimate, name):
    devices = 4 if name == LLAMA else 1
    step_model, metrics = StepModel(deploy(name, "h200", n_devices=devices)), estimate(name, devices=devices)
    for label, steps in STEPS.items():
        counted, mine = theirs(metrics, steps), ours(step_model, steps)
        for part in ("projections", "mlp"):
            assert mine[part].flops == pytest.approx(counted[part].flops, rel=0.05), label
        assert mine["attention"].kv_read_bytes == pytest.approx(counted["attention"].kv_read_bytes, rel=0.05), label
        assert mine["attention"].kv_write_bytes == pytest.approx(counted["attention"].kv_write_bytes, rel=0.05), label
        few = name == MOE and label in ("decode 16", "mixed")  # which experts a few tokens share is no fact
        if not few or label == "mixed":
            a, b = (sum(w.weight_bytes for w in one.values()) for one in (mine, counted))
            assert a == pytest.approx(b, rel=0.05), label


def tokens(start, n):
    return [256 + (start + 7 * i) % 300 for i in range(n)]


def run(engine, prompts, output_tokens):
    """Requests of token ids at once; what the engine's counters grew by."""
    from vllm import SamplingParams

    from validate.vllm_offline import _THREAD

    parameters = SamplingParams(temperature=0.0, max_tokens=output_tokens, min_tokens=output_tokens, ignore_eos=True)
    engine.metrics()
    asked = [{"prompt_token_ids": p} for p in prompts]
    _THREAD.submit(engine._llm.generate, asked, parameters, use_tqdm=False).result()
    return engine.metrics()


@pytest.fixture(scope="module")
def small(strong):
    """The cost model of the engine of 13 M weights."""
    arch = model(strong._llm.llm_engine.vllm_config.model_config.model + "/config.json")
    return StepModel(deploy(arch, "h200", chunk_tokens=strong.facts.chunk_tokens))


def expect(engine, small, steps, grown):
    found = Work()
    for work in explained(small, steps).values():
        found = found.plus(work)
    assert grown["engine_steps"] == len(steps)
    assert grown["flops"] == pytest.approx(found.flops, rel=1e-9)
    assert grown["read_bytes"] == pytest.approx(found.read_bytes, rel=1e-9)
    assert grown["write_bytes"] == pytest.approx(found.write_bytes, rel=1e-9)
    # by component: what vLLM makes of the schedule that the plan says
    from vllm.v1.metrics.perf import ModelMetrics

    counted = theirs(ModelMetrics(engine._llm.llm_engine.vllm_config), steps)
    mine = ours(small, steps)
    assert sum(w.flops for w in counted.values()) == grown["flops"]
    for part in ("projections", "mlp"):
        assert mine[part].flops == pytest.approx(counted[part].flops, rel=1e-9)
        assert mine[part].weight_bytes == pytest.approx(counted[part].weight_bytes, rel=1e-9)
    assert mine["attention"].kv_read_bytes == pytest.approx(counted["attention"].kv_read_bytes, rel=1e-9)
    assert mine["attention"].kv_write_bytes == pytest.approx(counted["attention"].kv_write_bytes, rel=1e-9)


def test_a_cold_prefill_and_the_verify_behind_it(strong, small):
    strong.restart()
    rule = strong.facts.cache_rule()
    prompt = tokens(0, 320)
    expect(strong, small, solo_steps([(320, plan_request(rule, 320, 0, 1))]), run(strong, [prompt], 1))
    plan = plan_request(rule, 360, 320, 1)
    assert plan.cached_tokens == 320
    expect(strong, small, solo_steps([(360, plan)]), run(strong, [prompt + tokens(11, 40)], 1))


def test_a_batch_that_decodes(strong, small):
    strong.restart()
    prompts = [tokens(50 * i, 30) for i in range(4)]
    steps = [Step(tuple(Pass(30, 0, True) for _ in prompts))]
    steps += [Step((), (30 + i,) * 4) for i in range(15)]
    expect(strong, small, steps, run(strong, prompts, 16))
