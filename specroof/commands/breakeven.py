"""`specroof breakeven`: where drafting pays, over two parameters or over hardware."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specroof.calibrated import checked

if TYPE_CHECKING:
    from rich.console import Console

    from simulator.balance import Balance
    from simulator.breakeven import BreakEven
    from simulator.breakeven_loads import ByLoad

X = Annotated[str | None, typer.Option("--x", metavar="NAME=LO:HI:N", help="Columns: LO:HI:N, LO:HI:N:log or A,B,C.")]
Y = Annotated[str | None, typer.Option("--y", metavar="NAME=LO:HI:N", help="Rows of the map.")]
Objective = Annotated[str, typer.Option(help="time, traffic, flops, energy or money.")]
StrategyName = Annotated[str, typer.Option("--strategy", help="Strategy compared with strong_only.")]
Method = Annotated[str, typer.Option(help="expected (idle engines) or simulated (at the scenario's load).")]
Windows = Annotated[
    str | None, typer.Option("--windows", metavar="1,2,4,8", help="Take the best of these windows in every cell.")
]
Loads = Annotated[
    str | None, typer.Option("--load", metavar="1,10,100", help="One map per number of agents: expected, or simulated.")
]
StudyFile = Annotated[
    Path | None, typer.Option("--study", metavar="FILE", help="SQLite file that keeps every simulated cell; resumable.")
]
Devices = Annotated[
    str | None,
    typer.Option("--balance", metavar="A,B,C", help="Critical acceptance on these devices, over their ridge point."),
]
Out = Annotated[
    Path | None, typer.Option("-o", "--output", help="Write the figure: .html, or .svg (contours, or the balance).")
]
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
        epilog="Example: specroof breakeven retail-h200 --x acceptance=0.5:0.99:50 --y output_tokens=30:600:50"
    )(breakeven)


def breakeven(
    scenario: Annotated[str, typer.Argument(help="Scenario file or bundled name.")],
    x: X = None,
    y: Y = None,
    objective: Objective = "time",
    strategy: StrategyName = "spec_agent",
    method: Method = "expected",
    windows: Windows = None,
    loads: Loads = None,
    study: StudyFile = None,
    devices: Devices = None,
    output: Out = None,
    settings: Settings = None,
    calibration: Calibration = None,
    as_json: Json = False,
) -> None:
    """Map the ratio to strong-only over two parameters: where it wins, what decides, and the contour where it flips."""
    from hwprofiles.errors import InputError
    from simulator.scenario_file import load_scenario
    from specroof.output import emit, must_be_writable

    must_be_writable(output)
    if output is not None and output.suffix.lower() not in (".html", ".htm", ".svg"):
        raise InputError(f"-o {output}: the figure is HTML or SVG, so its name must end in .html or .svg")
    if devices is None and (x is None or y is None):
        raise InputError("give both --x and --y, or --balance with a list of devices")
    if devices is not None and (x or y or windows or loads or study or method != "expected"):
        raise InputError("--balance goes with none of --x, --y, --windows, --load, --study and --method")
    if loads is not None and (windows or method != "expected"):
        raise InputError(
            "--load says itself what is expected and what simulated; it goes with no --windows or --method"
        )
    case = load_scenario(scenario, settings or (), calibration)
    if devices is not None:
        from simulator.balance import balance

        found = balance(case, [d.strip() for d in devices.split(",")], objective=objective, strategy=strategy)
        _save(found.document(), "balance", output)
        emit(found.document(), as_json, lambda console: _balance_table(console, found))
        return
    from simulator.breakeven import breakeven as map_

    assert x is not None
    assert y is not None
    if loads is not None:
        from simulator.breakeven_loads import by_load

        agents = _whole(loads, "--load")
        with _progress() as told:
            maps = by_load(case, x, y, agents, objective=objective, strategy=strategy, study=study, progress=told)
        _save(maps.document(), "loads", output)
        emit(maps.document(), as_json, lambda console: _loads_text(console, maps))
        return
    with _progress() as told:
        drawn = map_(
            case,
            x,
            y,
            objective=objective,
            strategy=strategy,
            windows=_whole(windows, "--windows"),
            method=method,
            study=study,
            progress=told,
        )
    _save(drawn.document(), "map", output)
    emit(drawn.document(), as_json, lambda console: _map_text(console, drawn))


def _whole(text: str | None, option: str) -> tuple[int, ...]:
    from hwprofiles.errors import InputError

    if text is None:
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{option} {text}: expected whole numbers such as 1,2,4,8") from None


def _save(document: dict[str, object], kind: str, output: Path | None) -> None:
    if output is None:
        return
    from dashboards.breakeven import write_balance, write_map
    from dashboards.breakeven_loads import write_loads
    from dashboards.breakeven_svg import write_svg
    from specroof.output import say

    writers = {"map": write_map, "loads": write_loads, "balance": write_balance}
    (write_svg if output.suffix.lower() == ".svg" else writers[kind])(document, output)
    say("note", f"figure written to {output}")


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """A bar of the simulated cells with the time left, on a terminal only; it appears with the first cell."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from specroof.output import console

    columns = (TextColumn("simulated cells"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("cells", total=None, visible=False)
        yield lambda done, cells: bar.update(task, total=cells, completed=done, visible=True)


def _loads_text(console: Console, found: ByLoad) -> None:
    from rich.table import Table

    from simulator.breakeven import in_words

    first = found.maps[0]
    for n, drawn in zip(found.agents, found.maps, strict=True):
        console.print(f"[bold]{n} {'agents' if n > 1 else 'agent'}[/bold], {drawn.method}")
        for line in (*in_words(drawn), *(f"note: {note}" for note in drawn.notes)):
            console.print(line)
        _failures(console, drawn)
    table = Table(title=f"{first.objective}: {first.x.name} where the ratio to strong-only is 1, by agents")
    table.add_column(first.y.name, justify="right")
    for n in found.agents:
        table.add_column(str(n), justify="right")
    for value in first.y.values[:: max(1, len(first.y.values) // 12)]:
        roots = [[_or(p["x"]) for p in m.frontier if p["y"] == value] for m in found.maps]
        table.add_row(f"{value:.4g}", *(", ".join(r) for r in roots))
    console.print(table)


def _failures(console: Console, m: BreakEven) -> None:
    from rich.markup import escape

    if m.failed:
        one = m.failed[0]
        where = f"{m.x.name} = {one['x']:.4g}, {m.y.name} = {one['y']:.4g}"
        console.print(f"{len(m.failed)} simulated cells failed; the first, at {where}: {escape(one['reason'])}")


def _map_text(console: Console, m: BreakEven) -> None:
    from rich.table import Table

    from simulator.breakeven import in_words

    for line in in_words(m):
        console.print(line)
    table = Table(title=f"{m.objective}: where the ratio to strong-only is 1")
    table.add_column(m.y.name, justify="right")
    table.add_column(f"{m.x.name} at 1", justify="right")
    table.add_column("90 % band", justify="right")
    points = m.frontier[:: max(1, len(m.frontier) // 12)]
    for point in points:
        table.add_row(f"{point['y']:.4g}", _or(point["x"]), f"{_or(point['x_low'])} to {_or(point['x_high'])}")
    console.print(table)
    _failures(console, m)
    for note in m.notes:
        console.print(f"note: {note}")


def _balance_table(console: Console, b: Balance) -> None:
    from rich.table import Table

    table = Table(title=f"{b.objective}: acceptance from which {b.strategy} pays")
    for heading in ("hardware", "ridge FLOP/B", "devices", "pays from", "90 % band", "ratio"):
        table.add_column(heading, justify="left" if heading == "hardware" else "right")
    for row in b.devices:
        if "reason" in row:
            table.add_row(row["hardware"], "-", "-", "-", "-", row["reason"])
            continue
        c, n = row["critical_acceptance"], row["n_devices"]
        table.add_row(
            row["hardware"],
            f"{row['ridge_flops_per_byte']:.0f}",
            f"{n['weak']} + {n['strong']}",
            _or(c["value"]),
            f"{_or(c['low'])} to {_or(c['high'])}",
            f"{row['ratio']['value']:.2f} [{row['ratio']['low']:.2f}, {row['ratio']['high']:.2f}]",
        )
    console.print(table)
    console.print("note: each replica (weak + strong) takes the fewest devices that hold it, not the scenario's number")


def _or(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
