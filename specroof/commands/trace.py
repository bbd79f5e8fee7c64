"""`specroof trace import` and `specroof trace stats`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specroof.output import emit, warn

if TYPE_CHECKING:
    from rich.console import Console

    from costmodel.trajectory import Workload
    from simulator.traces import ImportedTrace

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Files = Annotated[list[str], typer.Argument(metavar="FILE...", help="Trace files or folders, or a bundled name.")]
Format = Annotated[str | None, typer.Option("--format", help="neutral, tau2, claude_code or otlp; told from content.")]
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
    from simulator.traces.neutral import write

    found = _read(files, format_name, effects)
    document = _document(found)
    if output is not None:
        write(found.workload, Path(output))
        document["path"] = output
    for line in found.warnings:
        warn(line)
    emit(document, as_json, lambda console: _render(console, found, document))


def stats(files: Files, format_name: Format = None, effects: Effects = None, as_json: Json = False) -> None:
    """Numbers of a trace: steps and their effects, tokens, tools, and how much can be drafted between held steps."""
    from simulator.traces.stats import statistics

    found = _read(files, format_name, effects)
    document = {**_document(found), **statistics(found.workload)}
    for line in found.warnings:
        warn(line)
    emit(document, as_json, lambda console: _render(console, found, document))


def _read(files: list[str], format_name: str | None, effects: str | None) -> ImportedTrace:
    from simulator.effects_file import read_effects
    from simulator.traces import ImportedTrace, read_trace
    from simulator.workloads import workload, workload_names

    if len(files) == 1 and files[0] in workload_names() and format_name is None and effects is None:
        bundled: Workload = workload(files[0])
        missing = tuple(sorted({m for t in bundled.trajectories for m in t.missing}))
        return ImportedTrace(workload=bundled, format="bundled", warnings=(), missing=missing)
    return read_trace(files, format=format_name, effects=None if effects is None else read_effects(effects))


def _document(found: ImportedTrace) -> dict[str, object]:
    from simulator.traces.stats import summary

    return {
        "format": found.format,
        "name": found.workload.name,
        **summary(found.workload),
        "missing": list(found.missing),
        "warnings": list(found.warnings),
    }


def _render(console: Console, found: ImportedTrace, document: dict[str, object]) -> None:
    from rich.table import Table
    from rich.text import Text

    console.print(Text(f"{found.workload.name} ({found.format})", style="bold"))
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for key, value in document.items():
        if key not in ("format", "name", "warnings", "tools"):
            table.add_row(Text(key.replace("_", " ")), Text(_plain(value)))
    console.print(table)
    tools = document.get("tools")
    if isinstance(tools, list):
        for tool in tools:
            calls = "1 call" if tool["calls"] == 1 else f"{tool['calls']:,} calls"
            line = f"  {tool['name']}: {calls}, {tool['effect']}"
            console.print(Text(line))


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_plain(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(_plain(v) for v in value) or "nothing"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else "unknown" if value is None else str(value)
