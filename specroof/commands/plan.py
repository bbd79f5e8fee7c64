"""`specroof plan`: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specroof.calibrated import checked

Scenarios = Annotated[
    list[str], typer.Argument(help="Scenario files or bundled names; several print one table over them.")
]
Out = Annotated[Path | None, typer.Option("-o", "--output", help="Write a self-contained HTML report (one scenario).")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a scenario key or parameter.")
]
Calibration = Annotated[
    Path | None, typer.Option("--calibration", callback=checked, help="Calibration file in place of the bundled fit.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="The table over several scenarios as Markdown.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: specroof plan retail-h200 --set concurrency=8 -o report.html")(plan)


def plan(
    scenarios: Scenarios,
    output: Out = None,
    settings: Settings = None,
    calibration: Calibration = None,
    as_json: Json = False,
    markdown: Markdown = False,
) -> None:
    """Compare the strategies of a scenario: who wins what, why, how sure, and what would settle the rest."""
    from hwprofiles.errors import InputError
    from simulator.plan import plan as make_plan
    from simulator.plan_text import contrast, contrast_markdown, contrast_table
    from simulator.scenario_file import load_scenario
    from specroof.output import emit, must_be_writable, progress_line

    if len(scenarios) > 1 and output is not None:
        raise InputError("-o writes the report of one scenario; give one, or leave -o out")
    if markdown and (as_json or output is not None):
        raise InputError("--markdown goes with neither --json nor -o")
    if output is not None and output.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"-o {output}: the report is HTML, so its name must end in .html")
    if len(set(scenarios)) != len(scenarios):
        raise InputError(f"each scenario once, got {', '.join(scenarios)}")
    must_be_writable(output)
    loaded = {name: load_scenario(name, settings or (), calibration) for name in scenarios}
    try:
        plans = {name: make_plan(scenario, progress=progress_line) for name, scenario in loaded.items()}
    finally:
        progress_line("")
    first = next(iter(plans.values()))
    if output is not None:
        from dashboards.report import write_report

        write_report(first.document(), output)
    if markdown:
        typer.echo(contrast_markdown(plans))
    elif len(plans) == 1:
        emit(first.document(), as_json, lambda console: console.print(first))
    else:
        emit({"contrast": contrast(plans)}, as_json, lambda console: console.print(contrast_table(plans)))
    if output is not None:
        from specroof.output import say

        say("note", f"report written to {output}")
