"""What a page shows as files: its scenario, its data, its figures."""

from __future__ import annotations

import base64
import importlib.util
import io
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from dashboards import template
from dashboards.page import figures_page
from dashboards.view import scenario_toml
from hwprofiles.errors import InputError

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
_WIDTH, _TITLE_HEIGHT = 900, 76


def can_draw_images() -> bool:
    """True where kaleido is installed and a browser for it is found."""
    return importlib.util.find_spec("kaleido") is not None and any(shutil.which(b) for b in _BROWSERS)


KINDS: tuple[tuple[str, str], ...] = (
    ("toml", "Scenario (TOML)"),
    ("csv", "Data (CSV)"),
    ("parquet", "Data (parquet)"),
    ("html", "All figures (HTML)"),
)
"""What a page is saved as: kind and words."""

FIGURE_KINDS: tuple[str, ...] = ("html", "svg", "png") if can_draw_images() else ("html",)
"""What one figure is saved as; the kind of the second figure's SVG is `svg-1`."""


def saved(
    kind: str,
    name: str,
    data: pd.DataFrame,
    figures: Sequence[tuple[str, go.Figure]],
    document: Mapping[str, Any],
) -> dict[str, Any]:
    """A file for the browser to save, as `dcc.Download` takes it.

    Parameters
    ----------
    kind : one of `KINDS`, or one of `FIGURE_KINDS` with the number of a figure, counted from 0: `png-0`

    Raises
    ------
    InputError
        There is no figure of that number.
    """
    kind, _, number = kind.partition("-")
    title = str((document.get("scenario") or {}).get("title") or name)
    if number:
        if not number.isdigit() or int(number) >= len(figures):
            raise InputError("this figure is no longer on the page; draw it again")
        figures, name = [figures[int(number)]], f"{name}-{int(number) + 1}"
    if kind == "toml":
        return _text(f"{name}.toml", scenario_toml(document), "application/toml")
    if kind == "csv":
        return _text(f"{name}.csv", data.to_csv(index=False, lineterminator="\n"), "text/csv")
    if kind == "parquet":
        out = io.BytesIO()
        data.to_parquet(out, index=False)
        return _bytes(f"{name}.parquet", out.getvalue(), "application/vnd.apache.parquet")
    if kind == "html":
        return _text(f"{name}.html", figures_page(figures, title, document), "text/html")
    (words, figure), *_ = figures
    return _bytes(f"{name}.{kind}", image(figure, words, title, kind), f"image/{'svg+xml' if kind == 'svg' else kind}")


def image(figure: go.Figure, words: str, about: str, kind: str) -> bytes:
    """The figure as SVG or PNG on white, under its title and what it is about; needs kaleido and a browser."""
    height, above = int(figure.layout.height or 500), figure.layout.margin.t or 0
    figure = go.Figure(figure).update_layout(
        template=template.LIGHT,
        height=height + _TITLE_HEIGHT,
        margin={"t": above + _TITLE_HEIGHT},
        title={
            "text": template.plain(words),
            "subtitle": {"text": template.plain(template.shorten(about, 110))},
            **{"x": 0.01, "xanchor": "left", "y": 1.0, "yanchor": "top", "yref": "container", "pad": {"t": 14}},
        },
    )
    return bytes(figure.to_image(format=kind, width=_WIDTH, height=height + _TITLE_HEIGHT, scale=2))


def _text(filename: str, content: str, kind: str) -> dict[str, Any]:
    return {"filename": filename, "content": content, "type": kind, "base64": False}


def _bytes(filename: str, content: bytes, kind: str) -> dict[str, Any]:
    return {"filename": filename, "content": base64.b64encode(content).decode("ascii"), "type": kind, "base64": True}
