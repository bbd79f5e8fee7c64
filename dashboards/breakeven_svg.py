"""Break-even figures as small SVG files, for pages that show pictures only: contours by load, and hardware balance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from dashboards.breakeven import above, axis_title, log_ends, scale_of
from dashboards.breakeven_loads import COLOURS, nowhere, single
from dashboards.page import write_page

Point = tuple[float, float]

_WIDTH, _HEIGHT = 640.0, 400.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 14.0, 30.0, 46.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """The plot's area in values: ends of both axes, whether they are logarithmic, up to where y has marks."""

    x: Point
    y: Point
    x_log: bool = False
    y_log: bool = False
    y_marked: float = math.inf

    def at(self, point: Point) -> Point:
        """Pixels of a value; values beyond the ends lie on the edge."""
        along = _share(point[0], self.x, self.x_log), _share(point[1], self.y, self.y_log)
        return (
            _LEFT + along[0] * (_WIDTH - _LEFT - _RIGHT),
            _HEIGHT - _BOTTOM - along[1] * (_HEIGHT - _TOP - _BOTTOM),
        )


def _share(value: float, ends: Point, log: bool) -> float:
    a, b, v = (math.log(u) for u in (*ends, value)) if log else (*ends, value)
    return min(1.0, max(0.0, (v - a) / (b - a)))


def loads_svg(document: Mapping[str, Any]) -> str:
    """Contours of ratio 1, one per load, with their bands; from the JSON document of `specroof breakeven`, any map."""
    x, y = document["x"], document["y"]
    frame = _Frame(
        x=(x["values"][0], x["values"][-1]),
        y=(y["values"][0], y["values"][-1]),
        x_log=scale_of(x["values"]) == "log",
        y_log=scale_of(y["values"]) == "log",
    )
    parts, legend = [], []
    for load, colour in zip(document.get("loads") or [document], COLOURS, strict=False):
        points = sorted((p for p in load["frontier"] if p["x"] is not None), key=lambda p: (p["y"], p["x"]))
        if single(points) and len(points) > 1:
            low = [(p["x_low"] if p["x_low"] is not None else frame.x[0], p["y"]) for p in points]
            high = [(p["x_high"] if p["x_high"] is not None else frame.x[1], p["y"]) for p in points]
            parts.append(f'<polygon points="{_path(frame, low + high[::-1])}" fill="{colour}" fill-opacity="0.12"/>')
            line = _path(frame, [(p["x"], p["y"]) for p in points])
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        else:
            parts += [_dot(frame, (p["x"], p["y"]), colour) for p in points]
        n = load.get("concurrency")
        name = f"{n} agent{'' if n == 1 else 's'}, {load['method']}" if n else f"ratio 1, {load['method']}"
        legend.append((name if points else f"{name}: {nowhere(load)}", colour))
    title = f"{document['objective']} of {document['strategy']}: where it equals strong-only (shaded: 90 % band)"
    return _drawn(title, axis_title(x["name"]), axis_title(y["name"]), frame, parts, legend)


def balance_svg(document: Mapping[str, Any]) -> str:
    """Critical acceptance over the ridge point; from the JSON document of `specroof breakeven --balance`."""
    curve = [c for c in document["curve"] if c["critical_acceptance"]["value"] is not None]
    rows = [r for r in document["devices"] if "reason" not in r and r["critical_acceptance"]["value"] is not None]
    ridges = [c["ridge_flops_per_byte"] for c in document["curve"]] + [r["ridge_flops_per_byte"] for r in rows]
    tops = [
        (r["ridge_flops_per_byte"], 1.0 if (top := r["critical_acceptance"]["high"]) is None else top) for r in rows
    ]
    lengths = [0.026 * len(r["hardware"]) for r in rows]
    heights = above(tops, lengths, log_ends(ridges), width=0.03)
    highest = max(1.0, *(h + n + 0.02 for h, n in zip(heights, lengths, strict=True)))
    frame = _Frame(x=log_ends(ridges), y=(0.0, highest), x_log=True, y_marked=1.0)
    line = _path(frame, [(c["ridge_flops_per_byte"], c["critical_acceptance"]["value"]) for c in curve])
    parts = [f'<polyline points="{line}" fill="none" stroke="#777" stroke-width="1.5" stroke-dasharray="5 4"/>']
    for row, height in zip(rows, heights, strict=True):
        edge, ridge = row["critical_acceptance"], row["ridge_flops_per_byte"]
        ends = [(ridge, edge["low"] if edge["low"] is not None else 0.0)]
        ends.append((ridge, edge["high"] if edge["high"] is not None else 1.0))
        parts.append(f'<polyline points="{_path(frame, ends)}" stroke="{COLOURS[0]}" stroke-width="1.2"/>')
        parts.append(_dot(frame, (ridge, edge["value"]), COLOURS[0]))
        px, py = frame.at((ridge, height))
        turned = f'transform="rotate(-90 {px:.1f} {py - 5:.1f})"'
        parts.append(f'<text x="{px:.1f}" y="{py - 5:.1f}" dy="4" {turned}>{escape(row["hardware"])}</text>')
    title = f"{document['objective']}: acceptance from which {document['strategy']} pays, by hardware balance"
    legend = [("device, 90 % band", COLOURS[0]), ("first device, compute scaled", "#777")]
    return _drawn(title, "ridge point (FLOP per byte)", "acceptance (probability)", frame, parts, legend)


def write_svg(document: Mapping[str, Any], path: Path) -> None:
    """Write the figure of any document of `specroof breakeven`; raises `InputError` when it cannot be written."""
    write_page(balance_svg(document) if "curve" in document else loads_svg(document), path)


def _path(frame: _Frame, points: Sequence[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in map(frame.at, points))


def _dot(frame: _Frame, point: Point, colour: str) -> str:
    x, y = frame.at(point)
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'


def _drawn(
    title: str, x_title: str, y_title: str, frame: _Frame, parts: Sequence[str], legend: Sequence[tuple[str, str]]
) -> str:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    places = _legend([name for name, _ in legend])
    height = places[-1][1] + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:.0f} {height:.0f}" width="{_WIDTH:.0f}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{_LEFT:.0f}" y="18" font-size="13">{escape(title)}</text>',
        f'<rect x="{_LEFT}" y="{_TOP}" width="{right - _LEFT}" height="{bottom - _TOP}" fill="none" stroke="#888"/>',
        *parts,
    ]
    for value in _ticks(frame.x, frame.x_log):
        x, _ = frame.at((value, frame.y[0]))
        lines.append(f'<text x="{x:.1f}" y="{bottom + 15:.0f}" text-anchor="middle">{value:g}</text>')
    for value in (v for v in _ticks(frame.y, frame.y_log) if v <= frame.y_marked):
        _, y = frame.at((frame.x[0], value))
        lines.append(f'<text x="{_LEFT - 6:.0f}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for (x, y), (name, colour) in zip(places, legend, strict=True):
        lines.append(f'<rect x="{x:.0f}" y="{y - 9:.0f}" width="14" height="10" fill="{colour}"/>')
        lines.append(f'<text x="{x + 19:.0f}" y="{y:.0f}">{escape(name)}</text>')
    lines.append(
        f'<text x="{(_LEFT + right) / 2:.0f}" y="{_HEIGHT - 10:.0f}" text-anchor="middle">{escape(x_title)}</text>'
    )
    middle = (_TOP + bottom) / 2
    lines.append(f'<text x="14" y="{middle:.0f}" text-anchor="middle" transform="rotate(-90 14 {middle:.0f})">')
    lines.append(f"{escape(y_title)}</text></svg>")
    return "\n".join(lines) + "\n"


def _legend(names: Sequence[str]) -> list[Point]:
    """Where the entries go: rows under the title of the x axis, each as full as it gets."""
    x, y = _LEFT, _HEIGHT + 10
    places: list[Point] = []
    for name in names:
        width = 42 + 6 * len(name)
        if x > _LEFT and x + width > _WIDTH:
            x, y = _LEFT, y + 17
        places.append((x, y))
        x += width
    return places


def _ticks(ends: Point, log: bool) -> list[float]:
    """Round values between the ends: 1, 2 and 5 of each decade, or four to eight even steps."""
    low, high = ends
    if log:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        return [m * 10.0**p for p in powers for m in (1, 2, 5) if low <= m * 10.0**p <= high]
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (m * step) <= 8)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]
