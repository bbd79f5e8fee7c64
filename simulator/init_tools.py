"""The tools of a trace with the effect they have now, where that is known from, and a proposal where it is not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from costmodel.trajectory import Effect, Trajectory, Workload, strictest
from hwprofiles.errors import InputError
from simulator.effects import EffectMap, bare_name, declared_sets, declared_tools, effect_map, propose


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolNote:
    """One tool of a trace.

    Parameters
    ----------
    calls : number of calls in the trace
    effect : its effect as things stand (the strictest, when its calls differ)
    proposed : what its name suggests where the effect is unknown; else the effect itself
    why : where the effect is known from, or what the proposal rests on
    status : `map` (a line of the user's map covers it), `known`, `confirm` (held until somebody confirms), `unmappable`
    """

    name: str
    calls: int
    effect: Effect
    proposed: Effect
    why: str
    status: str


def tool_notes(workload: Workload, effects: EffectMap) -> tuple[ToolNote, ...]:
    """Every tool of a workload that was read with `effects`, most calls first."""
    found: dict[str, Counter[Effect]] = {}
    for trajectory in workload.trajectories:
        for step in trajectory.steps:
            for call in step.tools:
                found.setdefault(call.name, Counter())[call.effect] += 1
    ranked = sorted(found.items(), key=lambda kv: (-kv[1].total(), kv[0]))
    sets = _sets(workload.trajectories)
    return tuple(_note(name, counts, effects, sets) for name, counts in ranked)


def _note(name: str, counts: Counter[Effect], effects: EffectMap, sets: tuple[str, ...]) -> ToolNote:
    effect = strictest(list(counts))
    proposed, why, status = effect, _why(name, effects, sets), "known"
    if any(rule.matches((name, bare_name(name)), None) for rule in effects.rules):
        status = "map"
    elif not mappable(name):
        proposed, why, status = effect, "no effects map can name this tool", "unmappable"
    elif effect is Effect.UNKNOWN:
        proposed, why = propose(name)
        status = "confirm"
        if len(counts) > 1:
            why = f"{counts[Effect.UNKNOWN]} of its calls are not covered by your map; {why}"
    elif len(counts) > 1:
        status = "map"
        why = "its calls differ by their arguments: " + ", ".join(f"{n} {e}" for e, n in sorted(counts.items()))
    return ToolNote(name=name, calls=counts.total(), effect=effect, proposed=proposed, why=why, status=status)


def _sets(trajectories: Iterable[Trajectory]) -> tuple[str, ...]:
    """Published sets that go with the formats and domains of a trace."""
    wanted = {f"{t.source_format}:{t.domain}" for t in trajectories} | {
        t.source_format.replace("_", "-") for t in trajectories
    }
    return tuple(name for name in declared_sets() if name in wanted)


def _why(name: str, effects: EffectMap, sets: tuple[str, ...]) -> str:
    effect, why = effects.classify(name)
    if effect is not Effect.UNKNOWN:
        return why
    for set_name in sets:
        tools, source = declared_tools(set_name)
        if name in tools or bare_name(name) in tools:
            return f"declared: {source}"
    return "as the trace has it"


def mappable(name: str) -> bool:
    """Whether a line of an effects map can mean exactly this tool."""
    try:
        name.encode("utf-8")
        (rule,) = effect_map({name: "read"}).rules
    except (InputError, UnicodeEncodeError):
        return False
    return rule.name == name
