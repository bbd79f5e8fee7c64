"""`specroof reproduce`: published figures against predicted ones, and what they imply."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from simulator.reproduce import Reproduced


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: specroof reproduce tau2 --set acceptance=0.95")(reproduce)


def reproduce(
    settings: Annotated[list[str] | None, typer.Argument(help="tau2, automation, vita, atlas; none takes all.")] = None,
    draws: Annotated[int, typer.Option(help="Points over the unknowns of a setting.", min=16, max=4096)] = 128,
    seed: Annotated[int, typer.Option(help="Seed of the draws.", min=0)] = 0,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PRIOR=VALUE", help="A prior in place of the product's: number, choice or band."),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="The tables as Markdown.")] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the figure as HTML.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Published figures of SpecAgent beside what stated priors predict, and the region of the unknowns they imply."""
    from hwprofiles.errors import InputError
    from simulator.reproduce import reproduce as run
    from simulator.scenario_file import parse_setting
    from specroof.output import emit, must_be_writable, progress_line, say

    if markdown and as_json:
        raise InputError("--markdown and --json are two forms of the answer; give one")
    if output is not None and output.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"-o {output}: the figure is HTML, so its name must end in .html")
    must_be_writable(output)
    given: dict[str, Any] = dict(parse_setting(text) for text in changes or ())
    try:
        found = run(tuple(settings or ()), n_draws=draws, seed=seed, changes=given, progress=progress_line)
    finally:
        progress_line("")
    if output is not None:
        from dashboards.reproduce import write_reproduced

        write_reproduced(found.document(), output)
        say("note", f"figure written to {output}")
    if markdown:
        from simulator.reproduce_text import markdown as tables

        typer.echo(tables(found))
        return
    emit(found.document(), as_json, lambda console: _draw(console, found))


def _draw(console: Console, found: Reproduced) -> None:
    from rich.table import Table

    from simulator.reproduce_text import figure_cells, implied_cells

    table = Table(title="Published and predicted, against strong-only")
    for heading in ("figure", "published", "predicted", "90 % band", ""):
        table.add_column(heading)
    for row in found.figures:
        table.add_row(*figure_cells(row))
    console.print(table)
    console.print("meets: the 90 % band and the published range overlap; the band may be much wider")
    implied = Table(title="What the published figures imply")
    for heading in ("setting", "unknown", "prior", "implied"):
        implied.add_column(heading)
    for row in found.implied:
        implied.add_row(*implied_cells(row))
    console.print(implied)
