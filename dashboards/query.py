"""The state of a page in its URL: read with limits, never trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl

from dashboards.units import is_number

MOST_CHARACTERS, MOST_KEYS, MOST_VALUE = 4096, 64, 200


def parse(search: str | None) -> dict[str, str]:
    """Keys and values of `?a=1&b=2`; what is too long or repeated is left out."""
    text = (search or "").removeprefix("?")
    if len(text) > MOST_CHARACTERS:
        return {}
    try:
        pairs = parse_qsl(text, max_num_fields=MOST_KEYS)
    except ValueError:
        return {}
    return {k: v for k, v in pairs if len(v) <= MOST_VALUE}


def choice(query: Mapping[str, str], name: str, options: Sequence[str], default: str) -> str:
    """The value of `name` where it is one of `options`, else `default`."""
    value = query.get(name, default)
    return value if value in options else default


def number(query: Mapping[str, str], name: str, low: float, high: float, default: float) -> float:
    """The value of `name` where it is a number, brought into [low, high]; else `default`."""
    return clamped(query.get(name), low, high, default)


def clamped(value: object, low: float, high: float, default: float) -> float:
    """`value` (a number or its text) brought into [low, high]; `default` where it is no finite number."""
    try:
        found = float(value) if is_number(value) or isinstance(value, str) else math.nan
    except ValueError:
        return default
    return min(max(found, low), high) if math.isfinite(found) else default


def text(query: Mapping[str, str], name: str, default: str) -> str:
    """The value of `name` as it stands, or `default`."""
    return query.get(name) or default
