"""`specroof init`: from a trace to a commented scenario file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from specroof.output import emit, warn

if TYPE_CHECKING:
    from rich.console import Console

    from simulator.init_scenario import ScenarioDraft
    from simulator.scenario import Scenario

EXAMPLE = "Example: specroof init --trace my_agent.json --weak Qwen/Qwen3.5-4B@h200 -o mine.toml"


def register(app: typer.Typer) -> None:
    """Add `init` to the application."""
    app.command("init", epilog=EXAMPLE)(init)


def init(
    trace: Annotated[str, typer.Option(metavar="FILE", help="A trace file or folder, or a bundled recording.")],
    output: Annotated[str, typer.Option("-o", "--output", metavar="S.toml", help="The scenario file to write.")],
    weak: Annotated[
        str | None, typer.Option(metavar="MODEL@HARDWARE", help="The drafting model; default: that of retail-h200.")
    ] = None,
    strong: Annotated[
        str | None,
        typer.Option(metavar="MODEL@HARDWARE", help="The reviewing model, or api:PROVIDER/MODEL; default as above."),
    ] = None,
    effects: Annotated[
        str | None, typer.Option(metavar="MAP.toml", help='What tools do ("get_*" = "read"), or MCP tools/list JSON.')
    ] = None,
    mcp_tools: Annotated[
        str | None, typer.Option(metavar="TOOLS.json", help="An MCP tools/list export of the agent's servers.")
    ] = None,
    format_name: Annotated[
        str | None, typer.Option("--format", help="neutral, tau2, claude_code or otlp; told from content.")
    ] = None,
    no_thinking: Annotated[
        bool, typer.Option("--no-thinking", help="Neither model thinks before a step (default: both do).")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the scenario file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Write a commented scenario for a trace; effects that nobody declared are proposed, and held until you confirm."""
    from simulator.init_scenario import draft_scenario, refuse_to_overwrite, write_scenario

    refuse_to_overwrite(output, force=force)
    draft = draft_scenario(
        trace,
        output,
        weak=weak,
        strong=strong,
        effects=effects,
        mcp_tools=mcp_tools,
        format=format_name,
        thinking=not no_thinking,
    )
    scenario = write_scenario(draft, force=force)
    for line in draft.warnings:
        warn(line)
    if draft.unpriced:
        steps = sum(len(t.steps) for t in draft.workload.trajectories)
        warn(f"{draft.unpriced} of {steps} steps have no token counts, so `specroof plan` will refuse this trace")
    document = _document(draft, scenario, output)
    emit(document, as_json, lambda console: _render(console, draft, output))


def _document(draft: ScenarioDraft, scenario: Scenario, output: str) -> dict[str, Any]:
    from simulator.init_scenario import dtype_note
    from simulator.init_text import MISSING
    from simulator.scenario_file import to_document

    return {
        "path": output,
        "format": draft.found_format,
        "trajectories": len(draft.workload.trajectories),
        "steps": sum(len(t.steps) for t in draft.workload.trajectories),
        "tools": [
            {
                "name": t.name,
                "calls": t.calls,
                "effect": t.effect.value,
                "proposed": t.proposed.value,
                "confirmed": t.status in ("map", "known"),
                "why": t.why,
            }
            for t in draft.tools
        ],
        "missing": list(draft.missing),
        "missing_means": {item: MISSING.get(item, item) for item in draft.missing},
        "steps_without_tokens": draft.unpriced,
        "assumed": list(draft.assumed),
        "assumed_keys": [f"workload.{k}" for k in draft.assumed_bands],
        "weight_dtypes": {role: dtype_note(draft, role) for role in ("weak", "strong")},
        "warnings": list(draft.warnings),
        "scenario": to_document(scenario),
    }


def _render(console: Console, draft: ScenarioDraft, output: str) -> None:
    from rich.table import Table
    from rich.text import Text

    from simulator.init_scenario import dtype_note

    console.print(
        Text(f"{output}: a scenario for {draft.workload.name} ({draft.found_format})", style="bold"), soft_wrap=True
    )
    table = Table(box=None, pad_edge=False)
    for heading in ("tool", "calls", "effect", "proposed", "because"):
        table.add_column(heading, justify="right" if heading == "calls" else "left")
    for t in draft.tools:
        proposed = f"{t.proposed.value}?" if t.status == "confirm" else ""
        table.add_row(Text(t.name), str(t.calls), t.effect.value, proposed, Text(t.why))
    console.print(table)
    for role in ("weak", "strong"):
        note = dtype_note(draft, role)
        if note is not None:
            console.print(Text(note), soft_wrap=True)
    band = draft.assumed_bands.get("thinking_tokens")
    if band is not None:
        text = (
            f"thinking: the trace records none, so {band['low']:g} to {band['high']:g} tokens a step are assumed; "
            "measure it, or say --no-thinking"
        )
        console.print(Text(text), soft_wrap=True)
    waiting = sum(t.status == "confirm" for t in draft.tools)
    if draft.missing:
        console.print(Text(f"missing in the trace: {', '.join(draft.missing)}"))
    if waiting:
        console.print(Text(f"{waiting} tools are held until you confirm their effect under [effects.map]"))
    console.print(
        Text(f"next: specroof scenario check {output}; specroof plan {output} -o report.html"), soft_wrap=True
    )
