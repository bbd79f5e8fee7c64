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

from dashboards.page import figures_page
from dashboards.view import scenario_toml

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")


def can_draw_images() -> bool:
    """True where kaleido is installed and a browser for it is found."""
    return importlib.util.find_spec("kaleido") is not None and any(shutil.which(b) for b in _BROWSERS)


KINDS: tuple[tuple[str, str], ...] = (
    ("toml", "Scenario (TOML)"),
    ("csv", "Data (CSV)"),
    ("parquet", "Data (parquet)"),
    ("html", "Figures (HTML)"),
    *((("svg", "First figure (SVG)"), ("png", "First figure (PNG)")) if can_draw_images() else ()),
)


def saved(
    kind: str,
    name: str,
    data: pd.DataFrame,
    figures: Sequence[tuple[str, go.Figure]],
    document: Mapping[str, Any],
) -> dict[str, Any]:
    """A file for the browser to save, as `dcc.Download` takes it; `kind` is one of `KINDS`."""
    if kind == "toml":
        return _text(f"{name}.toml", scenario_toml(document), "application/toml")
    if kind == "csv":
        return _text(f"{name}.csv", data.to_csv(index=False, lineterminator="\n"), "text/csv")
    if kind == "parquet":
        out = io.BytesIO()
        data.to_parquet(out, index=False)
        return _bytes(f"{name}.parquet", out.getvalue(), "application/vnd.apache.parquet")
    if kind == "html":
        title = str((document.get("scenario") or {}).get("title") or name)
        return _text(f"{name}.html", figures_page(figures, title, document), "text/html")
    image = figures[0][1].to_image(format=kind, width=900, height=figures[0][1].layout.height or 500, scale=2)
    return _bytes(f"{name}.{kind}", image, "image/svg+xml" if kind == "svg" else "image/png")


def _text(filename: str, content: str, kind: str) -> dict[str, Any]:
    return {"filename": filename, "content": content, "type": kind, "base64": False}


def _bytes(filename: str, content: bytes, kind: str) -> dict[str, Any]:
    return {"filename": filename, "content": base64.b64encode(content).decode("ascii"), "type": kind, "base64": True}
