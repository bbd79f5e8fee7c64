"""Every key of a scenario is documented and has an effect: another legal value gives another answer, or is refused."""

from __future__ import annotations

import json
from functools import cache

import pytest

from hwprofiles.errors import InputError
from simulator.plan import plan
from simulator.scenario import PARAMETERS
from simulator.scenario_file import all_keys, load_scenario, scenario_keys, to_document

SMALL = ("run.samples=16", "workload.n=2", 'strategies=["strong_only", "spec_agent"]')
LLAMA, LAW, CLOUD, THINKING = "llama-a100", "autonomous-h200", "edge-cloud", "retail-h200"
LOADED = ("concurrency=3", "load.n_trajectories=4", "run.seeds=2")
CROWDED = ("concurrency=5", "load.n_trajectories=6", "run.seeds=2", "workload.n=5")
TOGETHER = ("weak.n_devices=4", "weak.memory_share=0.2", "strong.memory_share=0.7", *CROWDED)
PARETO = ("tools.law=pareto", "tools.shape=1.5", "tools.spread=1000", "tools.latency_s=3")
FAILING = ("tools.failure=0.2", "tools.failure_s=1", "tools.latency_s=5")
TALKING = ("workload.reply_share=0.5", "workload.n=4", *CROWDED[:3])
GAPS = ("users.law=pareto", "users.gap_s=900", "users.shape=1.5", "users.spread=1000")
JITTER = ("link.jitter_s=1", "link.jitter_law=lognormal", "link.jitter_sigma=0.5")
HEAVY_JITTER = ("link.jitter_s=1", "link.jitter_law=pareto", "link.jitter_shape=1.5", "link.jitter_spread=1000")
OUTAGES = ("link.outage_every_s=20", "link.outage_s=9", "load.n_trajectories=4", "run.seeds=2")
AGAIN = ("link.timeout_s=3", "link.retries=40", "link.backoff_s=1")

GUESSING, TASK_ROUTED, STEP_ROUTED, ADAPTIVE = (
    f'strategies=["strong_only", "{name}"]'
    for name in ("step_speculation", "task_router", "step_router", "spec_agent_adaptive")
)

# key: (bundled scenario, another value, settings that the key needs)
OTHER = {
    "strategies": (LLAMA, '["strong_only", "weak_only"]', ()),
    "weak.model": (LLAMA, "meta-llama/Llama-3.1-8B", ()),
    "weak.hardware": (LLAMA, "h100", ()),
    "weak.n_devices": (LLAMA, "2", ()),
    "weak.weight_dtype": (LLAMA, "int4", ()),
    "weak.kv_dtype": (LLAMA, "fp8", ()),
    "weak.replicas": (LLAMA, "2", ()),
    "weak.max_seqs": (LLAMA, "1", LOADED),
    "weak.chunk_tokens": (LLAMA, "512", ()),
    "weak.page_tokens": (LLAMA, "512", ()),
    "weak.thinking": (LLAMA, "true", ("thinking_tokens=100", "strong.thinking=true")),
    "weak.prompt_tokens": (LLAMA, "9000", ()),
    "weak.usd_per_h": (LLAMA, "7", ()),
    "weak.decode": (THINKING, '{method="mtp", length=2, acceptance=0.7}', ()),
    "weak.expert_parallel": (THINKING, "2", ("weak.model=Qwen/Qwen3.5-35B-A3B", "weak.n_devices=2")),
    "strong.decode": (LLAMA, '{method="draft", length=2, acceptance=0.7, draft_model="meta-llama/Llama-3.2-1B"}', ()),
    "strong.expert_parallel": (THINKING, "8", ()),
    "weak.memory_share": (LLAMA, "0.14", CROWDED),
    "strong.memory_share": (LLAMA, "0.465", CROWDED),
    "strong.share_devices_with": (LLAMA, "weak", TOGETHER),
    "strong.model": (LLAMA, "meta-llama/Llama-3.1-8B", ()),
    "strong.hardware": (LLAMA, "h100", ()),
    "strong.n_devices": (LLAMA, "8", ()),
    "strong.weight_dtype": (LLAMA, "int4", ()),
    "strong.kv_dtype": (LLAMA, "fp8", ()),
    "strong.replicas": (LLAMA, "2", ()),
    "strong.max_seqs": (LLAMA, "1", LOADED),
    "strong.chunk_tokens": (LLAMA, "512", ()),
    "strong.page_tokens": (LLAMA, "512", ()),
    "strong.thinking": (THINKING, "false", ()),
    "strong.prompt_tokens": (LLAMA, "9000", ()),
    "strong.usd_per_h": (LLAMA, "7", ()),
    "strong.prices": (CLOUD, "{output=1}", ()),
    "workload.trace": (LLAMA, "airline", ()),
    "workload.n": (LLAMA, "3", ()),
    "workload.seed": (LAW, "1", ()),
    "workload.steps": (LAW, "5", ()),
    "workload.write_share": (LAW, "0.5", ()),
    "workload.reply_share": (LAW, "0.4", ()),
    "workload.output_tokens": (LLAMA, "300", ()),
    "workload.observation_tokens": (LLAMA, "900", ()),
    "workload.context_tokens": (LLAMA, "9000", ()),
    "workload.thinking_tokens": (THINKING, "10", ()),
    "workload.verbosity": (LLAMA, "3", ()),
    "workload.shared_prefix_tokens": (LLAMA, "2000", ()),
    "protocol.window": (LAW, "2", ()),
    "protocol.acceptance": (LLAMA, "0.7", ()),
    "protocol.acceptance_by_position": (LLAMA, "[0.7, 0.9]", ()),
    "protocol.verdict_tokens": (LLAMA, "100", ()),
    "protocol.instruction_tokens": (LLAMA, "2000", ()),
    "protocol.repair_mode": (LLAMA, "continue", ()),
    "protocol.match": (LLAMA, "0.2", (GUESSING, "tools.latency_s=1")),
    "protocol.router_share": (LLAMA, "0.2", (TASK_ROUTED,)),
    "protocol.router_most_steps": (LLAMA, "100", (TASK_ROUTED,)),
    "protocol.router_shares": (LLAMA, "{start=1}", (STEP_ROUTED,)),
    "protocol.adaptive_rule": (LLAMA, "counts", (ADAPTIVE,)),
    "protocol.adaptive_least_window": (LLAMA, "4", (ADAPTIVE,)),
    "tools.latency_s": (LLAMA, "3", ()),
    "tools.law": (LLAMA, "constant", ("tools.latency_s=3",)),
    "tools.sigma": (LLAMA, "1", ("tools.law=lognormal", "tools.sigma=0.5", "tools.latency_s=3", "tools.timeout_s=4")),
    "tools.shape": (LLAMA, "3", (*PARETO, "tools.timeout_s=4")),
    "tools.spread": (LLAMA, "9", (*PARETO, "tools.timeout_s=4")),
    "tools.failure": (LLAMA, "0.5", FAILING),
    "tools.failure_s": (LLAMA, "9", FAILING),
    "tools.hang": (LLAMA, "0.3", (*FAILING, "tools.timeout_s=20")),
    "tools.timeout_s": (LLAMA, "0.5", FAILING),
    "tools.retries": (LLAMA, "3", FAILING),
    "tools.backoff_s": (LLAMA, "3", (*FAILING, "tools.retries=1")),
    "tools.concurrency": (LLAMA, "1", (*LOADED, "tools.latency_s=9")),
    "tools.by_effect": (LLAMA, '{read={law="constant", latency_s=5}}', ()),
    "tools.by_tool": (LLAMA, '{"*"={law="constant", latency_s=5}}', ()),
    "users.law": (THINKING, "empirical", ("users.law=constant", "users.gap_s=900", *CROWDED)),
    "users.gap_s": (LAW, "900", ("users.law=constant", "users.gap_s=1", *TALKING)),
    "users.sigma": (LAW, "3", ("users.law=lognormal", "users.gap_s=90", "users.sigma=1", *TALKING)),
    "users.shape": (LAW, "9", (*GAPS, *TALKING)),
    "users.spread": (LAW, "3", (*GAPS, *TALKING)),
    "effects.map": (LLAMA, '{"*"="write"}', ()),
    "link.rtt_s": (CLOUD, "1", ()),
    "link.bytes_per_s": (CLOUD, "1e4", ()),
    "link.before": (CLOUD, "both", ()),
    "link.jitter_s": (CLOUD, "3", JITTER),
    "link.jitter_sigma": (CLOUD, "3", (*JITTER, *LOADED)),
    "link.jitter_shape": (CLOUD, "9", (*HEAVY_JITTER, *LOADED)),
    "link.jitter_spread": (CLOUD, "3", (*HEAVY_JITTER, *LOADED)),
    "link.outage_every_s": (CLOUD, "100", OUTAGES),
    "link.outage_s": (CLOUD, "90", OUTAGES),
    "link.timeout_s": (CLOUD, "0.5", (*OUTAGES, *AGAIN)),
    "link.retries": (CLOUD, "40", (*OUTAGES, "link.timeout_s=6", "link.retries=1", "link.backoff_s=1")),
    "link.backoff_s": (CLOUD, "9", (*OUTAGES, *AGAIN)),
    "strong.latency": (CLOUD, "{request_s=1, output_token_s=0.1}", ()),
    "strong.limits": (CLOUD, "{requests_per_min=4}", ("load.n_trajectories=4", "run.seeds=2")),
    "strong.cache_ttl_s": (CLOUD, "0.001", ("load.n_trajectories=4", "run.seeds=2")),
    "weak.router": (LLAMA, "round_robin", ("weak.replicas=2", *CROWDED)),
    "weak.route_per": (LLAMA, "request", ("weak.replicas=2", *CROWDED)),
    "strong.router": (LLAMA, "round_robin", ("strong.replicas=2", *CROWDED)),
    "strong.route_per": (LLAMA, "request", ("strong.replicas=2", *CROWDED)),
    "load.concurrency": (LLAMA, "3", LOADED[1:]),
    "load.arrival_rate_per_s": (LLAMA, "0.001", LOADED[1:]),
    "load.n_trajectories": (LLAMA, "6", LOADED),
    "quality.weak_hazard": (LLAMA, "0.2", ()),
    "quality.strong_hazard": (LLAMA, "0.2", ()),
    "quality.detection": (LLAMA, "0.9", ()),
    "quality.false_reject": (LLAMA, "0.2", ()),
    "quality.recovery": (LLAMA, "0.9", ()),
    "quality.recovery_weak": (LLAMA, "0.9", ()),
    "quality.recovery_strong": (LLAMA, "0.9", ()),
    "quality.recovery_mode": (LLAMA, "immediate", ()),
    "quality.heterogeneity": (LLAMA, "0.3", ()),
    "quality.reviewer_correlation": (LLAMA, "0.5", ("quality.heterogeneity=0.3",)),
    "quality.irreversible": (LLAMA, "0.5", ()),
    "quality.hold_failure": (LLAMA, "0.5", ()),
    "quality.hold_failure_sticky": (LAW, "false", ("quality.hold_failure=0.5", "workload.write_share=0.6")),
    "quality.detection_depth_steps": (LAW, "1", ()),
    "objective.minimise": (LLAMA, "flops", ()),
    "objective.success_drop_max": (LLAMA, "0.5", ()),
    "objective.money": (LLAMA, "shared", ()),
    "objective.target_utilisation": (LLAMA, "0.9", ("objective.money=shared",)),
    "run.seed": (LLAMA, "1", ()),
    "run.seeds": (LLAMA, "3", LOADED),
    "run.precision": (LLAMA, "0.001", LOADED),
    "run.horizon_s": (LLAMA, "60", LOADED),
    "run.samples": (LLAMA, "32", ()),
}

# Keys of which one value exists, that are refused beside the bundled ones, or that need a file; tested elsewhere.
ELSEWHERE = {"title", "weak.engine", "strong.engine", "weak.api", "strong.api", "weak.prices", "workload.law"}
ELSEWHERE |= {"workload.format", "effects.mcp_tools", "run.calibration", "weak.share_devices_with"}
# Of tests/simulator: files of times and arrivals (test_world_keys, test_rough_worlds), APIs before the weak model, and
# what concerns `simulate` alone (test_precision).
ELSEWHERE |= {"tools.latency_file", "users.gap_file", "load.arrivals", "load.arrivals_speed", "load.sessions"}
ELSEWHERE |= {"link.jitter_law", "strong.prices_from"}
ELSEWHERE |= {f"weak.{k}" for k in ("prices_from", "latency", "limits", "cache_ttl_s")}
ELSEWHERE |= {"run.seeds_max", "run.confidence"}
ELSEWHERE |= {"quality.judgements"}  # a file: tests/risk


def _settings(key, value):
    return [*([k for k in SMALL if not k.startswith(f"{key}=")]), *([f"{key}={value}"] if value is not None else [])]


@cache
def _answer(name, settings):
    document = plan(load_scenario(name, settings)).document()
    return json.dumps({k: v for k, v in document.items() if k not in ("scenario", "title", "provenance")}, default=str)


def test_every_key_is_tried():
    assert set(OTHER) | ELSEWHERE == set(all_keys())
    assert not set(OTHER) & ELSEWHERE


def _is_simulated(key):
    """Keys that need a simulated plan; those of a world around the engines take their time."""
    world = key.startswith(("users.", "link.outage", "link.timeout", "link.retries", "link.backoff", "link.jitter_s"))
    return world or key.endswith(
        (".router", ".route_per", ".limits", ".cache_ttl_s", ".precision", "tools.concurrency")
    )


@pytest.mark.parametrize("key", [pytest.param(k, marks=pytest.mark.slow) if _is_simulated(k) else k for k in OTHER])
def test_another_value_gives_another_answer(key):
    name, value, needs = OTHER[key]
    changed = (*_settings(key, value)[:-1], *needs, f"{key}={value}")
    before = to_document(load_scenario(name, (*SMALL, *needs)))
    after = to_document(load_scenario(name, changed))
    assert before != after
    assert _answer(name, (*SMALL, *needs)) != _answer(name, changed)


def test_every_key_has_unit_meaning_and_type():
    listed = {k["key"]: k for k in scenario_keys()}
    assert set(listed) >= set(all_keys())
    for key, row in listed.items():
        assert row["meaning"], key
        assert isinstance(row["unit"], str), key
        assert row["type"], key
        assert row["tier"] in {"assumed", "measured", "fitted", "datasheet"}, key
        quantity = row["type"].startswith(("whole", "number"))
        assert row["unit"] or not quantity or key.endswith("seed"), key
    assert {k["parameter"] for k in listed.values()} - {None} == set(PARAMETERS)


@pytest.mark.parametrize("row", [k for k in scenario_keys() if k["default"] is not None], ids=lambda k: k["key"])
def test_a_key_given_at_its_default_changes_nothing(row):
    """What the list says is the default is what an absent key means."""
    key = row["key"]
    if key.startswith("link."):
        base = load_scenario(CLOUD).with_(**{"link.bytes_per_s": None})
    else:
        base = load_scenario(LLAMA).with_(**{key: None}) if not key.startswith(("weak.", "strong.")) else None
    if base is None:
        fresh = to_document(load_scenario(LLAMA))
        role, name = key.split(".")
        fresh[role].pop(name)
        from simulator.scenario_file import from_document

        try:
            base = from_document(fresh, "x")
        except InputError:
            pytest.fail(f"{key} has a default and is yet needed")
    assert base.with_(**{key: row["default"]}) == base


def test_short_names_and_dotted_keys_are_the_same():
    scenario = load_scenario(CLOUD)
    for short, dotted in PARAMETERS.items():
        if dotted in ("workload.steps", "workload.write_share", "workload.reply_share", "workload.thinking_tokens"):
            continue
        value = {"window": 2, "concurrency": 2}.get(short, 1.0)
        assert scenario.with_(**{short: value}) == scenario.with_(**{dotted: value}), short


def test_tools_from_an_mcp_export_set_the_effects(tmp_path):
    export = tmp_path / "tools.json"
    export.write_text(
        json.dumps({"tools": [{"name": "get_order_details", "annotations": {"readOnlyHint": False}}]}), encoding="utf-8"
    )
    settings = (*SMALL, f"effects.mcp_tools={export}")
    assert _answer(LLAMA, settings) != _answer(LLAMA, SMALL)


@pytest.mark.parametrize(
    ("name", "setting", "words"),
    [
        (LLAMA, "weak.engine=sglang", "engine"),
        (LLAMA, "workload.format=neutral", "no effect"),
        (LAW, "workload.format=neutral", "no effect"),
        (LLAMA, "workload.seed=3", "no effect"),
        (THINKING, "weak.thinking=false", "two sources"),
        (LLAMA, "weak.prices={input=1}", "no effect"),
        (CLOUD, "strong.replicas=2", "no effect"),
        (LLAMA, "protocol.match=0.5", "no effect without step_speculation"),
        (LLAMA, "protocol.router_share=0.1", "no effect without task_router"),
        (LLAMA, "protocol.adaptive_rule=counts", "no effect without spec_agent_adaptive"),
    ],
)
def test_a_key_that_cannot_have_an_effect_is_refused(name, setting, words):
    with pytest.raises(InputError, match=words):
        plan(load_scenario(name, (*SMALL, setting)))
