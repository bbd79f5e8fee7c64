"""What the pages of saved runs share: their list, and a page without runs."""

from __future__ import annotations

from typing import Any

from dash import html

from dashboards import parts
from dashboards.desk import Desk
from dashboards.latency import strategy_label

NO_RUNS = "No saved runs were given. Save some and name their folder when the app starts:"
COMMAND = "specroof simulate retail-h200 -o runs/retail\nspecroof dashboard runs/retail"


def labels(desk: Desk) -> list[tuple[str, str]]:
    """Number and words of every run."""
    return [
        (str(i), f"{run.label}: {strategy_label(run.strategy, run.meta.get('seed'))}")
        for i, run in enumerate(desk.shelf.runs)
    ]


def none_given(title: str, lead: str = NO_RUNS, command: str = COMMAND) -> Any:
    """The page when there is nothing to show."""
    return parts.page(title, lead, [], [html.Pre(command, tabIndex=0)])
