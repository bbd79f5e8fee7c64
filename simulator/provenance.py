"""What an answer rests on: every input with its value, tier and source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from costmodel.api import Api
from costmodel.deployment import Deployment
from costmodel.protocol import Role
from simulator.case import Case
from simulator.sampling import inputs
from simulator.scenario_file import to_document


def rows(case: Case) -> list[dict[str, Any]]:
    """Datasheet facts, factors, behaviour and workload, strongest tiers first."""
    found = [*_facts(case), *_inputs(case), *_fixed(case), *_world(case)]
    order = ("datasheet", "measured", "fitted", "assumed")
    return sorted({r["input"]: r for r in found}.values(), key=lambda r: (order.index(r["tier"]), r["input"]))


def _row(name: str, value: Any, tier: str, source: str) -> dict[str, Any]:
    return {"input": name, "value": value, "tier": tier, "source": source}


def _facts(case: Case) -> Iterator[dict[str, Any]]:
    for role, site in case.sites.items():
        server = site.server
        if isinstance(server, Api):
            for name in ("input", "cached", "cache_write", "output"):
                usd = getattr(server, f"{name}_usd")
                own = case.side(role).prices is not None and getattr(case.side(role).prices, name) is not None
                source = "scenario" if own else server.price_source
                yield _row(f"{server.name}.{name}_usd_per_mtok", usd * 1e6, "assumed" if own else "datasheet", source)
            continue
        yield from _device(case, role, server)


def _device(case: Case, role: Role, dep: Deployment) -> Iterator[dict[str, Any]]:
    device = dep.hardware
    named = {
        f"peak_flops_per_s.{dep.compute_dtype}": device.peak_flops_per_s[dep.compute_dtype],
        "bandwidth_bytes_per_s": device.bandwidth_bytes_per_s,
        "memory_bytes": device.memory_bytes,
        "tdp_w": device.tdp_w,
        "link.bandwidth_bytes_per_s": device.link.bandwidth_bytes_per_s if device.link else None,
    }
    for name, fact in named.items():
        if fact is not None:
            yield _row(f"{device.name}.{name}", fact.value, fact.tier, fact.source)
    if case.side(role).usd_per_h is not None:
        yield _row(f"{role}.usd_per_h", case.usd_per_h[role], "assumed", "scenario")
    elif device.usd_per_h is not None:
        yield _row(f"{device.name}.usd_per_h", device.usd_per_h.value, device.usd_per_h.tier, device.usd_per_h.source)
    yield _row(f"{role}.model", dep.model.name, "datasheet", dep.model.source or "model configuration")
    for name, (tier, source) in dep.engine.sources.items():
        yield _row(f"{dep.engine.name}.{name}", getattr(dep.engine, name), tier, source)


def _inputs(case: Case) -> Iterator[dict[str, Any]]:
    for i in inputs(case):
        value = {"value": i.band.value, "low": i.band.low, "high": i.band.high}
        yield _row(i.name, i.band.value if i.band.is_exact else value, i.band.tier, i.band.source)


def _world(case: Case) -> Iterator[dict[str, Any]]:
    """What the scenario says of tools, users, the link, limits and arrivals: all of it its own word."""
    s = case.scenario
    own = {
        role: {k: getattr(case.side(role), k) for k in ("router", "route_per", "limits", "cache_ttl_s")}
        for role in Role
    }
    sections: dict[str, Any] = {
        "tools": to_document(s.tools),
        "users": to_document(s.users),
        "link": {k: v for k, v in (to_document(s.link) or {}).items() if k not in ("rtt_s", "bytes_per_s")},
        "load": {k: v for k, v in to_document(s.load).items() if k.startswith(("arrivals", "sessions"))},
        **{role.value: {k: to_document(v) for k, v in keys.items() if v is not None} for role, keys in own.items()},
    }
    for section, table in sections.items():
        for key, value in (table or {}).items():
            yield _row(f"{section}.{key}", value, "assumed", "scenario")


def _fixed(case: Case) -> Iterator[dict[str, Any]]:
    p = case.scenario.protocol
    tier = "measured" if case.workload.kind == "trace" else "fitted"
    yield _row(
        "workload",
        f"{case.workload.name}, {len(case.tasks)} trajectories",
        tier,
        case.workload.source or "user's trace",
    )
    yield _row("protocol.window", p.window, "assumed", "scenario")
    yield _row("protocol.instruction_tokens", p.instruction_tokens, "assumed", "scenario or default; not published")
    yield _row("step_ratio", 1, "assumed", "the weak model takes as many steps as the strong one")
    for role in Role:
        yield _row(f"{role}.thinking", case.side(role).thinking, "assumed", "scenario")
