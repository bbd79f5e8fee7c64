"""The answer of `reproduce` in words and tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.reproduce import Reproduced


def figure_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Figure, published, predicted, band, whether they meet."""
    low, high = row["published"]
    said = f"{_n(low)} to {_n(high)}" if low is not None and high is not None and low != high else ""
    if not said:
        said = _n(low) if low == high else f"above {_n(low)}" if high is None else f"below {_n(high)}"
    band = f"{_n(row['low'])} to {_n(row['high'])}"
    return row["id"], said, _n(row["predicted"]), band, "meets" if row["overlaps"] else "misses"


def implied_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Setting, unknown, prior, implied."""
    return row["setting"], row["unknown"], _range(row["prior"]), _range(row["implied"])


def markdown(found: Reproduced) -> str:
    """Both tables as Markdown."""
    lines = ["| figure | published | predicted | 90 % band | |", "|---|---|---:|---|---|"]
    lines += [f"| {' | '.join(figure_cells(row))} |" for row in found.figures]
    lines += ["", "| setting | unknown | prior | implied |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(implied_cells(row))} |" for row in found.implied]
    return "\n".join(lines)


def _range(value: Any) -> str:
    if value is None:
        return "too few draws come near"
    if isinstance(value, Mapping):
        return ", ".join(f"{k}: {v:.0%}" for k, v in value.items())
    return f"{_n(value[0])} to {_n(value[1])}"


def _n(value: float) -> str:
    return f"{value:.3g}" if abs(value) >= 0.0995 or value == 0 else f"{value:.3f}"
