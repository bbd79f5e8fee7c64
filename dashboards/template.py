"""One look for every figure: a light and a dark plotly template, one colour per strategy, one hue per phase family."""

from __future__ import annotations

import plotly.graph_objects as go

STRATEGY_COLOURS: dict[str, str] = {
    "strong_only": "#767676",
    "token_speculation": "#332288",
    "weak_only": "#E69F00",
    "step_verification": "#56B4E9",
    "spec_agent": "#0072B2",
    "task_router": "#999933",
    "step_router": "#009E73",
    "step_speculation": "#CC79A7",
    "spec_agent_pipelined": "#D55E00",
    "spec_agent_adaptive": "#882255",
}
"""Okabe and Ito's colours (jfly.uni-koeln.de/color): black as grey so that it reads on both backgrounds; olive in place
of yellow, which does not read on white, wine and indigo besides, all Paul Tol's (sronpersonalpages.nl/~pault)."""

STRATEGY_SYMBOLS: dict[str, str] = {
    "strong_only": "line-ns-open",
    "token_speculation": "line-ew-open",
    "weak_only": "triangle-up",
    "step_verification": "square",
    "spec_agent": "circle",
    "task_router": "triangle-down",
    "step_router": "diamond",
    "step_speculation": "cross",
    "spec_agent_pipelined": "star",
    "spec_agent_adaptive": "hexagon",
}
"""The second sign of a strategy, for readers and printers without colour."""

SOLID_SYMBOLS: dict[str, str] = {**STRATEGY_SYMBOLS, "strong_only": "x", "token_speculation": "hourglass"}
"""The same where marks are filled or open: every one of these has both forms."""

OBJECTIVE_COLOURS: dict[str, str] = {
    "time": "#0072B2",
    "time_alone": "#56B4E9",
    "traffic": "#D55E00",
    "flops": "#009E73",
    "energy": "#CC79A7",
    "usd": "#E69F00",
    "money": "#E69F00",
    "strong_output_tokens": "#882255",
    "success": "#767676",
}

OBJECTIVE_DASHES: dict[str, str] = {"traffic": "dash", "flops": "dashdot", "energy": "dot", "success": "longdash"}

PHASE_FAMILIES: dict[str, dict[str, str]] = {
    "prefill": {"prompt_prefill": "#A5D8F3", "observation_prefill": "#56B4E9"},
    "own decode": {"decode": "#0A5A94"},
    "draft": {"draft_decode": "#E69F00"},
    "verify": {"verify_prefill": "#009E73", "verdict_decode": "#84D1B9"},
    "repair": {"repair_prefill": "#DBA9D2", "repair_decode": "#AA4499"},
    "wasted": {"reprefill": "#F4B6A0", "wasted_draft": "#D6604D", "wasted_tool": "#A3182B"},
    "outside": {"tool": "#9AA1AB", "network": "#C6CBD2", "host": "#6B7280", "queue": "#E3E6EA"},
}
"""Every phase of `costmodel.cost.PHASES`, in the order figures stack them: one hue per family, one shade per phase."""

PHASE_COLOURS: dict[str, str] = {
    phase: colour for shades in PHASE_FAMILIES.values() for phase, colour in shades.items()
}

HATCHED: frozenset[str] = frozenset(PHASE_FAMILIES["wasted"])
"""Phases drawn with a hatch, so that waste shows without colour."""

ROLE_COLOURS: dict[str, str] = {"weak": "#E69F00", "strong": "#0072B2"}

FALLBACK_COLOUR = "#A0522D"
"""For a name that none of the tables knows."""

LINE_COLOUR = "#6b727c"
"""A line that reads on white and on the dark paper alike (4 to 1 and more on both)."""

RULE_COLOUR = "rgba(120,120,120,0.9)"
WIN_TINT = "rgba(0,158,115,0.09)"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"


def _template(ink: str, paper: str, grid: str, faint: str) -> go.layout.Template:
    axis = {
        "automargin": True,
        "gridcolor": grid,
        "linecolor": faint,
        "zeroline": False,
        "ticks": "",
        "title": {"font": {"size": 13}, "standoff": 10},
        "tickfont": {"size": 13},
    }
    return go.layout.Template(
        layout={
            "font": {"family": FONT, "size": 13, "color": ink},
            "paper_bgcolor": paper,
            "plot_bgcolor": paper,
            "colorway": list(STRATEGY_COLOURS.values()),
            "xaxis": axis,
            "yaxis": axis,
            "margin": {"l": 8, "r": 12, "t": 12, "b": 8, "pad": 4},
            "legend": {
                **{"orientation": "h", "font": {"size": 12}, "itemwidth": 30, "traceorder": "normal"},
                **{"xref": "container", "x": 0, "xanchor": "left", "yref": "container", "y": 0, "yanchor": "bottom"},
            },
            "hoverlabel": {"font": {"family": FONT, "size": 12}, "namelength": -1, "align": "left"},
            "bargap": 0.35,
            "modebar": {"orientation": "h", "bgcolor": "rgba(0,0,0,0)", "color": faint, "activecolor": ink},
        }
    )


LIGHT: go.layout.Template = _template(ink="#22272e", paper="#ffffff", grid="#eceef1", faint="#9aa1ab")
DARK: go.layout.Template = _template(ink="#e6e8eb", paper="#15181d", grid="#2a2f37", faint="#737b87")


def plain(text: object) -> str:
    """`text` with the characters that plotly would read as markup made harmless."""
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def shorten(text: str, width: int = 44) -> str:
    """`text` cut to `width` characters with an ellipsis, never in silence."""
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"
