"""All figures in one place: pure functions, a pandas frame or a document of the command line in, a plotly figure out.

Each figure wears the light template; `figure.update_layout(template=dashboards.template.DARK)` turns it dark.
"""

from __future__ import annotations

from dashboards.breakeven import balance_figure, breakeven_map
from dashboards.comparison import ratios, windows
from dashboards.engine import engine_load
from dashboards.latency import latencies
from dashboards.ledger import phases, timeline
from dashboards.pareto import pareto
from dashboards.reproduce import reproduced
from dashboards.risk import risk_figures
from dashboards.roof import roofline
from dashboards.sizing import fleets
from dashboards.swept import swept
from dashboards.tornado import tornado

__all__ = [
    "balance_figure",
    "breakeven_map",
    "engine_load",
    "fleets",
    "latencies",
    "pareto",
    "phases",
    "ratios",
    "reproduced",
    "risk_figures",
    "roofline",
    "swept",
    "timeline",
    "tornado",
    "windows",
]
