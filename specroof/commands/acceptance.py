"""`specroof acceptance`: how often drafts would be kept, from a trace pair or from judgements."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from hwprofiles.errors import InputError
from specroof.output import emit, warn

if TYPE_CHECKING:
    from rich.console import Console

    from costmodel.trajectory import Workload
    from simulator.agreement import Agreement
    from simulator.effects import EffectMap
    from simulator.rates import Rate

EXAMPLE = "Example: specroof acceptance --weak retail-gpt-4.1-mini --strong retail-gemini-3-flash"


def register(app: typer.Typer) -> None:
    """Add `acceptance` to the application."""
    app.command("acceptance", epilog=EXAMPLE)(acceptance)


def acceptance(
    weak: Annotated[
        str | None, typer.Option(metavar="TRACE", help="Trace of the weak model, or a bundled name.")
    ] = None,
    strong: Annotated[str | None, typer.Option(metavar="TRACE", help="Trace of the strong model, same tasks.")] = None,
    judgements: Annotated[
        str | None,
        typer.Option(
            metavar="CSV",
            help="Judged drafts: columns task, step, position, effect, accepted; perhaps valid and length.",
        ),
    ] = None,
    effects: Annotated[str | None, typer.Option(help="TOML map of tool effects, or MCP tools/list JSON.")] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="A tool to leave out (repeatable).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Acceptance by position and effect, with 90 % intervals, and lines for a scenario file.

    A trace pair gives literal agreement, a lower bound for what a verifier accepts; judgements give the thing itself.
    """
    from simulator.agreement import HANDOVERS, agreement
    from simulator.effects_file import read_effects
    from simulator.judgements import from_judgements

    if judgements is not None:
        if weak or strong or effects or ignore:
            raise InputError("--judgements stands alone: leave out --weak, --strong, --effects and --ignore")
        found = from_judgements(judgements)
    elif weak is None or strong is None:
        raise InputError("give --weak TRACE and --strong TRACE (same tasks), or --judgements CSV")
    else:
        known = None if effects is None else read_effects(effects)
        left_out = (*HANDOVERS, *(ignore or ()))
        found = agreement(_workload(weak, known), _workload(strong, known), ignore=left_out)
    for note in found.notes:
        warn(note)
    emit(_document(found), as_json, lambda console: _render(console, found))


def _workload(name: str, effects: EffectMap | None) -> Workload:
    from simulator.traces import read_trace
    from simulator.workloads import workload, workload_names

    if effects is None or name in workload_names():
        return workload(name)
    return read_trace(name, effects=effects).workload


def _rate(rate: Rate) -> dict[str, object]:
    return {"value": rate.value, "low": rate.low, "high": rate.high, "n": rate.n}


def _document(found: Agreement) -> dict[str, object]:
    no_order = "judgements say which draft was kept, not in which order calls came"
    return {
        "kind": found.kind,
        "source": found.source,
        "tasks": found.tasks,
        "mean": _rate(found.mean),
        "by_position": [{"position": p.position, **_rate(p.rate)} for p in found.by_position],
        "by_effect": {effect: _rate(rate) for effect, rate in found.by_effect.items()},
        "any_order": {"value": None, "reason": no_order}
        if found.any_order is None
        else {**_rate(found.any_order), "leading_share": found.leading_share},
        "literal": None if found.literal is None else _rate(found.literal),
        "rejections": None if found.rejections is None else asdict(found.rejections),
        "verifier": None if found.verifier is None else {**asdict(found.verifier), "toml": found.verifier.toml()},
        "steps_not_compared": found.not_compared,
        "method": found.method,
        "notes": list(found.notes),
        "toml": None if found.too_few else found.toml(),
        "toml_under": "[protocol]",
        "toml_refused": found.too_few,
    }


def _verifier_rows(found: Agreement) -> list[tuple[str, Rate]]:
    if found.verifier is None:
        return []
    rows: list[tuple[str, Rate | None]] = [
        ("invalid steps rejected", found.verifier.detection),
        ("valid steps rejected", found.verifier.false_reject),
    ]
    for c in found.verifier.cells:
        place = f"{c.position}" if c.length is None else f"{c.position} of {c.length}"
        rows += [(f"d at {place}", c.detection), (f"f at {place}", c.false_reject)]
    return [(label, rate) for label, rate in rows if rate is not None]


def _render(console: Console, found: Agreement) -> None:
    from rich.table import Table
    from rich.text import Text

    console.print(Text(f"Acceptance: {found.source}, {found.tasks} tasks", style="bold"))
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for heading in ("accepted", "low", "high", "n"):
        table.add_column(heading, justify="right")
    rows = [("mean", found.mean)]
    if found.literal is not None:
        rows.append(("letter by letter", found.literal))
    if found.any_order is not None:
        rows.append(("in any order", found.any_order))
    rows += [(f"effect {effect}", rate) for effect, rate in found.by_effect.items()]
    rows += [(f"position {p.position}", p.rate) for p in found.by_position]
    rows += _verifier_rows(found)
    for label, rate in rows:
        table.add_row(label, f"{rate.value:.3f}", f"{rate.low:.3f}", f"{rate.high:.3f}", str(rate.n))
    console.print(table)
    console.print(Text(found.method, style="dim"))
    if found.rejections is not None and found.rejections.kept_calls is not None:
        r = found.rejections
        kept, dropped = found.rejections.kept_calls, r.dropped_calls
        more = f", and {dropped.mean:.1f} dropped" if dropped else ""
        console.print(
            Text(f"rejected in {r.rejected} of {r.tasks} tasks; mean calls kept before that {kept.mean:.1f}{more}"),
            soft_wrap=True,
        )
    if found.verifier is not None and found.verifier.toml():
        console.print(Text(f"\nput these lines under [quality]:\n{found.verifier.toml()}"), soft_wrap=True)
    if found.not_compared is not None:
        console.print(
            Text(
                f"{found.not_compared} steps of the strong model in these tasks hold no compared call (replies, pure "
                "calls, tools left out), so this says nothing about them"
            ),
            soft_wrap=True,
        )
    if found.too_few is not None:
        console.print(Text(f"\n{found.too_few}"), soft_wrap=True)
    else:
        console.print(Text(f"\nput this line under [protocol]:\n{found.toml()}"), soft_wrap=True)
