"""`specroof simulate`: strategies of a scenario at its load, run on simulated engines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwprofiles.errors import InputError
from specroof.output import emit

if TYPE_CHECKING:
    from rich.console import Console

    from simulator.case import Case
    from simulator.results import RunResult

EXAMPLE = "Example: specroof simulate retail-h200 --strategy spec_agent --set concurrency=32 -o runs/retail"


def register(app: typer.Typer) -> None:
    """Add `simulate` to the application."""
    app.command("simulate", epilog=EXAMPLE)(simulate)


def simulate(
    scenario: Annotated[str, typer.Argument(help="A scenario file (TOML), or a bundled name.")],
    strategy: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A strategy (repeatable); all of the scenario's if absent.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a scenario key or parameter.")
    ] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", metavar="DIR", help="Save every run in a folder.")] = None,
    timeline: Annotated[
        Path | None, typer.Option(metavar="T.json", help="Write the first run as a Chrome trace (Perfetto).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Simulate strategies on batching engines with queues and caches: times, quantiles and costs under load.

    `run.seeds` independent runs per strategy; 90 % intervals over them; ratios paired by seed.
    """
    from simulator.case import prepare
    from simulator.replication import ratio_interval, replicate, summarise
    from simulator.results import STATUSES
    from simulator.scenario_file import load_scenario, to_document

    case = prepare(load_scenario(scenario, settings or ()))
    names = list(dict.fromkeys(strategy or case.scenario.strategies))
    runs = _with_progress(
        len(names) * case.scenario.run.seeds,
        lambda each: replicate(case, names, keep_log=timeline is not None or out is not None, each=each),
    )
    summary = {name: summarise(found) for name, found in runs.items()}
    ratios = {}
    if "strong_only" in runs:
        ratios = {name: ratio_interval(found, runs["strong_only"], "time_s") for name, found in runs.items()}
    if out is not None:
        _save(out, runs)
    if timeline is not None:
        _write_trace(timeline, runs[names[0]][0])
    document: dict[str, object] = {
        "scenario": to_document(case.scenario),
        "summary": summary,
        "time_ratio_to_strong_only": {name: None if r is None else r._asdict() for name, r in ratios.items()},
        "status_counts": {s: sum(part["status_counts"][s] for part in summary.values()) for s in STATUSES},
        "events": sum(run.meta["events"] for found in runs.values() for run in found),
    }
    emit(document, as_json, lambda console: _render(console, case, document))


def _with_progress(
    total: int, work: Callable[[Callable[[RunResult], None] | None], dict[str, list[RunResult]]]
) -> dict[str, list[RunResult]]:
    if not sys.stderr.isatty():
        return work(None)
    from rich.progress import Progress

    from specroof.output import console

    with Progress(console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("simulating", total=total)
        return work(lambda _: bar.advance(task))


def _save(folder: Path, runs: dict[str, list[RunResult]]) -> None:
    try:
        for name, found in runs.items():
            for run in found:
                run.save(folder / f"{name}-seed{run.meta['seed']}")
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from None


def _write_trace(path: Path, run: RunResult) -> None:
    from simulator.timeline import chrome_trace

    try:
        path.write_text(json.dumps(chrome_trace(run), allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


def _render(console: Console, case: Case, document: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    load = case.scenario.load
    text = (
        f"{load.arrival_rate_per_s:g} trajectories/s" if load.arrival_rate_per_s else f"{load.concurrency or 1} agents"
    )
    console.print(Text(f"{case.scenario.title}: {text}, {case.scenario.run.seeds} seeds", style="bold"))
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for heading in ("time s", "90 %", "p95 s", "queue s", "to strong_only", "90 %", "weak busy", "strong busy"):
        table.add_column(heading, justify="right")
    for name, part in document["summary"].items():
        ratio = document["time_ratio_to_strong_only"].get(name)
        busy = part["utilisation"]
        table.add_row(
            name,
            *_cells(part["time_s"]),
            _cells(part["time_s_p95"])[0],
            _cells(part["queue_s"])[0],
            *_cells(ratio),
            *(f"{busy[role]:.0%}" if role in busy else "API" for role in ("weak", "strong")),
        )
    console.print(table)
    counts = ", ".join(f"{n} {status}" for status, n in document["status_counts"].items())
    console.print(Text(f"{counts}; {document['events']:,} events", style="dim"))


def _cells(interval: dict[str, Any] | None) -> tuple[str, str]:
    if interval is None:
        return "-", ""
    if interval["low"] is None:
        return f"{interval['value']:.3g}", ""
    return f"{interval['value']:.3g}", f"{interval['low']:.3g} .. {interval['high']:.3g}"
