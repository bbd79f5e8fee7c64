"""The efficiency and engine factors of one deployment: drawn, set by hand, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from costmodel.deployment import Deployment
from hwprofiles.efficiency import Factor, factor_range
from hwprofiles.errors import InputError, unknown_name
from simulator.sampling import deployment_inputs, draw_samples, sampled


def drawn_factors(dep: Deployment, n: int, seed: int) -> dict[str, Any]:
    """Quasi-Monte-Carlo points over all factors: name -> array (n,), for `StepModel`."""
    samples = draw_samples(tuple(deployment_inputs(dep)), n, seed)
    device = {k: sampled(samples, f"{dep.hardware.name}.{k}", f.value) for k, f in dep.efficiency.factors.items()}
    return device | {k: sampled(samples, f"{dep.engine.label}.{k}", f.value) for k, f in dep.engine.factors.items()}


def with_factors(dep: Deployment, values: Mapping[str, Any]) -> Deployment:
    """The deployment with some efficiency or engine factors set to exact values.

    Raises
    ------
    InputError
        Unknown factor, or a value out of its range (`hwprofiles.efficiency.factor_range`); only seconds, joules and
        counts may be 0.
    """
    device, engine = dict(dep.efficiency.factors), dict(dep.engine.factors)
    for name, value in values.items():
        if name not in device and name not in engine:
            raise unknown_name("factor", name, [*device, *engine])
        low, high = factor_range(name)
        share = low == 0 and not name.endswith(("_s", "_j", "_k", "_n", "_tokens"))
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not (low <= value <= high) or (value == 0 and share):
            allowed = "above 0 and at most 1" if share else f"from {low:g} to {high:g}"
            raise InputError(f"factor {name} must be a number {allowed}, got {value!r}")
        exact = Factor(value=float(value), low=float(value), high=float(value), tier="assumed", source="set by hand")
        (device if name in device else engine)[name] = exact
    return replace(dep, efficiency=replace(dep.efficiency, factors=device), engine=replace(dep.engine, factors=engine))


def sources(dep: Deployment) -> dict[str, dict[str, str]]:
    """Tier and source of every number behind a step."""
    device = dep.hardware
    facts = {
        f"{device.name}.peak_flops_per_s.{dep.compute_dtype}": device.peak_flops_per_s[dep.compute_dtype],
        f"{device.name}.bandwidth_bytes_per_s": device.bandwidth_bytes_per_s,
        f"{device.name}.memory_bytes": device.memory_bytes,
        f"{device.name}.link.bandwidth_bytes_per_s": device.link.bandwidth_bytes_per_s if device.link else None,
        f"{device.name}.tdp_w": device.tdp_w,
    }
    found = {name: {"tier": str(f.tier), "source": f.source} for name, f in facts.items() if f is not None}
    found["model"] = {"tier": "datasheet", "source": dep.model.source or "model configuration"}
    for i in deployment_inputs(dep):
        found[i.name] = {"tier": str(i.band.tier), "source": i.band.source}
    return found


def tiers(dep: Deployment) -> dict[str, int]:
    """How many of those numbers are datasheet facts, measured, fitted and assumed."""
    known = [entry["tier"] for entry in sources(dep).values()]
    return {tier: known.count(tier) for tier in ("datasheet", "measured", "fitted", "assumed")}
