"""`specroof simulate`: strategies of a scenario at its load, run on simulated engines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwprofiles.errors import InputError
from specroof.calibrated import checked
from specroof.output import emit, must_be_writable, say

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
    calibration: Annotated[
        Path | None, typer.Option("--calibration", callback=checked, help="Calibration file over the bundled fit.")
    ] = None,
    precision: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Add seeds until times and ratios are known to this relative half-width."),
    ] = None,
    success: Annotated[
        bool, typer.Option("--success", help="Draw errors for every committed step, and success from them.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Simulate strategies on batching engines with queues and caches: times, quantiles and costs under load.

    `run.seeds` independent runs per strategy (more under --precision); intervals over them; ratios paired by seed.
    """
    from simulator.case import prepare
    from simulator.replication import difference_interval, level_of, ratio_interval, replicate, summarise
    from simulator.results import STATUSES
    from simulator.scenario_checks import check_strategies
    from simulator.scenario_file import load_scenario, to_document
    from simulator.surroundings import load_document

    must_be_writable(timeline)
    if precision is not None:
        settings = [*(settings or ()), f"run.precision={precision}"]
    case = prepare(load_scenario(scenario, settings or (), calibration))
    names = list(dict.fromkeys(strategy or case.scenario.strategies))
    check_strategies(names, case.scenario.strong)
    keep = timeline is not None or out is not None
    with _progress(case, len(names)) as (each, before):
        try:
            runs = replicate(case, names, keep_log=keep, out=out, details=keep or success, each=each, before=before)
        except OSError as error:
            raise InputError(f"{out}: cannot be written: {error.strerror or error}") from None
    level = level_of(case.scenario.run)
    summary = {name: summarise(found, level) for name, found in runs.items()}
    base = runs.get("strong_only")
    pairs = {} if base is None else {name: (found, base, "time_s", level) for name, found in runs.items()}
    ratios = {name: ratio_interval(*pair) for name, pair in pairs.items()}
    differences = {name: difference_interval(*pair) for name, pair in pairs.items()}
    if timeline is not None:
        _write_trace(timeline, runs[names[0]][0])
    document: dict[str, object] = {
        "scenario": to_document(case.scenario),
        "load": load_document(case.scenario.load, case.arrival_rate_per_s),
        "interval": _interval_document(case, runs),
        "summary": summary,
        "time_ratio_to_strong_only": {name: None if r is None else r._asdict() for name, r in ratios.items()},
        "time_difference_to_strong_only": {n: None if d is None else d._asdict() for n, d in differences.items()},
        "status_counts": {s: sum(part["status_counts"][s] for part in summary.values()) for s in STATUSES},
        "events": sum(run.meta["events"] for found in runs.values() for run in found),
    }
    if success:
        from simulator.success_drawn import drawn_success

        document["success"] = {name: drawn_success(case, found).to_dict() for name, found in runs.items()}
    emit(document, as_json, lambda console: _render(console, case, document))
    if out is not None:
        say("note", f"{_counted(sum(map(len, runs.values())), 'run')} written to {out}")
    if timeline is not None:
        seed = runs[names[0]][0].meta["seed"]
        say("note", f"timeline of {names[0]}, seed {seed}, written to {timeline}; open it in Perfetto")


def _interval_document(case: Case, runs: dict[str, list[RunResult]]) -> dict[str, object]:
    """What the intervals are: confidence, seeds, and under run.precision whether it was reached."""
    from simulator.replication import CONFIDENCE, is_precise, level_of, looks

    run = case.scenario.run
    n_looks = len(looks(run))
    return {
        "confidence": CONFIDENCE if run.confidence is None else run.confidence,
        "level_of_each": level_of(run),
        "correction": f"Bonferroni over {n_looks} possible looks" if n_looks > 1 else None,
        "seeds": len(next(iter(runs.values()))),
        "precision": run.precision,
        "reached": None if run.precision is None else is_precise(run, runs),
    }


@contextmanager
def _progress(case: Case, strategies: int) -> Iterator[tuple[Callable[[RunResult], None], Callable[[str, int], None]]]:
    """What to call after and before every run: a bar on a terminal, else nothing."""
    if not sys.stderr.isatty():
        yield lambda run: None, lambda name, seed: None
        return
    from rich.progress import Progress

    from specroof.output import console

    run = case.scenario.run
    with Progress(console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("simulating", total=None if run.precision else strategies * run.seeds)

        def before(name: str, seed: int) -> None:
            of = "" if run.precision else f" of {run.seeds}"
            bar.update(task, description=f"simulating {name}, seed {seed - run.seed + 1}{of}")

        yield lambda _: bar.advance(task), before


def _write_trace(path: Path, run: RunResult) -> None:
    from simulator.timeline import chrome_trace

    try:
        path.write_text(json.dumps(chrome_trace(run), allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


def _render(console: Console, case: Case, document: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    load, interval = document["load"], document["interval"]
    text = f"{load['arrival_rate_per_s'] or 0:g} trajectories/s ({load['kind'].replace('_', ' ')})"
    if load["kind"] == "closed":
        text = _counted(load["concurrency"], "agent")
    if load["kind"] == "poisson":
        text = f"{load['arrival_rate_per_s']:g} trajectories/s"
    seeds = _counted(interval["seeds"], "seed")
    console.print(Text(f"{case.scenario.title}: {text}, {seeds}", style="bold"))
    compared = len(document["summary"]) > 1 and bool(document["time_ratio_to_strong_only"])
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    band = f"{100 * interval['confidence']:g} %"
    against = ("to strong_only", band) if compared else ()
    for heading in ("time s", band, "p95 s", "queue s", *against, "weak busy", "strong busy"):
        table.add_column(heading, justify="right")
    for name, part in document["summary"].items():
        ratio = document["time_ratio_to_strong_only"].get(name)
        busy = part["utilisation"]
        table.add_row(
            name,
            *_cells(part["time_s"]),
            _cells(part["time_s_p95"])[0],
            _cells(part["queue_s"])[0],
            *(_cells(ratio) if compared else ()),
            *(f"{busy[role]:.0%}" if role in busy else "API" for role in ("weak", "strong")),
        )
    console.print(table)
    for name, found in document.get("success", {}).items():
        console.print(f"success of {name}: {found['value']:.3f} [{found['low']:.3f}, {found['high']:.3f}]")
    counts = ", ".join(f"{n} {status}" for status, n in document["status_counts"].items())
    console.print(Text(f"{counts}; {document['events']:,} events", style="dim"))
    if interval["reached"] is False:
        text = f"run.precision = {interval['precision']:g} was not reached with {seeds}; raise run.seeds_max"
        console.print(Text(text, style="yellow"))
    if document["status_counts"]["failed"]:
        console.print(Text("failed: a tool, link or API gave out; they are in no mean", style="dim"))
    if document["status_counts"]["unfinished"]:
        horizon = ", or were cut off by run.horizon_s" if case.scenario.run.horizon_s is not None else ""
        text = f"unfinished: they kept the load up behind the last counted one{horizon}; they are in no mean"
        console.print(Text(text, style="dim"))


def _counted(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n:,} {what}s"


def _cells(interval: dict[str, Any] | None) -> tuple[str, str]:
    if interval is None:
        return "-", ""
    if interval["low"] is None:
        return _short(interval["value"]), ""
    return _short(interval["value"]), f"{_short(interval['low'])} .. {_short(interval['high'])}"


def _short(value: float) -> str:
    """Three digits; what is below a nanosecond (or a billionth) is rounding, so 0."""
    return "0" if abs(value) < 1e-9 else f"{value:.3g}"
