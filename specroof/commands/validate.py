"""`specroof validate`: run the protocol for real and compare with the prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from specroof.calibrated import checked

Scenario = Annotated[str, typer.Argument(help="A scenario file or bundled name.")]
Weak = Annotated[str, typer.Option("--weak", help="URL of the weak model's server, fake: or vllm:FOLDER")]
Strong = Annotated[str, typer.Option("--strong", help="The strong model's")]
Tools = Annotated[
    str | None, typer.Option("--tools", metavar="COMMAND", help="MCP server; default: the bundled order desk.")
]
Tasks = Annotated[Path | None, typer.Option("--tasks", help="JSON Lines with id and request, for --tools.")]
Out = Annotated[Path | None, typer.Option("-o", "--output", help="Folder for journals and measured runs.")]
Runs = Annotated[
    int | None, typer.Option("--runs", min=1, max=100_000, help="Tasks to play; default: the desk's twenty.")
]
Faults = Annotated[int | None, typer.Option("--faults", metavar="SEED", min=0, help="Inject faults (fake engines).")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the journals in the output folder.")]
Strategies = Annotated[
    list[str] | None, typer.Option("--strategy", help="Only this one, repeatable; default: the scenario's.")
]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a scenario key.")]
Calibration = Annotated[
    Path | None, typer.Option("--calibration", callback=checked, help="Calibration file in place of the bundled fit.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


FAKE_NOTE = (
    "both engines are fake: they take the times that the cost model itself predicts, so this tries the protocol and "
    "its journal, not the prediction"
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: specroof validate retail-h200 --weak fake: --strong fake: -o runs/fake")(validate)


def validate(
    scenario: Scenario,
    weak: Weak,
    strong: Strong,
    tools: Tools = None,
    tasks: Tasks = None,
    output: Out = None,
    runs: Runs = None,
    faults: Faults = None,
    resume: Resume = False,
    strategies: Strategies = None,
    settings: Settings = None,
    calibration: Calibration = None,
    as_json: Json = False,
) -> None:
    """Run the strategies on real engines (or fakes) with real tools; prove the hold; compare with the prediction."""
    from hwprofiles.errors import InputError
    from simulator.case import prepare
    from simulator.scenario_file import load_scenario
    from specroof.output import MissingError, emit
    from validate.engine import EngineError
    from validate.journal import JournalError
    from validate.report import FAKE, document
    from validate.report import validate as run
    from validate.session import desk_jobs
    from validate.taskfile import read_jobs
    from validate.tools import ToolFailure

    if resume and output is None:
        raise InputError("--resume needs -o, the folder with the journals")
    if tasks is not None and (tools is None or runs is not None):
        raise InputError("--tasks goes with --tools and without --runs")
    case = prepare(load_scenario(scenario, settings or (), calibration))
    jobs = read_jobs(tasks) if tasks is not None else desk_jobs(runs or 20) if tools is None else None
    try:
        found = run(
            case,
            weak,
            strong,
            strategies=strategies,
            tools=tools,
            jobs=jobs,
            out=output,
            faults=faults,
            resume=resume,
            progress=_progress,
        )
    except (EngineError, ToolFailure, JournalError) as error:
        later = " (--resume goes on from here)" if output else ""
        raise MissingError(f"{error}{later}") from None
    finally:
        _progress("")
    result = document(case, found)
    if weak == FAKE:
        result = {"note": FAKE_NOTE, **result}
    emit(result, as_json, lambda console: _show(console, result))


def _progress(line: str) -> None:
    import sys

    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{line}")


def _show(console: Any, result: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(title="measured beside predicted, mean per finished task", title_justify="left")
    for heading in ("strategy", "metric", "measured", "predicted [90 %]", "median error", "in band"):
        table.add_column(heading)
    for name, metrics in result["measured"].items():
        for metric, value in metrics.items():
            p = result["predicted"][name][metric]
            guess = f"{p['value']:.4g} [{p['low']:.4g}, {p['high']:.4g}]"
            one = result["strategies"][name]
            error = f"{one['errors'][metric]['median_ape']:.1%}"
            table.add_row(name, metric, f"{value:.4g}", guess, error, f"{one['in_band'][metric]:.0%}")
    console.print(table)
    if "note" in result:
        console.print(f"note: {result['note']}", soft_wrap=True)
    h = result["held"]
    console.print(
        f"held actions: {h['held']}, accepted {h['accepted']}, run before a verdict {h['executed_before_verdict']}, "
        f"lost {h['lost']}, run twice {h['run_twice']}, of unknown fate {h['unresolved']}"
    )
    for name, one in result["strategies"].items():
        t = one["tasks"]
        status = ", ".join(f"{n} {s}" for s, n in t["status"].items())
        console.print(f"{name}: {t['played']} tasks ({status}), {t['solved']} solved, {t['resumed']} resumptions")
