"""`specroof sensitivity`: what the spread of a verdict comes from, and what to measure first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specroof.calibrated import checked

if TYPE_CHECKING:
    from rich.console import Console

    from simulator.sensitivity import Sensitivity


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: specroof sensitivity retail-h200")(sensitivity)


def sensitivity(
    scenario: Annotated[str, typer.Argument(help="Scenario file or bundled name.")],
    strategy: Annotated[str, typer.Option("--strategy", help="Strategy compared with strong_only.")] = "spec_agent",
    samples: Annotated[int, typer.Option(help="Points of each base sample.", min=64, max=65_536)] = 512,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a scenario key or parameter.")
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option("--calibration", callback=checked, help="Calibration file over the bundled fit.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Sobol indices of every ratio over the uncertain inputs, and the one measurement that would narrow it most."""
    from simulator.scenario_file import load_scenario
    from simulator.sensitivity import sensitivity as find
    from specroof.output import emit

    found = find(load_scenario(scenario, settings or (), calibration), strategy=strategy, n_samples=samples)
    emit(found.document(), as_json, lambda console: _draw(console, found))


def _draw(console: Console, s: Sensitivity) -> None:
    from rich.table import Table

    for objective, sources in s.sources.items():
        table = Table(title=f"{objective}: share of the variance of the log ratio")
        table.add_column("input")
        table.add_column("alone", justify="right")
        table.add_column("with interactions", justify="right")
        table.add_column("decides the verdict", justify="right")
        for source in sources:
            if source.total >= 0.005:
                table.add_row(
                    source.name, f"{max(0.0, source.first):.0%}", f"{source.total:.0%}", f"{source.settles:.0%}"
                )
        console.print(table)
        console.print(s.advice(objective))
