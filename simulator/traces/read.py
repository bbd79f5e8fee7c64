"""`read_trace`: any supported trace to neutral trajectories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from costmodel.trajectory import Trajectory, Workload
from hwprofiles.errors import InputError
from simulator.effects import EffectMap, effect_map
from simulator.traces import neutral
from simulator.traces.assemble import assemble, unique_ids
from simulator.traces.detect import detect, find_format, format_names
from simulator.traces.load import TraceFile, open_files
from simulator.traces.raw import Warnings


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTrace:
    """What an import gave: the workload, the format, what was noticed and what no trajectory could tell.

    `missing` holds every item that at least one trajectory misses: usage (token counts), cache (cached part of
    prompts), thinking (apart from the output), times, tool_times, content (whether text came with a step), outcome.
    """

    workload: Workload
    format: str
    warnings: tuple[str, ...]
    missing: tuple[str, ...]


def read_trace(
    paths: Path | str | Sequence[Path | str],
    *,
    format: str | None = None,
    effects: EffectMap | Mapping[str, str] | None = None,
) -> ImportedTrace:
    """Neutral trajectories from trace files.

    Parameters
    ----------
    paths : path or sequence of paths
        Files of one format; a folder stands for the files in it.
    format : str, optional
        `neutral`, `tau2`, `claude_code` or `otlp`; told from the content when not given.
    effects : EffectMap or mapping, optional
        What tools do (`{"get_*": "read"}`); tools that nothing declares are unknown, so held.

    Raises
    ------
    InputError
        If a file cannot be read, its content is wrong, no LLM call is in it, or files have different formats.
    """
    given = [paths] if isinstance(paths, Path | str) else list(paths)
    chosen = effects if isinstance(effects, EffectMap) else effect_map(dict(effects or {}))
    try:
        files = open_files([Path(p) for p in given])
        name = _format(files, format)
        warnings = Warnings()
        neutral_files = name == neutral.NAME
        workload = _neutral(files, chosen) if neutral_files else _foreign(files, name, chosen, warnings)
        if not neutral_files and len(given) == 1 and len(files) > 1:
            workload = replace(workload, name=Path(given[0]).resolve().name or workload.name)
    except RecursionError:
        raise InputError(f"{given[0]}: nested too deep") from None
    except OSError as error:
        raise InputError(f"{given[0]}: cannot be read: {error.strerror or error}") from None
    missing = sorted({m for t in workload.trajectories for m in t.missing})
    return ImportedTrace(workload=workload, format=name, warnings=warnings.lines(), missing=tuple(missing))


def _format(files: Sequence[TraceFile], wanted: str | None) -> str:
    if wanted is not None:
        return wanted if wanted == neutral.NAME else find_format(wanted).name
    names = {file.name: detect(file) for file in files} if len(files) <= 8 else {files[0].name: detect(files[0])}
    if len(set(names.values())) > 1:
        pairs = ", ".join(f"{k} is {v}" for k, v in names.items())
        raise InputError(f"files of one import must have one format ({pairs}); known: {', '.join(format_names())}")
    return next(iter(names.values()))


def _neutral(files: Sequence[TraceFile], effects: EffectMap) -> Workload:
    """Neutral files joined; a user's effects map is applied to their tools again."""
    loaded = [neutral.load(f) for f in files]
    if len(loaded) == 1:
        joined = loaded[0]
    else:
        trajectories = tuple(t for w in loaded for t in w.trajectories)
        ids = [t.id for t in trajectories]
        twice = next((i for i in ids if ids.count(i) > 1), None)
        if twice is not None:
            raise InputError(f"trajectory id {twice!r} occurs in two of the files")
        joined = Workload(
            name=loaded[0].name,
            trajectories=trajectories,
            kind=loaded[0].kind,
            source="; ".join(dict.fromkeys(w.source for w in loaded)),
            notes=tuple(dict.fromkeys(n for w in loaded for n in w.notes)),
        )
    if not any(t.steps for t in joined.trajectories):
        raise InputError(f"{files[0].name}: holds no step")
    return reclassified(joined, effects) if effects.rules or effects.hints or effects.declared else joined


def reclassified(workload: Workload, effects: EffectMap) -> Workload:
    """The workload with the effects of tools that `effects` knows set anew (arguments are not kept, so by name)."""
    from costmodel.trajectory import Effect, strictest

    def again(trajectory: Trajectory) -> Trajectory:
        steps = []
        for step in trajectory.steps:
            tools = []
            for tool in step.tools:
                effect, _ = effects.classify(tool.name)
                tools.append(tool if effect is Effect.UNKNOWN else replace(tool, effect=effect))
            if step.tools:
                spoke = step.effect is Effect.REPLY and all(t.effect is not Effect.REPLY for t in step.tools)
                found = [t.effect for t in tools] + ([Effect.REPLY] if spoke else [])
                steps.append(replace(step, tools=tuple(tools), effect=strictest(found)))
            else:
                steps.append(step)
        return replace(trajectory, steps=tuple(steps))

    return replace(workload, trajectories=tuple(again(t) for t in workload.trajectories))


def _foreign(files: Sequence[TraceFile], name: str, effects: EffectMap, warnings: Warnings) -> Workload:
    raws = list(find_format(name).read(files, warnings))
    kept = [r for r in raws if r.steps]
    for raw in raws:
        if not raw.steps:
            warnings.add("a trajectory without an LLM call is left out", raw.id)
    if not kept:
        raise InputError(f"{files[0].name}: no LLM call found (read as {name})")
    unique_ids(kept, warnings)
    trajectories = tuple(assemble(r, source_format=name, effects=effects, warnings=warnings) for r in kept)
    if all("usage" in t.missing for t in trajectories):
        warnings.add("no step has token counts: the trace can be looked at but not planned with")
    unknown = sorted({c.name for t in trajectories for s in t.steps for c in s.tools if c.effect == "unknown"})
    if unknown:
        names = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        warnings.add(f"{len(unknown)} tools are not declared anywhere, so their steps are held: {names}")
    source = ", ".join(f.name for f in files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    return Workload(name=files[0].stem, trajectories=trajectories, source=source)
