"""The report of `plan`: one HTML file that opens from disk, loads nothing, and is the same for the same document."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from dashboards import figures, view
from dashboards.paper import asset, environment, script_hash, script_json
from hwprofiles.errors import InputError

_PHASE_TITLES: dict[str, tuple[str, str]] = {
    "time_s": (
        "Time by phase",
        "Where a task’s time goes on the critical path. Hatched parts are work that was thrown away or done twice.",
    ),
    "traffic_bytes": (
        "Memory traffic by phase",
        "Weights, KV cache and recurrent state read and written, over all devices of both models.",
    ),
    "flops": (
        "Compute by phase",
        "Reviewing adds floating-point work; it pays only where that work rides on idle arithmetic units.",
    ),
}


def write_report(document: Mapping[str, Any], path: Path) -> None:
    """Write the report of one `plan` document to `path` as UTF-8, byte for byte the same for the same document.

    Raises
    ------
    InputError
        When the document lacks a key the report cannot do without, or the file cannot be written.
    """
    page = render_report(document).encode("utf-8")
    try:
        path.write_bytes(page)
    except OSError as error:
        raise InputError(f"cannot write the report to {path}: {error.strerror or error}") from error


def render_report(document: Mapping[str, Any]) -> str:
    """The report of one `plan` document as one self-contained HTML page.

    Parameters
    ----------
    document : Mapping
        The JSON document of `specroof plan`: `strategies` is required; sections whose key is absent or empty are left
        out. Every text in it is shown as text, never as markup.

    Raises
    ------
    InputError
        When `strategies` is missing or empty, or a table lacks a column.
    """
    if not document.get("strategies"):
        raise InputError("the report needs the key 'strategies' with at least one strategy; is this a plan document?")
    library, starter = get_plotlyjs(), asset("report.js")
    return environment().get_template("report.html.j2").render(
        title=str(document.get("title") or "Plan"),
        weak=document.get("weak"),
        strong=document.get("strong"),
        version=str(document.get("version") or ""),
        schema_version=document.get("schema_version"),
        interval_note=str(document.get("interval_note") or ""),
        recommended=view.recommendation(document),
        verdicts=view.verdicts(document),
        settle=[str(line) for line in document.get("settle") or ()],
        table=view.strategy_table(document),
        figures=_figures(document),
        rung=view.rungs(document),
        provenance=view.provenance(document),
        warnings=[str(line) for line in document.get("warnings") or ()],
        scenario=view.scenario_toml(document),
        style=Markup(asset("report.css")),
        library=Markup(library),
        starter=Markup(starter),
        script_hashes=[script_hash(library), script_hash(starter)],
    )  # fmt: skip


def _figures(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every figure whose data the document holds: fixed id, title, caption, and its JSON safe inside a script tag."""
    drawn: list[tuple[str, str, str, go.Figure]] = []
    ratios = [
        {"strategy": strategy, "objective": objective, **(estimate or {"value": None, "low": None, "high": None})}
        for strategy, by_objective in (document.get("ratios_to_strong_only") or {}).items()
        for objective, estimate in (by_objective or {}).items()
        if strategy != "strong_only"
    ]
    if ratios:
        frame = pd.DataFrame(ratios).reindex(columns=["strategy", "objective", "value", "low", "high"])
        caption = "Each mark is one strategy, its bar the interval. On the tinted side it beats strong only; a bar that"
        drawn.append(
            ("ratios", "Against strong only", caption + " crosses the dotted line cannot tell.", figures.ratios(frame))
        )
    if document.get("phases"):
        frame = pd.DataFrame(document["phases"])
        for quantity, (title, caption) in _PHASE_TITLES.items():
            if quantity in frame and frame[quantity].notna().any():
                drawn.append((f"phases-{quantity}", title, caption, figures.phases(frame, quantity)))
    if document.get("windows"):
        caption = "How the ratio to strong only moves with the number of steps drafted before a review."
        drawn.append(("windows", "Choosing the window", caption, figures.windows(pd.DataFrame(document["windows"]))))
    roof = document.get("roofline") or {}
    if roof.get("devices") and roof.get("points"):
        caption = (
            "Per device. Decoding sits far left, on the slope, where memory bandwidth sets the pace; reviewing many"
            " tokens at once moves right, towards the flat part, where arithmetic does. A point far below its roof"
            " (overhead) is held back by neither: fixed times per operation, such as kernel launches and the host,"
            " set its pace, and more bandwidth would not move it."
        )
        picture = figures.roofline(pd.DataFrame(roof["devices"]), pd.DataFrame(roof["points"]))
        drawn.append(("roofline", "Under the roofline", caption, picture))
    if document.get("timeline"):
        caption = "The same trajectory under each strategy, on one clock. Touch or point at a bar for its step."
        picture = figures.timeline(pd.DataFrame(document["timeline"]))
        drawn.append(("timeline", "One task over time", caption, picture))
    return [
        {"id": f"figure-{name}", "title": title, "caption": caption, "height": picture.layout.height,
         "json": script_json(picture)}
        for name, title, caption, picture in drawn
    ]  # fmt: skip
