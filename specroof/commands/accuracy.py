"""`specroof accuracy`: predicts every row of measurement tables and scores the predictions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specroof.output import emit

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLE = "Example: specroof accuracy tables/*.csv --by table,row_kind,dtype --predictions predicted.csv"
_FIGURES = ("median_ape", "p90_ape", "mean_ape", "bias")


def register(app: typer.Typer) -> None:
    """Add `accuracy` to the application."""
    app.command("accuracy", epilog=EXAMPLE)(accuracy)


def accuracy(
    tables: Annotated[
        list[Path] | None, typer.Argument(metavar="TABLE.csv...", help="Measurement tables; default: the bundled one.")
    ] = None,
    by: Annotated[
        str, typer.Option(metavar="COLUMNS", help="Columns to group by, with commas between; an empty text for none.")
    ] = "table,row_kind",
    predictions: Annotated[
        Path | None, typer.Option(metavar="OUT.csv", help="Write every row with its prediction, band and status.")
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Factors of a calibration file in place of the bundled fit.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Error of the cost model on measured steps, operators, batches and serving runs, with the coverage of its bands.

    Groups: any column of the table, or table, row_kind, device, dtype, family, tp, library, generation, odd, load,
    parallel.
    """
    from validate.accuracy.report import evaluate

    found = evaluate(tables or None, by.split(","), calibration=calibration, predictions=predictions)
    emit(found, as_json, lambda console: _render(console, found))


def _render(console: Console, found: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    from validate.accuracy.score import cannot_tell

    for title, lines in (("By group", found["groups"]), ("Always shown", found["lanes"])):
        table = Table(box=None, pad_edge=False, title=title, title_justify="left")
        names = list(lines[0]["group"]) if lines else []
        for name in names:
            table.add_column(name)
        for name in ("n", "covered", "median %", "p90 %", "mean %", "bias %", "in band"):
            table.add_column(name, justify="right")
        for line in [*lines, *([{"group": dict.fromkeys(names, "all"), **found["overall"]}] if names else [])]:
            cells = [_figure(line[key]) for key in _FIGURES]
            band = "-" if line["in_band"] is None else f"{100 * line['in_band']:.0f} %"
            band += ", cannot tell" if cannot_tell(line) else ""
            keys = [Text(str(value)) for value in line["group"].values()]
            table.add_row(*keys, str(line["n"]), str(line["covered"]), *cells, band)
        console.print(table)
    for line in found["ttft_intercepts"]:
        console.print(
            f"time to first token beyond the prefill, {line['generation']}: median {line['median_ms']:.1f} ms "
            f"(half of {line['n']} rows within {line['low_ms']:.1f} to {line['high_ms']:.1f})",
            markup=False,
        )
    for reason, n in found["skipped"].items():
        console.print(f"skipped {n}: {reason}", markup=False)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
