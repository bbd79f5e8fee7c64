"""`read_trace`: any supported trace to neutral trajectories; `stream_trace`: the same one trajectory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from costmodel.trajectory import Effect, Step, Trajectory, Workload, strictest
from hwprofiles.errors import InputError
from simulator.effects import EffectMap, effect_map
from simulator.traces import neutral
from simulator.traces.assemble import Distinct, assemble
from simulator.traces.detect import detect, find_format, format_names
from simulator.traces.load import TraceFile, open_files
from simulator.traces.outcomes import beside
from simulator.traces.raw import Warnings


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTrace:
    """What an import gave: the workload, the format, what was noticed and what no trajectory could tell.

    `missing` holds every item that at least one trajectory misses: usage (token counts), cache (cached part of
    prompts), thinking (apart from the output), times, tool_times, content (whether text came with a step), tools (which
    were called), session (which requests belong together), outcome.
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
        One of `simulator.traces.detect.format_names()`; told from the content when not given.
    effects : EffectMap or mapping, optional
        What tools do (`{"get_*": "read"}`); tools that nothing declares are unknown, so held.

    Raises
    ------
    InputError
        If a file cannot be read, its content is wrong, no LLM call is in it, or files have different formats.
    """
    stream = stream_trace(paths, format=format, effects=effects)
    workload = replace(stream.head, trajectories=tuple(stream))
    return ImportedTrace(workload=workload, format=stream.format, warnings=stream.warnings, missing=stream.missing)


class TraceStream:
    """Trajectories of files one at a time, in constant memory; go through it once.

    `head` is the workload without its trajectories; `warnings` and `missing` are whole when the stream is at its end.
    """

    def __init__(
        self, files: Sequence[TraceFile], format_: str, head: Workload, effects: EffectMap, first: str
    ) -> None:
        self.format = format_
        self.head = head
        self._files = files
        self._effects = effects
        self._first = first
        self._warnings = Warnings()
        self._missing: set[str] = set()
        self._outcomes = beside(files)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was noticed so far."""
        return self._warnings.lines()

    @property
    def missing(self) -> tuple[str, ...]:
        """What at least one trajectory so far could not tell."""
        return tuple(sorted(self._missing))

    def __iter__(self) -> Iterator[Trajectory]:
        found = self._neutral() if self.format == neutral.NAME else self._foreign()
        with _OneMessage(self._first):
            for trajectory in found:
                self._missing.update(trajectory.missing)
                yield trajectory

    def _neutral(self) -> Iterator[Trajectory]:
        """Trajectories of neutral files joined; a user's effects map is applied to their tools again."""
        seen: set[str] = set()
        steps = 0
        for file in self._files:
            before = frozenset(seen) if len(self._files) > 1 else frozenset()
            for trajectory in neutral.trajectories(file, set() if before else seen):
                if trajectory.id in before:
                    raise InputError(f"trajectory id {trajectory.id!r} occurs in two of the files")
                seen.add(trajectory.id)
                steps += len(trajectory.steps)
                yield _again(trajectory, self._effects) if self._effects.known else trajectory
        if not steps:
            raise InputError(f"{self._files[0].name}: holds no step")

    def _foreign(self) -> Iterator[Trajectory]:
        names = Distinct(self._warnings)
        n = priced = 0
        unknown: dict[str, None] = {}
        for raw in find_format(self.format).read(self._files, self._warnings):
            if not raw.steps:
                self._warnings.add("a trajectory without an LLM call is left out", raw.id)
                continue
            self._outcomes.fill(raw)
            names.name(raw)
            found = assemble(raw, source_format=self.format, effects=self._effects, warnings=self._warnings)
            n, priced = n + 1, priced + ("usage" not in found.missing)
            unknown.update({c.name: None for s in found.steps for c in s.tools if c.effect == "unknown"})
            yield found
        if not n:
            raise InputError(f"{self._files[0].name}: no LLM call found (read as {self.format})")
        if not priced:
            self._warnings.add("no step has token counts: the trace can be looked at but not planned with")
        if unknown:
            few = ", ".join(sorted(unknown)[:5]) + (", ..." if len(unknown) > 5 else "")
            self._warnings.add(f"{_n_tools(len(unknown))} not declared anywhere, so held: {few}")


def stream_trace(
    paths: Path | str | Sequence[Path | str],
    *,
    format: str | None = None,
    effects: EffectMap | Mapping[str, str] | None = None,
) -> TraceStream:
    """The trajectories of trace files one at a time (parameters and errors as of `read_trace`)."""
    given = [paths] if isinstance(paths, Path | str) else list(paths)
    chosen = effects if isinstance(effects, EffectMap) else effect_map(dict(effects or {}))
    first = str(given[0]) if given else ""
    with _OneMessage(first):
        files = open_files([Path(p) for p in given])
        name = _format(files, format)
        if name == neutral.NAME:
            head = _joined([neutral.head_of(f) for f in files])
        else:
            more = f" and {len(files) - 3} more" if len(files) > 3 else ""
            source = ", ".join(f.name for f in files[:3]) + more
            folder = Path(given[0]).resolve().name if len(given) == 1 and len(files) > 1 else ""
            head = Workload(name=folder or files[0].stem, trajectories=(), source=source)
    return TraceStream(files, name, head, chosen, first)


def _n_tools(n: int) -> str:
    return "1 tool is" if n == 1 else f"{n} tools are"


class _OneMessage:
    """Errors that reading files can raise, as one message."""

    def __init__(self, first: str) -> None:
        self._first = first

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RecursionError):
            raise InputError(f"{self._first}: nested too deep") from None
        if isinstance(error, OSError):
            raise InputError(f"{self._first}: cannot be read: {error.strerror or error}") from None


def _joined(heads: Sequence[Workload]) -> Workload:
    return Workload(
        name=heads[0].name,
        trajectories=(),
        kind=heads[0].kind,
        source="; ".join(dict.fromkeys(h.source for h in heads)),
        notes=tuple(dict.fromkeys(n for h in heads for n in h.notes)),
    )


def _format(files: Sequence[TraceFile], wanted: str | None) -> str:
    if wanted is not None:
        return wanted if wanted == neutral.NAME else find_format(wanted).name
    names = {file.name: detect(file) for file in files} if len(files) <= 8 else {files[0].name: detect(files[0])}
    if len(set(names.values())) > 1:
        pairs = ", ".join(f"{k} is {v}" for k, v in names.items())
        raise InputError(f"files of one import must have one format ({pairs}); known: {', '.join(format_names())}")
    return next(iter(names.values()))


def reclassified(workload: Workload, effects: EffectMap) -> Workload:
    """The workload with the effects of tools that `effects` knows set anew (arguments are not kept, so by name)."""
    return replace(workload, trajectories=tuple(_again(t, effects) for t in workload.trajectories))


def _again(trajectory: Trajectory, effects: EffectMap) -> Trajectory:
    steps: list[Step] = []
    for step in trajectory.steps:
        if not step.tools:
            steps.append(step)
            continue
        tools = []
        for tool in step.tools:
            effect, _ = effects.classify(tool.name)
            tools.append(tool if effect is Effect.UNKNOWN else replace(tool, effect=effect))
        spoke = step.effect is Effect.REPLY and all(t.effect is not Effect.REPLY for t in step.tools)
        found = [t.effect for t in tools] + ([Effect.REPLY] if spoke else [])
        steps.append(replace(step, tools=tuple(tools), effect=strictest(found)))
    return replace(trajectory, steps=tuple(steps))
