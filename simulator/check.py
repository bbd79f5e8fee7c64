"""What a scenario builds: models on their devices, memory fit, tasks, and what acceptance stands on."""

from __future__ import annotations

from typing import Any

from costmodel.api import Api
from costmodel.deployment import Deployment, cache_rule, kv_capacity_tokens, weights_per_device_bytes
from costmodel.protocol import Role
from simulator.case import Case, longest_context, prepare
from simulator.scenario import Scenario
from simulator.scenario_file import to_document
from simulator.traces.stats import summary


def check(scenario: Scenario) -> dict[str, Any]:
    """Build a scenario and say what came of it.

    Raises
    ------
    InputError
        The scenario names something unknown or impossible: the first fault.
    """
    case = prepare(scenario)
    return {
        "scenario": to_document(scenario),
        "models": {str(role): _site(case, role) for role in Role},
        "link": None if scenario.link is None else to_document(scenario.link),
        "workload": {
            "name": case.workload.name,
            "kind": case.workload.kind,
            "source": case.workload.source,
            **summary(case.workload),
            "missing": sorted({m for t in case.workload.trajectories for m in t.missing}),
        },
        "tasks": {"n": len(case.tasks), "steps": sum(len(t.steps) for t in case.tasks)},
        "acceptance": {
            "value": case.acceptance.value,
            "low": case.acceptance.low,
            "high": case.acceptance.high,
            "rung": case.rung,
        },
        "notes": _notes(case),
    }


def _site(case: Case, role: Role) -> dict[str, Any]:
    server, side = case.sites[role].server, case.side(role)
    longest = longest_context(case.tasks, role)
    shared = {"label": server.label, "thinking": side.thinking, "longest_context_tokens": longest}
    if isinstance(server, Api):
        prices = ("input", "cached", "cache_write", "output")
        usd = {k: round(getattr(server, f"{k}_usd") * 1e6, 9) for k in prices}
        return {**shared, "api": server.name, "usd_per_mtok": usd}
    assert server.hardware.memory_bytes is not None
    return {
        **shared,
        "model": server.model.name,
        "hardware": server.hardware.name,
        "n_devices": server.n_devices,
        "replicas": side.replicas,
        "weight_dtype": server.weight_dtype,
        "kv_dtype": server.kv_dtype,
        "compute_dtype": server.compute_dtype,
        "engine": server.engine.name,
        "max_context_tokens": server.model.max_context_tokens,
        "memory": _memory(server),
        "usd_per_h": case.usd_per_h[role],
    }


def _memory(dep: Deployment) -> dict[str, float]:
    """Bytes on one device: usable, weights, reserve, what is left for the cache, and the tokens that holds."""
    assert dep.hardware.memory_bytes is not None
    usable = dep.hardware.memory_bytes.value * dep.engine.memory_share
    weights = weights_per_device_bytes(dep)
    return {
        "usable_bytes": usable,
        "weight_bytes": weights,
        "reserve_bytes": dep.engine.reserve_bytes,
        "cache_bytes": usable - weights - dep.engine.reserve_bytes,
        "kv_cache_tokens": kv_capacity_tokens(dep),
        "cache_block_tokens": cache_rule(dep).block_tokens,
    }


def _notes(case: Case) -> list[str]:
    """Things that are allowed but that somebody should know before planning."""
    found = []
    for role in Role:
        server = case.sites[role].server
        if isinstance(server, Api):
            continue
        if case.usd_per_h[role] is None:
            found.append(f"{role}: no price of {server.hardware.name} is known, so money is not; set {role}.usd_per_h")
    steps = [s for t in case.tasks for s in t.steps]
    held = sum(s.effect == "unknown" for s in steps)
    if held:
        found.append(
            f"{held} of {len(steps)} steps have tools of unknown effect and are held; name them in [effects.map]"
        )
    return found
