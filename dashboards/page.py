"""Figures and tables as one HTML page that opens from disk, prints, and loads nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from dashboards.paper import asset, environment, script_hash, script_json
from dashboards.units import compact
from dashboards.view import scenario_toml
from hwprofiles.errors import InputError

Table = tuple[str, Sequence[Mapping[str, object]]]
"""A heading and rows with the same keys."""


def write_figure(
    figure: go.Figure, title: str, document: Mapping[str, Any], path: Path, tables: Sequence[Table] = ()
) -> None:
    """Write a figure with its title, and the scenario behind it at its foot; the same bytes for the same document.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    write_page(figures_page([("", figure)], title, document, tables), path)


def write_page(page: str, path: Path) -> None:
    """Write a page as UTF-8; raises `InputError` when the file cannot be written."""
    try:
        path.write_bytes(page.encode("utf-8"))
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def figures_page(
    figures: Sequence[tuple[str, go.Figure]],
    title: str,
    document: Mapping[str, Any],
    tables: Sequence[Table] = (),
) -> str:
    """Figures and tables under each other, with contents, one copy of plotly.js, and what is behind them at the foot.

    Parameters
    ----------
    figures : pairs of heading and figure
    document : Mapping
        `notes` (texts), `assumptions` (rows) and `scenario` are shown where they are there.
    """
    library, starter = get_plotlyjs(), asset("report.js")
    scenario = document.get("scenario") or {}
    assumed: Sequence[Mapping[str, object]] = document.get("assumptions") or ()
    keys = list(dict.fromkeys(key for row in assumed for key in row))
    assumptions = [{key: row.get(key, "") for key in keys} for row in assumed]
    return environment().get_template("figures.html.j2").render(
        title=title,
        about=str(scenario.get("title") or ""),
        figures=[
            {
                "id": f"figure-{i}",
                "title": words,
                "height": figure.layout.height or 480,
                "json": script_json(figure),
            }
            for i, (words, figure) in enumerate(figures)
        ],
        tables=[
            {"title": words, "heads": list(rows[0]), "rows": [[compact(v) for v in row.values()] for row in rows]}
            for words, rows in (*tables, ("Assumptions", assumptions))
            if rows
        ],
        notes=[str(n) for n in document.get("notes") or ()],
        scenario=scenario_toml(document) if scenario else "",
        style=Markup(asset("report.css")),
        library=Markup(library),
        starter=Markup(starter),
        script_hashes=[script_hash(library), script_hash(starter)],
    )  # fmt: skip
