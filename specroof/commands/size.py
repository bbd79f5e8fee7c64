"""`specroof size`: the cheapest fleet that holds service-level objectives."""

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

EXAMPLE = "Example: specroof size autonomous-h200 --slo 'p95 trajectory_s <= 60' --rate 2/s"


def register(app: typer.Typer) -> None:
    """Add `size` to the application."""
    app.command("size", epilog=EXAMPLE)(size)


def size(
    scenario: Annotated[str, typer.Argument(help="A scenario file (TOML), or a bundled name.")],
    slo: Annotated[
        list[str],
        typer.Option(
            metavar="SLO",
            help="'STATISTIC METRIC <= SECONDS' (repeatable): mean, p50, p90, p95, p99 of trajectory_s or queue_s.",
        ),
    ],
    rate: Annotated[str | None, typer.Option(metavar="RATE", help="Trajectories: 2/s, 120/min or 7200/h.")] = None,
    strategy: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A strategy (repeatable); all of the scenario's if absent.")
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=a,b", help="Alternatives to size beside each other, such as weak.hardware=h200,l4."),
    ] = None,
    max_replicas: Annotated[int, typer.Option(metavar="N", help="Largest pool.")] = 64,
    max_usd_per_h: Annotated[float | None, typer.Option(metavar="USD", help="Budget of the fleet per hour.")] = None,
    max_power_w: Annotated[
        float | None, typer.Option(metavar="W", help="Power budget: rated power of all devices, times the PUE.")
    ] = None,
    usd_per_kwh: Annotated[
        float | None, typer.Option(metavar="USD", help="Electricity on top of device prices; absent: they include it.")
    ] = None,
    pue: Annotated[float, typer.Option(metavar="X", help="Power of the site over power of its devices.")] = 1.0,
    weak_capex_usd: Annotated[
        float | None, typer.Option(metavar="USD", help="Purchase price of a weak device, not its hourly one.")
    ] = None,
    strong_capex_usd: Annotated[
        float | None, typer.Option(metavar="USD", help="Purchase price of a strong device, not its hourly one.")
    ] = None,
    lifetime_years: Annotated[
        float | None, typer.Option(metavar="YEARS", help="Years that purchase prices are spread over.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a scenario key or parameter.")
    ] = None,
    workers: Annotated[int | None, typer.Option(metavar="N", help="Local processes; one per core if absent.")] = None,
    calibration: Annotated[
        Path | None, typer.Option("--calibration", callback=checked, help="Calibration file over the bundled fit.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Find the cheapest fleet that meets the objectives with confidence, for every strategy.

    A closed form orders the fleets, simulation decides; strong-only stands beside the others.
    """
    from costmodel.protocol import Role
    from simulator.scenario_file import load_scenario
    from simulator.size import size as find_size
    from simulator.size_cost import Terms
    from specroof.output import emit

    _must_count(settings or (), "--set")
    _must_count(vary or (), "--vary")
    capex = {Role.WEAK: weak_capex_usd, Role.STRONG: strong_capex_usd}
    terms = Terms(
        max_usd_per_h=max_usd_per_h,
        max_power_w=max_power_w,
        usd_per_kwh=usd_per_kwh,
        pue=pue,
        capex_usd={role: usd for role, usd in capex.items() if usd is not None},
        lifetime_years=lifetime_years,
    )
    with _progress() as tell:
        found = find_size(
            load_scenario(scenario, settings or (), calibration),
            slo,
            rate,
            strategies=strategy,
            vary=vary or (),
            terms=terms,
            max_replicas=max_replicas,
            workers=workers,
            progress=tell,
        )
    document: dict[str, object] = found.document()
    emit(document, as_json, lambda console: _render(console, document))


def _must_count(settings: list[str] | tuple[str, ...], option: str) -> None:
    """Refuse keys that a size finds or sets itself."""
    from simulator.scenario import PARAMETERS

    for setting in settings:
        key, _, value = (part.strip() for part in setting.partition("="))
        if not value:  # it unsets the key
            continue
        dotted = PARAMETERS.get(key, key)
        if dotted in ("weak.replicas", "strong.replicas"):
            raise InputError(f"{option} {key} has no effect: a size looks for the replicas; --max-replicas bounds them")
        if dotted in ("load.concurrency", "load.arrivals", "load.arrivals_speed", "load.sessions"):
            raise InputError(f"{option} {key} has no effect: a size is for Poisson arrivals at --rate")


@contextmanager
def _progress() -> Iterator[Callable[[str], None] | None]:
    """What goes on, in one line of a terminal."""
    if not sys.stderr.isatty():
        yield None
        return

    from specroof.output import console

    with console(stderr=True).status("sizing ...") as status:
        yield status.update


def _render(console: Console, document: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    goals = ", ".join(document["slos"])
    console.print(
        Text(f"{document['scenario']['title']}: {goals} at {document['rate_per_s']:g} trajectories/s", style="bold")
    )
    chosen = document["recommended"]
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for heading in ("weak", "strong", "USD/h", "kW", "p95 s", "interval", "runs", "meets"):
        table.add_column(heading, justify="right")
    for row in document["fleets"]:
        same = chosen is not None and all(row[k] == chosen[k] for k in row)
        table.add_row(_name(row), *_cells(row), style="bold" if same else None)
    console.print(table)
    console.print("intervals hold the chance of simulation alone, at central inputs; `specroof plan` has bands of both")
    for row in document["strategies"]:
        if row["reason"]:
            console.print(Text(f"{_name(row)}: {row['reason']}"))
    for row in document["failed"]:
        console.print(Text(f"{_settings(row['settings'])}: {row['reason']}"))
    if chosen is None:
        console.print(Text("recommended: none", style="bold"))
    else:
        fleet = f"{chosen['weak_replicas']} weak, {chosen['strong_replicas']} strong, {chosen['usd_per_h']:.2f} USD/h"
        console.print(Text(f"recommended: {_name(chosen)} with {fleet}: {chosen['why']}", style="bold"))


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    from simulator.size_runs import FAILING

    kw = "-" if row["peak_w"] is None else f"{row['peak_w'] / 1000:.3g}"
    if row["p95_s"] is None:
        times = ("-", "-" if row["slos"] else "failing" if row["reason"] == FAILING else "overloaded")
    else:
        times = (f"{row['p95_s']:.3g}", f"{row['low']:.3g} .. {row['high']:.3g}")
    replicas = (str(row["weak_replicas"]), str(row["strong_replicas"]))
    return *replicas, f"{row['usd_per_h']:.2f}", kw, *times, str(row["runs"]), "yes" if row["meets"] else "no"


def _name(row: dict[str, Any]) -> str:
    return f"{row['strategy']} ({_settings(row['settings'])})" if row["settings"] else str(row["strategy"])


def _settings(settings: dict[str, Any]) -> str:
    return ", ".join(f"{k} = {v}" for k, v in settings.items())
