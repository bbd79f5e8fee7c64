"""`specroof validate`: run the protocol for real and compare with the prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from specroof.calibrated import check_version, checked

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
Replay = Annotated[
    bool, typer.Option("--replay", help="Force the scenario's token counts and verdicts onto the engines; no tools.")
]
Agents = Annotated[int | None, typer.Option("--agents", min=1, max=1000, help="With --replay: agents at once.")]
Shadow = Annotated[
    int | None,
    typer.Option("--shadow", metavar="N", min=1, help="Drafts beside N strong-only tasks; none acts."),
]
Temperature = Annotated[
    float | None,
    typer.Option("--temperature", min=0.0, max=2.0, help="Of real engines; default: 0 of servers, 1 of vllm:FOLDER."),
]
LongestText = Annotated[
    int | None,
    typer.Option(
        "--longest-text",
        metavar="CHARACTERS",
        min=1,
        max=100_000,
        help="vLLM engines: hold each step to one JSON object with texts of at most this length.",
    ),
]
Report = Annotated[Path | None, typer.Option("--report", help="HTML page with parity plots.")]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a scenario key.")]
Calibration = Annotated[
    Path | None, typer.Option("--calibration", callback=checked, help="Calibration file in place of the bundled fit.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


FAKE_NOTE = (
    "both engines are fake: they take the times that the cost model itself predicts, so this tries the protocol and "
    "its journal, not the prediction"
)

REPLAY_NOTE = (
    "both engines are fake: the simulator's own behind the replay's client; so this does not try the prediction"
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
    replay: Replay = False,
    agents: Agents = None,
    shadow: Shadow = None,
    temperature: Temperature = None,
    longest_text: LongestText = None,
    report: Report = None,
    settings: Settings = None,
    calibration: Calibration = None,
    as_json: Json = False,
) -> None:
    """Run the strategies on real engines (or fakes) with real tools; prove the hold; compare with the prediction."""
    from hwprofiles.errors import InputError
    from simulator.case import prepare
    from simulator.scenario_file import load_scenario
    from specroof.output import MissingError, must_be_writable, progress_line
    from validate.engine import EngineError
    from validate.journal import JournalError
    from validate.report import validate as run
    from validate.report_document import document
    from validate.report_engines import FAKE, Asking
    from validate.session import desk_jobs
    from validate.taskfile import read_jobs
    from validate.tools import ToolFailure

    if report is not None:
        must_be_writable(report)
    if resume and output is None:
        raise InputError("--resume needs -o, the folder with the journals")
    if tasks is not None and (tools is None or runs is not None):
        raise InputError("--tasks goes with --tools and without --runs")
    if agents is not None and not replay:
        raise InputError("--agents goes with --replay; a run with tools plays one task after the other")
    given: dict[str, object] = {"--temperature": temperature, "--longest-text": longest_text}
    if FAKE in (weak, strong) and (unused := [name for name, value in given.items() if value is not None]):
        raise InputError(f"{unused[0]} is for real engines; fake ones follow a script")
    case = prepare(load_scenario(scenario, settings or (), calibration))
    for url in (weak, strong):
        check_version(calibration, url)
    if replay:
        unfit: dict[str, object] = {
            "--tools": tools,
            "--tasks": tasks,
            "--faults": faults,
            "--resume": resume or None,
            "--shadow": shadow,
        }
        unfit |= given
        if unused := [name for name, value in unfit.items() if value is not None]:
            raise InputError(f"{unused[0]} does not go with --replay, which calls no tools and keeps no journal")
        _emit(_replayed(case, weak, strong, strategies, agents or 1, runs or 10, output), report, as_json)
        return
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
            shadow_tasks=shadow or 0,
            asking=Asking(temperature=temperature, longest_text=longest_text),
            progress=progress_line,
        )
    except (EngineError, ToolFailure, JournalError) as error:
        later = " (--resume goes on from here)" if output else ""
        raise MissingError(f"{error}{later}") from None
    finally:
        progress_line("")
    result = document(case, found)
    if weak == FAKE:
        result = {"note": FAKE_NOTE, **result}
    _emit(result, report, as_json)


def _replayed(
    case: Any, weak: str, strong: str, strategies: list[str] | None, agents: int, runs: int, output: Path | None
) -> dict[str, Any]:
    from specroof.output import MissingError, progress_line
    from validate.engine import EngineError
    from validate.replay_report import document, replay
    from validate.report_engines import FAKE

    try:
        found = replay(
            case, weak, strong, strategies=strategies, agents=agents, n=runs, out=output, progress=progress_line
        )
    except EngineError as error:
        raise MissingError(str(error)) from None
    finally:
        progress_line("")
    result = document(case, found)
    return {"note": REPLAY_NOTE, **result} if weak == FAKE else result


def _emit(result: dict[str, Any], report: Path | None, as_json: bool) -> None:
    """Answer, and write the page."""
    from specroof.output import emit, warn

    if report is not None:
        if result["errors"]:
            from dashboards.parity import write_parity

            write_parity(result, report)
        else:
            warn(f"nothing finished, so {report} is not written")
    emit(result, as_json, lambda console: _show(console, result))


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
            inside = one["in_band"].get(metric)
            table.add_row(name, metric, f"{value:.4g}", guess, error, "" if inside is None else f"{inside:.0%}")
    console.print(table)
    if "note" in result:
        console.print(f"note: {result['note']}", soft_wrap=True)
    for name, families in result["phases"].items():
        parts = (f"{f} {v['measured_s']:.3g}/{v['predicted_s']:.3g}" for f, v in families.items())
        console.print(f"{name}, s measured/predicted: {', '.join(parts)}", soft_wrap=True)
    if result.get("mode") == "replay":
        order = result["ranking"]
        console.print(f"{order['ranked_right']} of {order['pairs_apart']} pairs of strategies apart are ranked right")
        _show_counters(console, result["counters"])
        return
    for name, v in result["verdicts"].items():
        console.print(
            f"{name}: acceptance {v['acceptance']:.3f} [{v['low']:.3f}, {v['high']:.3f}] over {v['reached']} drafted "
            f"steps; the scenario assumes {v['assumed']:.3f}"
        )
    if result["shadow"]:
        d = result["shadow"]
        console.print(
            f"shadow of {d['steps']} steps: acceptance {d['acceptance']:.3f} [{d['low']:.3f}, {d['high']:.3f}], same "
            f"call {d['same_call']:.3f}, verdict {d['verdict_tokens']:.1f} tokens, verbosity {d['verbosity']:.2f}"
        )
    h = result["held"]
    console.print(
        f"held actions: {h['held']}, accepted {h['accepted']}, run before a verdict {h['executed_before_verdict']}, "
        f"lost {h['lost']}, run twice {h['run_twice']}, of unknown fate {h['unresolved']}"
    )
    for name, one in result["strategies"].items():
        t = one["tasks"]
        status = ", ".join(f"{n} {s}" for s, n in t["status"].items())
        console.print(f"{name}: {t['played']} tasks ({status}), {t['solved']} solved, {t['resumed']} resumptions")


def _show_counters(console: Any, counters: dict[str, dict[str, Any]]) -> None:
    from validate.counters_server import in_words

    for name, roles in counters.items():
        for role, found in roles.items():
            if found is not None:
                console.print(f"{name}, counters of the {role} server: {in_words(found)}", soft_wrap=True)
