"""`specroof sweep`: many scenarios, resumable."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwprofiles.errors import InputError
from specroof.calibrated import checked

if TYPE_CHECKING:
    from rich.console import Console

    from simulator.scenario import Scenario

EXAMPLE = "Example: specroof sweep retail-h200 --vary acceptance=0.6:0.98:20 --vary window=1,2,4,8 -o results.csv"
_SHOWN = 20


def register(app: typer.Typer) -> None:
    """Add `sweep` to the application."""
    app.command("sweep", epilog=EXAMPLE)(sweep)


def sweep(
    scenario: Annotated[str, typer.Argument(help="A scenario file (TOML), or a bundled name.")],
    vary: Annotated[
        list[str],
        typer.Option(metavar="NAME=...", help="NAME=LO:HI:N or NAME=a,b,c (repeatable); NAME=LO:HI with --design lhs."),
    ],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a scenario key or parameter.")
    ] = None,
    design: Annotated[str, typer.Option(help="grid, or lhs (Latin hypercube).")] = "grid",
    samples: Annotated[int | None, typer.Option(metavar="N", help="Cells of a Latin hypercube.")] = None,
    seed: Annotated[int | None, typer.Option(metavar="S", help="Seed of a Latin hypercube.")] = None,
    method: Annotated[
        str, typer.Option(help="expected (idle engines), simulated, or auto: simulated where several agents run.")
    ] = "auto",
    as_law: Annotated[
        bool, typer.Option("--as-law", help="Fit a law to the trace, so that steps and shares may vary.")
    ] = False,
    study: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="SQLite study to start or go on with; absent: its own name."),
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Evaluate failed cells again.")] = False,
    engine: Annotated[str, typer.Option(help="local (all cores), or dask.")] = "local",
    scheduler: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Dask scheduler, tcp://HOST:PORT.")] = None,
    workers: Annotated[int | None, typer.Option(metavar="N", help="Local processes; one per core if absent.")] = None,
    out: Annotated[
        list[Path] | None, typer.Option("-o", "--out", metavar="FILE", help="Rows as .csv or .parquet (repeatable).")
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option("--calibration", callback=checked, help="Calibration file over the bundled fit.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Evaluate a scenario over a grid or Latin hypercube of parameters, on all cores or a Dask cluster.

    Every finished cell is kept at once; after a stop, even a kill, the same command goes on where it was.
    """
    from simulator.scenario_file import load_scenario
    from simulator.sweep import check_export
    from simulator.sweep import sweep as run_sweep
    from specroof.output import emit, must_be_writable, say

    for path in out or ():
        check_export(path)
        must_be_writable(path)
    _one_source(vary, settings or ())
    chosen = load_scenario(scenario, settings or (), calibration)
    if as_law:
        chosen = _as_law(chosen)
    with _progress() as progress:
        found = run_sweep(
            chosen,
            vary,
            design=design,
            samples=samples,
            seed=seed,
            method=method,
            study=study,
            engine=engine,
            scheduler=scheduler,
            workers=workers,
            retry=retry,
            progress=progress,
        )
    for path in out or ():
        found.export(path)
    document: dict[str, object] = found.document()
    emit(document, as_json, lambda console: _render(console, document))
    for path in out or ():
        say("note", f"rows written to {path}")


def _one_source(vary: list[str], settings: Any) -> None:
    """A key is varied or set, not both."""
    from simulator.scenario import PARAMETERS

    varied, given = (
        {PARAMETERS.get(name, name): name for name in (text.partition("=")[0].strip() for text in texts)}
        for texts in (vary, settings)
    )
    for key in varied.keys() & given.keys():
        raise InputError(f"--vary {varied[key]} and --set {given[key]} are two sources for {key}; give one")


def _as_law(scenario: Scenario) -> Scenario:
    from simulator.law_fit import as_law
    from specroof.output import say

    found, notes = as_law(scenario)
    for note in notes:
        say("note", note)
    return found


@contextmanager
def _progress() -> Iterator[Callable[[int, int, int], None] | None]:
    """A bar with the time left, on a terminal only."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from specroof.output import console

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("cells", total=None)

        def tell(done: int, failed: int, cells: int) -> None:
            what = f"cells, {failed} failed" if failed else "cells"
            bar.update(task, total=cells, completed=done + failed, description=what)

        yield tell


def _render(console: Console, document: dict[str, Any]) -> None:
    from rich.text import Text

    failed = document["failed"]
    console.print(Text(f"{document['done']} of {document['cells']} cells done, {len(failed)} failed", style="bold"))
    for row in failed[:_SHOWN]:
        settings = ", ".join(f"{k} = {v}" for k, v in row["settings"].items())
        console.print(Text(f"  cell {row['cell']} ({settings}): {row['reason']}"))
    if len(failed) > _SHOWN:
        console.print(Text(f"  ... and {len(failed) - _SHOWN} more in the study"))
    console.print(Text(f"study: {document['study']}", style="dim"))
