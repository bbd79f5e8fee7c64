"""Parity plots: predicted against measured, as counts in cells of a log-log grid, drawn as a small SVG."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from html import escape

from validate.accuracy.predict import Predicted
from validate.accuracy.tables import Row

CELLS_PER_DECADE = 12
_SIZE, _MARGIN = 320.0, 46.0

Cells = list[list[int]]
"""Triples (x, y, count): x and y number the grid's cells, 0 at a value of 1 in the row's unit."""


def bins(rows: Sequence[Row], predictions: Sequence[Predicted]) -> dict[str, Cells]:
    """The occupied cells of each table, in a fixed order."""
    counts: dict[str, Counter[tuple[int, int]]] = {}
    for row, p in zip(rows, predictions, strict=True):
        if p.status == "ok" and row.value > 0:
            cell = (_cell(row.value), _cell(p.value))
            counts.setdefault(row.table, Counter())[cell] += 1
    return {table: [[x, y, n] for (x, y), n in sorted(found.items())] for table, found in sorted(counts.items())}


def _cell(value: float) -> int:
    return math.floor(CELLS_PER_DECADE * math.log10(value))


def drawing(title: str, cells: Cells) -> str:
    """One table's plot: cells shaded by the logarithm of their count, the line of equality, decades on both axes.

    Parameters
    ----------
    title : str
        Shown above the plot.
    cells : list of (x, y, count)
        At least one.
    """
    places = [c for x, y, _ in cells for c in (x, y)]
    first = CELLS_PER_DECADE * math.floor(min(places) / CELLS_PER_DECADE)
    last = CELLS_PER_DECADE * math.ceil((max(places) + 1) / CELLS_PER_DECADE)
    side = (_SIZE - _MARGIN - 10) / (last - first)
    most = math.log(1 + max(n for _, _, n in cells))

    def at_x(place: int) -> float:
        return _MARGIN + (place - first) * side

    def at_y(place: int) -> float:
        return _SIZE - _MARGIN - (place - first) * side + 10

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_SIZE:.0f}" height="{_SIZE + 20:.0f}" '
        'font-family="sans-serif" font-size="10">',
        f'<text x="{_MARGIN:.0f}" y="12" font-size="12">{escape(title)}</text>',
        f'<rect x="{at_x(first):.1f}" y="{at_y(last):.1f}" width="{at_x(last) - at_x(first):.1f}" '
        f'height="{at_y(first) - at_y(last):.1f}" fill="none" stroke="#888"/>',
    ]
    for x, y, n in cells:
        shade = 0.15 + 0.85 * math.log(1 + n) / most
        lines.append(
            f'<rect x="{at_x(x):.1f}" y="{at_y(y + 1):.1f}" width="{side:.2f}" height="{side:.2f}" '
            f'fill="#1f5fa8" fill-opacity="{shade:.2f}"/>'
        )
    lines.append(
        f'<line x1="{at_x(first):.1f}" y1="{at_y(first):.1f}" x2="{at_x(last):.1f}" y2="{at_y(last):.1f}" '
        'stroke="#c33" stroke-width="0.8"/>'
    )
    for place in range(first, last + 1, CELLS_PER_DECADE):
        text = f"1e{place // CELLS_PER_DECADE}"
        lines.append(f'<text x="{at_x(place):.1f}" y="{at_y(first) + 13:.1f}" text-anchor="middle">{text}</text>')
        lines.append(f'<text x="{_MARGIN - 4:.0f}" y="{at_y(place) + 3:.1f}" text-anchor="end">{text}</text>')
    middle = (at_x(first) + at_x(last)) / 2
    lines.append(f'<text x="{middle:.0f}" y="{at_y(first) + 27:.0f}" text-anchor="middle">measured</text>')
    lines.append(
        f'<text x="12" y="{(at_y(first) + at_y(last)) / 2:.0f}" text-anchor="middle" '
        f'transform="rotate(-90 12 {(at_y(first) + at_y(last)) / 2:.0f})">predicted</text></svg>'
    )
    return "\n".join(lines) + "\n"
