"""What readers of benchmark results share: text, JSON documents, numbers, and the refusal of an open loop."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hwprofiles.errors import InputError, ProfileError

MAX_BYTES = 200_000_000


class OpenLoop(ProfileError):
    """A benchmark whose requests come at a rate, not from a fixed number of clients."""


def little(rate_per_s: object, latency_ms: object) -> float | None:
    """Requests at once, by Little's law: rate times latency."""
    try:
        return max(1.0, round(float(str(rate_per_s)) * float(str(latency_ms).replace(",", "")) / 1e3))
    except (ValueError, OverflowError):
        return None


def open_loop(path: Path, what: str, better: str) -> OpenLoop:
    """The refusal of an open loop, with the client's command that makes a closed one."""
    return OpenLoop(f"{path}: an open loop ({what}), not a fixed concurrency; run `{better}`")


def middle(d: Mapping[str, Any], key: str, *first: str) -> Any:
    """The median of a metric, or its mean; `first` goes before both."""
    stats = d.get(key)
    if not isinstance(stats, dict):
        return None
    value = next((stats[k] for k in (*first, "p50", "median", "avg", "mean") if stats.get(k) is not None), None)
    return value * 1e3 if stats.get("unit") in ("s", "sec") and isinstance(value, int | float) else value


def number(value: object, where: str) -> float:
    """A number above 0, also of a text with commas; raises `ProfileError` for anything else."""
    try:
        found = math.nan if value is None or isinstance(value, bool) else float(str(value).replace(",", ""))
    except ValueError:
        found = math.nan
    if not math.isfinite(found) or found <= 0:
        raise ProfileError(f"{where} must be a finite number above 0, got {value!r:.40}")
    return found


def text_of(path: Path) -> str:
    """The text of a file; raises `InputError` where it cannot be read, `ProfileError` if too large or no text."""
    try:
        raw = path.read_bytes() if path.stat().st_size <= MAX_BYTES else None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    if raw is None:
        raise ProfileError(f"{path}: larger than {MAX_BYTES:,} bytes")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProfileError(f"{path}: not UTF-8 at byte {error.start}") from None


def documents(text: str) -> list[dict[str, Any]]:
    """The JSON objects of a text, one after another (`--append-result`); a log before the first is passed over."""
    found = []
    at, decoder = text.find("{"), json.JSONDecoder()
    while 0 <= at < len(text):
        try:
            one, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return []
        if not isinstance(one, dict):
            return []
        found.append(one)
        at = next((i for i in range(at, len(text)) if not text[i].isspace()), len(text))
    return found
