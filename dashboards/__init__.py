"""Figures and reports: pure functions from finished numbers to pictures and pages.

Nothing here computes a result; the only arithmetic is the scaling of units for display. Import `dashboards.figures`
or `dashboards.report` directly: both load plotly, so this file imports nothing.
"""
