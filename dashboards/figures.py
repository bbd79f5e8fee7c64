"""All figures in one place: pure functions, a pandas frame in, a plotly figure out.

Each figure wears the light template; `figure.update_layout(template=dashboards.template.DARK)` turns it dark.
"""

from __future__ import annotations

from dashboards.comparison import ratios, windows
from dashboards.ledger import phases, timeline
from dashboards.roof import roofline

__all__ = ["phases", "ratios", "roofline", "timeline", "windows"]
