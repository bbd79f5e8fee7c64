"""What a scenario's keys must be together: no two sources for one thing, no key without effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import NoReturn

from hwprofiles.errors import InputError
from simulator.scenario import ModelSide, Protocol, Scenario
from simulator.scenario_goals import HAZARDS, Quality
from simulator.scenario_world import LinkSection, Load, ToolKeys, Users

BAND_LIMITS: Mapping[str, tuple[float, float]] = {
    "protocol.acceptance": (0.0, 1.0),
    "protocol.verdict_tokens": (1.0, 1e6),
    "protocol.match": (0.0, 1.0),
    "workload.thinking_tokens": (0.0, 1e6),
    "workload.verbosity": (0.05, 1e3),
    "link.rtt_s": (0.0, 3600.0),
    **{f"quality.{k}": (0.0, 1.0) for k in (*HAZARDS, "recovery_weak", "recovery_strong")},
}
"""Lowest and highest value that a band may hold."""

_LATENCY_LIMITS: Mapping[str, float] = {"request_s": 3600.0, "output_token_s": 60.0, "input_token_s": 60.0}
_LAW_KEYS: Mapping[str, tuple[str, ...]] = {"lognormal": ("sigma",), "pareto": ("shape", "spread")}
SOURCES_OF_LOAD = ("concurrency", "arrival_rate_per_s", "arrivals")


def check(s: Scenario) -> None:
    """Raise `InputError` at the first keys that contradict each other or have no effect."""
    for role in ("weak", "strong"):
        _side(role, getattr(s, role))
    _sharing(s.weak, s.strong)
    _workload(s)
    _bands(s)
    check_tools(s.tools)
    if s.users is not None:
        _users(s.users)
    if s.link is not None:
        _link(s.link)
    _load(s.load)
    _run(s)
    _protocol(s)
    _quality(s.quality)
    check_strategies(s.strategies, s.strong)
    if not s.strategies or len(set(s.strategies)) != len(s.strategies):
        _refuse("strategies: must name at least one strategy, each once")


def check_strategies(names: Sequence[str], strong: ModelSide) -> None:
    """Raise `InputError` for a strategy that the strong model's keys make another one."""
    if "token_speculation" in names and (strong.decode is None or strong.decode.length == 0):
        _refuse(
            "strategies: token_speculation is strong_only with drafted tokens; it needs [strong.decode] with a length"
        )


_ONLY: Mapping[str, str] = {
    "match": "step_speculation",
    "router_share": "task_router",
    "router_most_steps": "task_router",
    "router_shares": "step_router",
    "adaptive_rule": "spec_agent_adaptive",
    "adaptive_least_window": "spec_agent_adaptive",
}
"""Keys of [protocol] that are for one strategy alone."""


def _protocol(s: Scenario) -> None:
    p, usual = s.protocol, Protocol()
    for name, strategy in _ONLY.items():
        if getattr(p, name) != getattr(usual, name) and strategy not in s.strategies:
            _refuse(f"protocol.{name} has no effect without {strategy} among the strategies")
    if p.router_most_steps is not None and p.router_share != usual.router_share:
        _refuse("protocol.router_share and protocol.router_most_steps are two sources for one choice; give one")
    if p.adaptive_least_window > p.window:
        _refuse(f"protocol.adaptive_least_window must be at most the window, {p.window}, got {p.adaptive_least_window}")


def merged(general: ToolKeys, own: ToolKeys) -> ToolKeys:
    """`own` keys over `general` ones; another law than the general one does not inherit that one's keys."""
    mine = {f.name: getattr(own, f.name) for f in fields(ToolKeys) if getattr(own, f.name) is not None}
    base = ToolKeys(**{f.name: getattr(general, f.name) for f in fields(ToolKeys)})
    if own.law is not None and own.law != general.law:
        base = replace(base, sigma=None, shape=None, spread=None, latency_file=None)
    return replace(base, **mine)


def check_tools(tools: ToolKeys) -> None:
    """The keys of [tools] and of every table under it."""
    _tool("tools", tools)
    for section in ("by_effect", "by_tool"):
        for name, own in getattr(tools, section, {}).items():
            where = f"tools.{section}.{name}"
            if all(getattr(own, f.name) is None for f in fields(own)):
                _refuse(f"{where} has no effect: it holds no key")
            whole = merged(tools, own)
            if own.latency_s is not None and (whole.law or "trace") == "trace":
                _refuse(f"{where}.latency_s needs a law such as constant; only tools.latency_s rescales the trace's")
            _tool(where, whole)


def _tool(where: str, t: ToolKeys) -> None:
    law = t.law or "trace"
    _law(where, "law", law, {k: getattr(t, k) for k in ("sigma", "shape", "spread", "latency_file")}, "latency_file")
    if law == "constant" and t.latency_s is None:
        _refuse(f"{where}.law = 'constant' needs latency_s")
    if (t.failure or 0.0) + (t.hang or 0.0) > 1:
        _refuse(f"{where}: failure + hang must be at most 1, got {(t.failure or 0) + (t.hang or 0):g}")
    if t.failure_s is not None and not t.failure:
        _refuse(f"{where}.failure_s has no effect without failure")
    if t.retries and not (t.failure or t.timeout_s or t.hang):
        _refuse(f"{where}.retries has no effect without failure, hang or timeout_s")
    if t.backoff_s is not None and not t.retries:
        _refuse(f"{where}.backoff_s has no effect without retries")


def _law(where: str, key: str, law: str, given: Mapping[str, object], file_key: str, prefix: str = "") -> None:
    needed = _LAW_KEYS.get(law, ())
    for name in needed:
        if given[name] is None:
            _refuse(f"{where}.{key} = {law!r} needs {prefix}{name}")
    for name, value in given.items():
        if value is not None and name not in needed and not (law == "empirical" and name == file_key):
            _refuse(f"{where}.{prefix}{name} has no effect on {where}.{key} = {law!r}")


def _users(u: Users) -> None:
    _law("users", "law", u.law, {k: getattr(u, k) for k in ("sigma", "shape", "spread", "gap_file")}, "gap_file")
    if u.law == "constant" and u.gap_s is None:
        _refuse("users.law = 'constant' needs gap_s")
    if u.law == "trace" and u.gap_s is not None:
        _refuse("users.gap_s has no effect on users.law = 'trace', which takes each step's own gap")


def _link(k: LinkSection) -> None:
    given = {name: getattr(k, f"jitter_{name}") for name in ("sigma", "shape", "spread")}
    if (k.jitter_s is None) != (k.jitter_law is None):
        _refuse("link.jitter_s and link.jitter_law need each other")
    _law("link", "jitter_law", k.jitter_law or "none", given, "", "jitter_")
    if (k.outage_every_s is None) != (k.outage_s is None):
        _refuse("link.outage_every_s and link.outage_s need each other")
    if k.timeout_s is not None and k.outage_s is None:
        _refuse("link.timeout_s has no effect without outages (outage_every_s, outage_s)")
    if k.retries is not None and k.timeout_s is None:
        _refuse("link.retries has no effect without timeout_s")
    if k.backoff_s is not None and not k.retries:
        _refuse("link.backoff_s has no effect without retries")


def _sharing(weak: ModelSide, strong: ModelSide) -> None:
    """Two models on the same devices: same kind and number, and memory for both."""
    if weak.share_devices_with is not None:
        _refuse("weak.share_devices_with names the model itself; set strong.share_devices_with")
    if strong.share_devices_with is None:
        return
    if weak.api is not None or strong.api is not None:
        _refuse("strong.share_devices_with has no effect on a model behind an API")
    for key in ("hardware", "n_devices", "replicas", "usd_per_h"):
        mine, other = getattr(strong, key), getattr(weak, key)
        if mine != other:
            _refuse(f"strong.share_devices_with needs the same {key} on both sides, got {other} and {mine}")
    if weak.memory_share is None or strong.memory_share is None:
        _refuse("strong.share_devices_with needs weak.memory_share and strong.memory_share")
    if weak.memory_share + strong.memory_share > 1:
        _refuse(
            f"weak.memory_share and strong.memory_share share one memory: at most 1 together, got "
            f"{weak.memory_share + strong.memory_share:g}"
        )


def _side(role: str, side: ModelSide) -> None:
    own = [
        k
        for k in ("model", "hardware", "weight_dtype", "max_seqs", "chunk_tokens", "page_tokens", "usd_per_h")
        if getattr(side, k) is not None
    ]
    if side.api is not None and own:
        _refuse(f"{role}.api and {role}.{own[0]} are two sources for one model; give one")
    if side.api is None and (side.model is None or side.hardware is None):
        _refuse(f"{role} needs model and hardware, or api")
    for key in ("prices", "prices_from", "latency", "limits", "cache_ttl_s"):
        if side.api is None and getattr(side, key) is not None:
            _refuse(f"{role}.{key} has no effect without {role}.api")
    if side.api is not None and (side.n_devices, side.replicas) != (1, 1):
        _refuse(f"{role}.n_devices and {role}.replicas have no effect with {role}.api")
    if side.api is not None and side.memory_share is not None:
        _refuse(f"{role}.memory_share has no effect with {role}.api")
    if side.api is not None and (side.decode is not None or side.expert_parallel != 1):
        _refuse(f"{role}.{'decode' if side.decode else 'expert_parallel'} has no effect with {role}.api")
    _routes_and_limits(role, side)


def _routes_and_limits(role: str, side: ModelSide) -> None:
    for key in ("router", "route_per"):
        if side.replicas == 1 and getattr(side, key) is not None:
            _refuse(f"{role}.{key} has no effect on one replica")
    if side.router == "prefix_affinity" and side.route_per == "trajectory":
        _refuse(
            f"{role}.route_per = 'trajectory' and {role}.router = 'prefix_affinity': a new trajectory has no prefix"
        )
    for key, most in _LATENCY_LIMITS.items():
        band = getattr(side.latency, key, None)
        if band is not None and band.high > most:
            _refuse(f"{role}.latency.{key}: must be 0 to {most:g}, got {band.high:g}")
    if side.limits is not None:
        limits = side.limits
        if limits.requests_per_min is None and limits.tokens_per_min is None:
            _refuse(f"{role}.limits needs requests_per_min or tokens_per_min")
        if limits.backoff_s is not None and not limits.retries:
            _refuse(f"{role}.limits.backoff_s has no effect without retries")


def _load(load: Load) -> None:
    given = [k for k in SOURCES_OF_LOAD if getattr(load, k) is not None]
    if len(given) > 1:
        both = f"load.{given[0]} and load.{given[1]} are two sources for the load; give one"
        _refuse(both + _unset(given[0]))
    for key in ("arrivals_speed", "sessions"):
        if load.arrivals is None and getattr(load, key) is not None:
            _refuse(f"load.{key} has no effect without load.arrivals")


def _run(s: Scenario) -> None:
    run = s.run
    if run.precision is None and run.seeds_max is not None:
        _refuse("run.seeds_max has no effect without run.precision")
    if run.precision is not None and run.seeds < 2:
        _refuse(f"run.precision needs run.seeds >= 2 to begin with, got {run.seeds}")
    if run.seeds_max is not None and run.seeds_max < run.seeds:
        _refuse(f"run.seeds_max must be at least run.seeds = {run.seeds}, got {run.seeds_max}")


def _quality(q: Quality) -> None:
    if q.reviewer_correlation and not q.heterogeneity:
        _refuse("quality.reviewer_correlation has no effect without quality.heterogeneity")
    if q.judgements is not None and q.detection_depth_steps is not None:
        _refuse("quality.judgements and quality.detection_depth_steps are two sources for detection by position")
    if q.recovery_weak is not None and q.recovery_strong is not None and q.recovery != Quality().recovery:
        _refuse("quality.recovery has no effect beside quality.recovery_weak and quality.recovery_strong")
    for name in ("weak_hazard", "strong_hazard"):
        if q.heterogeneity and getattr(q, name).high > 0.5:
            _refuse(
                f"quality.{name}: with quality.heterogeneity it must be 0 to 0.5 (tasks of difficulty 1 have twice as "
                f"much), got {getattr(q, name).high:g}"
            )


def _bands(s: Scenario) -> None:
    for key, (least, most) in BAND_LIMITS.items():
        section, name = key.split(".")
        band = getattr(getattr(s, section), name, None)
        if band is not None and not least <= band.low <= band.high <= most:
            wrong = band.low if band.low < least else band.high
            _refuse(f"{key}: must be {least:g} to {most:g}, got {wrong:g}")


def _workload(s: Scenario) -> None:
    w = s.workload
    if (w.trace is None) == (w.law is None):
        _refuse("workload needs exactly one of trace and law")
    if w.trace is not None:
        for key in ("steps", "write_share", "reply_share"):
            if getattr(w, key) is not None:
                _refuse(f"workload.{key} needs a law; a trace has its own steps")
        if w.seed:
            _refuse("workload.seed has no effect on a trace")
    if w.law is not None and w.format is not None:
        _refuse("workload.format has no effect on a law")
    if w.thinking_tokens is not None and not (s.weak.thinking or s.strong.thinking):
        _refuse(f"workload.thinking_tokens has no effect: neither model thinks{_unset('thinking_tokens')}")
    if w.verbosity is not None and s.strong.thinking and not s.weak.thinking:
        _refuse(
            "weak.thinking = false and workload.verbosity are two sources for what the weak model decodes; give one"
            + _unset("verbosity")
        )


def _unset(parameter: str) -> str:
    return f" (--set {parameter}= unsets it)"


def _refuse(text: str) -> NoReturn:
    raise InputError(text)
