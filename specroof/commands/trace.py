"""`specroof trace import` and `specroof trace stats`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specroof.output import console, emit, warn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from costmodel.trajectory import Trajectory, Workload
    from simulator.traces.read import TraceStream
    from simulator.traces.stats import Tally

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Files = Annotated[list[str], typer.Argument(metavar="FILE...", help="Trace files or folders, or a bundled name.")]
Format = Annotated[
    str | None,
    typer.Option("--format", help="Name of the format (docs/traces.md); told from the content when not given."),
]
Effects = Annotated[
    str | None, typer.Option(help='TOML map of tool effects ("get_*" = "read"), or MCP tools/list JSON.')
]


def register(app: typer.Typer) -> None:
    """Add `trace import` and `trace stats` to the application."""
    trace = typer.Typer(no_args_is_help=True, help="Read recorded agent traces.")
    trace.command("import", epilog="Example: specroof trace import results.json -o agent.json")(import_trace)
    trace.command("stats", epilog="Example: specroof trace stats retail --json")(stats)
    app.add_typer(trace, name="trace")


def import_trace(
    files: Files,
    format_name: Format = None,
    effects: Effects = None,
    output: Annotated[str | None, typer.Option("-o", "--output", help="OUT.json, OUT.jsonl or OUT.parquet.")] = None,
    as_json: Json = False,
) -> None:
    """Import a trace to neutral trajectories; without -o, only says what it holds."""
    from simulator.traces.stats import Tally
    from simulator.traces.write import writer

    found, tally = _open(files, format_name, effects), Tally(spreads=False)
    if output is None:
        _take(found, tally.add)
    else:
        with writer(found.head, Path(output)) as write:
            _take(found, tally.add, write)
    document = _document(found, tally)
    if output is not None:
        document["path"] = output
    for line in found.warnings:
        warn(line)
    emit(document, as_json, lambda out: _render(out, document))


def stats(files: Files, format_name: Format = None, effects: Effects = None, as_json: Json = False) -> None:
    """Numbers of a trace: steps and their effects, tokens, tools, and how much can be drafted between held steps."""
    from simulator.traces.stats import Tally

    found, tally = _open(files, format_name, effects), Tally()
    _take(found, tally.add)
    document = {**_document(found, tally), **tally.statistics()}
    for line in found.warnings:
        warn(line)
    emit(document, as_json, lambda out: _render(out, document))


class _Bundled:
    """A bundled workload, as a stream that has nothing to warn of."""

    format = "bundled"
    warnings: tuple[str, ...] = ()

    def __init__(self, workload: Workload) -> None:
        self.head = workload
        self.missing = tuple(sorted({m for t in workload.trajectories for m in t.missing}))

    def __iter__(self) -> Iterator[Trajectory]:
        return iter(self.head.trajectories)


def _open(files: list[str], format_name: str | None, effects: str | None) -> TraceStream | _Bundled:
    from simulator.effects_file import read_effects
    from simulator.traces.read import stream_trace
    from simulator.workloads import workload, workload_names

    if len(files) == 1 and files[0] in workload_names() and format_name is None and effects is None:
        return _Bundled(workload(files[0]))
    return stream_trace(files, format=format_name, effects=None if effects is None else read_effects(effects))


def _take(found: Iterable[Trajectory], *takers: Callable[[Trajectory], None]) -> None:
    """Give every trajectory to all takers; on a terminal a line on stderr says how many there were so far."""
    shown = console(stderr=True)
    with shown.status("reading") if shown.is_terminal else nullcontext() as status:
        for n, trajectory in enumerate(found, start=1):
            for take in takers:
                take(trajectory)
            if status is not None and n % 100 == 0:
                status.update(f"reading: {n:,} trajectories")


def _document(found: TraceStream | _Bundled, tally: Tally) -> dict[str, object]:
    return {
        "format": found.format,
        "name": found.head.name,
        **tally.summary(),
        "missing": list(found.missing),
        "warnings": list(found.warnings),
    }


def _render(out: Console, document: dict[str, object]) -> None:
    from rich.table import Table
    from rich.text import Text

    out.print(Text(f"{document['name']} ({document['format']})", style="bold"))
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for key, value in document.items():
        if key not in ("format", "name", "warnings", "tools"):
            table.add_row(Text(key.replace("_", " ")), Text(_plain(value)))
    out.print(table)
    tools = document.get("tools")
    if isinstance(tools, list):
        for tool in tools:
            calls = "1 call" if tool["calls"] == 1 else f"{tool['calls']:,} calls"
            line = f"  {tool['name']}: {calls}, {tool['effect']}"
            out.print(Text(line))


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_plain(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(_plain(v) for v in value) or "nothing"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else "unknown" if value is None else str(value)
