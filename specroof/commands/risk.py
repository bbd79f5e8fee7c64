"""`specroof risk`: what drafting puts at risk when holds fail, reviews miss errors and tasks are long."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specroof.calibrated import checked

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from simulator.risk import Risk

Steps = Annotated[str, typer.Option("--steps", metavar="A,B,C", help="Lengths of tasks, in the workload's pattern.")]
Windows = Annotated[str, typer.Option("--windows", metavar="A,B,C", help="Longest drafted segments.")]
HoldFailures = Annotated[
    str, typer.Option("--hold-failure", metavar="A,B,C", help="Probabilities that a write is taken for a read.")
]
Budget = Annotated[float, typer.Option("--damage-budget", help="Damage that a safe window stays within.")]
Check = Annotated[
    int, typer.Option("--check", metavar="N", help="Draw N trajectories per cell of the longest tasks as a check.")
]
Out = Annotated[Path | None, typer.Option("-o", "--output", help="Write the figures as self-contained HTML.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a scenario key or parameter.")
]
Calibration = Annotated[
    Path | None, typer.Option("--calibration", callback=checked, help="Calibration file in place of the bundled fit.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Example: specroof risk autonomous-h200 --hold-failure 0,0.02 --damage-budget 0.05 -o risk.html"
    )(risk)


def risk(
    scenario: Annotated[str, typer.Argument(help="Scenario file or bundled name.")],
    steps: Steps = "10,20,50,100,200",
    windows: Windows = "1,2,4,8,16,32",
    hold_failures: HoldFailures = "0,0.01,0.05,0.2",
    damage_budget: Budget = 0.05,
    check: Check = 0,
    output: Out = None,
    settings: Settings = None,
    calibration: Calibration = None,
    as_json: Json = False,
) -> None:
    """Damage over task length, window and hold failure, exact: in all and in excess of strong-only; time against it."""
    from hwprofiles.errors import InputError
    from simulator.risk import risk as found_risk
    from simulator.scenario_file import load_scenario
    from specroof.output import emit, must_be_writable, say

    if output is not None and output.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"-o {output}: the figure is HTML, so its name must end in .html")
    must_be_writable(output)
    found = found_risk(
        load_scenario(scenario, settings or (), calibration),
        steps=_numbers(steps, "--steps", int),
        windows=_numbers(windows, "--windows", int),
        hold_failures=_numbers(hold_failures, "--hold-failure", float),
        damage_budget=damage_budget,
        check=check,
    )
    if output is not None:
        from dashboards.risk import write_risk

        write_risk(found.document(), output)
        say("note", f"figure written to {output}")
    emit(found.document(), as_json, lambda console: _text(console, found))


def _numbers(text: str, option: str, kind: type[int] | type[float]) -> tuple[Any, ...]:
    from hwprofiles.errors import InputError

    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError:
        what = "whole numbers such as 10,100" if kind is int else "numbers such as 0,0.05"
        raise InputError(f"{option} {text}: expected {what}") from None


def _text(console: Console, found: Risk) -> None:
    """Tables of damage by steps and window, of safe windows, and of time against risk."""
    from rich.markup import escape

    console.print(f"[bold]{escape(found.case.scenario.title)}[/bold]")
    for failure in dict.fromkeys(c.hold_failure for c in found.cells):
        console.print(_damage_table(found, failure))
    console.print(_safe_table(found))
    console.print(_frontier_table(found))
    gap, trials = found.gap, found.trials
    if gap is not None:
        console.print(f"gap to strong-only recovered: {gap.value:.2f} [{gap.low:.2f}, {gap.high:.2f}]")
    console.print(
        f"runs per strategy to tell a drop of {trials.within:g} from {trials.worse:g}: {trials.paired:,} on the same "
        f"tasks, {trials.unpaired:,} on others"
    )
    for row in found.checks:
        console.print(
            f"drawn at {row['steps']:g} steps, window {row['window']}, hold failure {row['hold_failure']:g}: "
            f"{row['damage']:.4g} +- {row['standard_error']:.2g}, exact {row['exact']:.4g}, "
            f"{row['effective_harms']:.0f} effective harms"
        )
    for note in found.notes:
        console.print(f"note: {note}")


def _damage_table(found: Risk, failure: float) -> Table:
    from rich.table import Table

    cells = [c for c in found.cells if c.hold_failure == failure]
    windows = list(dict.fromkeys(c.window for c in cells))
    table = Table(title=f"probability of damage, hold failure {failure:g}", title_justify="left", box=None)
    table.add_column("steps", justify="right")
    table.add_column("strong only", justify="right")
    for window in windows:
        table.add_column(f"window {window}", justify="right")
    alone = {row["steps"]: row["damage_probability"] for row in found.strong_only if "own" not in row}
    for steps in dict.fromkeys(c.steps for c in cells):
        row = [f"{c.damage.value:.3g}" for c in cells if c.steps == steps]
        table.add_row(f"{steps:g}", f"{alone[steps]:.3g}", *row)
    return table


def _safe_table(found: Risk) -> Table:
    from rich.table import Table

    title = f"largest window with damage within {found.budget:g}: in all / in excess of strong-only"
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("steps", justify="right")
    failures = list(dict.fromkeys(s["hold_failure"] for s in found.safe))
    for failure in failures:
        table.add_column(f"hold failure {failure:g}", justify="right")
    for steps in dict.fromkeys(s["steps"] for s in found.safe):
        mine = [s for s in found.safe if s["steps"] == steps]
        table.add_row(f"{steps:.4g}", *(f"{s['window'] or '-'} / {s['window_in_excess'] or '-'}" for s in mine))
    return table


def _frontier_table(found: Risk) -> Table:
    from rich.table import Table

    table = Table(title="the workload's own tasks: time to strong-only against damage", title_justify="left", box=None)
    failures = list(dict.fromkeys(f["hold_failure"] for f in found.frontier))
    table.add_column("window", justify="right")
    table.add_column("time ratio", justify="right")
    for failure in failures:
        table.add_column(f"hold failure {failure:g}", justify="right")
    for window in dict.fromkeys(f["window"] for f in found.frontier):
        mine = [f for f in found.frontier if f["window"] == window]
        t = mine[0]
        table.add_row(
            str(window),
            f"{t['time_ratio']:.2f} [{t['time_ratio_low']:.2f}, {t['time_ratio_high']:.2f}]",
            *(f"{f['damage_probability']:.3g}{'' if f['efficient'] else ' (beaten)'}" for f in mine),
        )
    return table
