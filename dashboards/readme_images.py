"""The README's three figures as PNG files: `python -m dashboards.readme_images docs/images` (needs a Chromium)."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
import plotly.io

from dashboards import figures
from hwprofiles.errors import InputError
from simulator.breakeven import breakeven
from simulator.plan import plan
from simulator.scenario_file import load_scenario

WIDTH = 860
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_SCENARIO = "retail-h200"


def drawings() -> Iterator[tuple[str, go.Figure]]:
    """Name and figure of each image, all of the bundled retail case."""
    scenario = load_scenario(_SCENARIO)
    document = plan(scenario).document()
    rows = [
        {"strategy": s, "objective": o, **(e or {"value": None, "low": None, "high": None})}
        for s, by in document["ratios_to_strong_only"].items()
        for o, e in by.items()
    ]
    yield "ratios", figures.ratios(pd.DataFrame(rows))
    yield (
        "breakeven",
        figures.breakeven_map(breakeven(scenario, "acceptance=0.5:0.99:50", "verbosity=0.5:2:31").document()),
    )
    yield "timeline", figures.timeline(pd.DataFrame(document["timeline"]))


def write_images(folder: Path) -> None:
    """Write one PNG per figure.

    Raises
    ------
    InputError
        No Chromium is found, or it draws nothing.
    """
    browser = next((found for name in _BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        raise InputError(f"images are drawn by a browser, and none of {', '.join(_BROWSERS)} is installed")
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in drawings():
        out = (folder / f"{name}.png").resolve()
        with tempfile.TemporaryDirectory() as scratch:
            page = Path(scratch) / "figure.html"
            page.write_text(_page(figure), encoding="utf-8")
            subprocess.run(
                [
                    browser,
                    *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-lcd-text"),
                    f"--user-data-dir={scratch}/profile",
                    f"--window-size={WIDTH},{figure.layout.height}",
                    "--virtual-time-budget=8000",
                    f"--screenshot={out}",
                    page.as_uri(),
                ],
                check=True,
                capture_output=True,
                timeout=120,
            )
        if not out.is_file():
            raise InputError(f"{browser} drew no {out.name}")


def _page(figure: go.Figure) -> str:
    body = plotly.io.to_html(
        figure.update_layout(width=WIDTH),
        include_plotlyjs=True,
        full_html=False,
        div_id="figure",
        config={"displayModeBar": False},
    )
    return f'<!doctype html><meta charset="utf-8"><style>body{{margin:0}}</style>{body}'


if __name__ == "__main__":
    write_images(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"))
