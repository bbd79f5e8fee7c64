"""One figure as one HTML page that opens from disk and loads nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import plotly.io

from dashboards.template import plain
from hwprofiles.errors import InputError

_FOOTER = ("method", "notes", "assumptions", "scenario")


def write_figure(figure: go.Figure, title: str, document: Mapping[str, Any], path: Path) -> None:
    """Write a figure with its title, and the scenario behind it in a footer; the same bytes for the same document.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    body = plotly.io.to_html(
        figure, include_plotlyjs=True, full_html=False, div_id="figure", config={"displaylogo": False}
    )
    known = {k: document[k] for k in _FOOTER if k in document}
    footer = plain(json.dumps(known, indent=1))
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{plain(title)}</title>"
        "<style>body{font:15px/1.45 system-ui,sans-serif;max-width:960px;margin:2rem auto;padding:0 1rem;color:#22272e}"
        "details pre{white-space:pre-wrap;font-size:12px}</style></head>"
        f"<body><h1>{plain(title)}</h1>\n{body}\n"
        f"<details><summary>Scenario and provenance</summary><pre>{footer}</pre></details></body></html>\n"
    )
    try:
        path.write_bytes(page.encode("utf-8"))
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error
