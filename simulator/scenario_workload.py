"""The trajectories that a scenario's [workload] names: a trace, bundled or recorded, or a draw from a law."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from costmodel.trajectory import Workload
from hwprofiles.errors import InputError, ProfileError
from simulator.effects import EffectMap
from simulator.effects_file import effects_from_table
from simulator.law import draw, law, law_names
from simulator.scenario import Scenario
from simulator.workloads import rescale, workload, workload_names

_LAW_KEYS = ("steps", "write_share", "reply_share", "output_tokens", "observation_tokens", "context_tokens")
_N_DRAWN = 100
_MOST_WORK = 500_000


def workload_of(scenario: Scenario) -> Workload:
    """The workload of a scenario, rescaled as it says.

    Raises
    ------
    InputError
        No such trace or law, nothing in it, or too much of it.
    """
    w = scenario.workload
    scales_tools = scenario.tools.law in (None, "trace")
    if w.law is not None:
        chosen = {k: getattr(w, k) for k in _LAW_KEYS if getattr(w, k) is not None}
        if scenario.tools.latency_s is not None and scales_tools:
            chosen["tool_latency_s"] = scenario.tools.latency_s
        base, n = law(w.law).with_(**chosen), w.n or _N_DRAWN
        bounded(3 * n * base.steps, n, 1)
        return draw(base, n, w.seed)
    assert w.trace is not None
    found = _trace(w.trace, w.format, _effects(scenario))
    found = rescale(
        found,
        output_tokens=w.output_tokens,
        observation_tokens=w.observation_tokens,
        context_tokens=w.context_tokens,
        tool_latency_s=scenario.tools.latency_s if scales_tools else None,
    )
    kept = [t for t in found.trajectories if t.steps]
    if not kept:
        raise InputError(f"workload.trace {w.trace!r} holds no step")
    return replace(found, trajectories=tuple(kept[: w.n] if w.n else kept))


def _trace(name: str, format_: str | None, effects: EffectMap | None) -> Workload:
    if name in law_names():
        raise InputError(f"workload.trace = {name!r} is a law; write workload.law = {name!r}")
    if name in workload_names():
        if format_ is not None:
            raise ProfileError(f"workload.format has no effect on the bundled workload {name!r}")
        found = workload(name)
        if effects is None:
            return found
        from simulator.traces.read import reclassified

        return reclassified(found, effects)
    if not Path(name).exists():
        return workload(name)
    from simulator.traces.read import read_trace

    return read_trace([Path(name)], format=format_, effects=effects).workload


def _effects(scenario: Scenario) -> EffectMap | None:
    section = scenario.effects
    table: dict[str, object] = {"effects": dict(section.map)}
    if section.mcp_tools is not None:
        table["tools_list"] = [section.mcp_tools]
    if not section.map and section.mcp_tools is None:
        return None
    return effects_from_table(table, where="scenario effects", folder=Path())


def bounded(work: float, n: int, window: int) -> None:
    """Raise `InputError` for more replayed steps than a plan should take."""
    if work > _MOST_WORK:
        raise InputError(
            f"workload: {n} trajectories at window {window} need about {work:.0f} replayed steps, more than "
            f"{_MOST_WORK}; lower workload.n, workload.steps or protocol.window"
        )
