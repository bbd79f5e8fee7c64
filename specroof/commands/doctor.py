"""`specroof doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from specroof.output import emit

if TYPE_CHECKING:
    from rich.console import Console

    from specroof.doctor import Check


def register(app: typer.Typer) -> None:
    """Add `doctor` to the application."""
    app.command(name="doctor", epilog="Example: specroof doctor --json")(doctor)


def doctor(as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False) -> None:
    """Check the environment: versions, missing extras, data files and known clashes.

    Exit code 0 unless a check fails; a warning is no failure.
    """
    from specroof.doctor import examine

    checks = examine()
    document: dict[str, object] = {
        "checks": [{"name": check.name, "status": check.status, "detail": check.detail} for check in checks]
    }
    emit(document, as_json, lambda console: _render(console, checks))
    if any(check.status == "fail" for check in checks):
        raise typer.Exit(3)


def _render(console: Console, checks: list[Check]) -> None:
    from rich.table import Table
    from rich.text import Text

    styles = {"ok": "green", "warn": "yellow", "fail": "bold red"}
    table = Table("check", "status", "detail", box=None, pad_edge=False)
    for check in checks:
        table.add_row(Text(check.name), Text(check.status, style=styles[check.status]), Text(check.detail))
    console.print(table)
