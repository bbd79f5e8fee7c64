"""How a review's detection and false rejection vary with the position in the segment: by a law, or as judged.

    d(m) = d exp(-m / k)                                           [quality].detection_depth_steps = k
    d(m, n) = expit(logit d + logit d_mn - logit d_all)            [quality].judgements

The judgements give the shape alone; the level is [quality].detection and .false_reject, whose bands thus hold for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.acceptance import expit
from hwprofiles.errors import InputError
from simulator.judgements import from_judgements
from simulator.rates import Rate
from simulator.scenario_goals import Quality
from simulator.verifier import LEAST_CASES, Cell, VerifierCurves

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReviewShape:
    """Logits (K, N) relative to the level, indexed [offset, length - 1], their ends holding beyond."""

    detection: Array
    false_reject: Array


def curves(q: Quality, detection: Array, false_reject: Array, window: int) -> tuple[Array, Array]:
    """Detection and false rejection: (n,) as given where a review is alike everywhere, else (n, K, N).

    Parameters
    ----------
    detection, false_reject : (n,)
    window : longest segment that will be asked for

    Raises
    ------
    InputError
        Judgements that cannot be read or whose truth nobody knows.
    """
    if q.detection_depth_steps is not None:
        fading = np.exp(-np.arange(window) / q.detection_depth_steps)
        return detection[:, None, None] * fading[:, None], false_reject
    if q.judgements is None:
        return detection, false_reject
    path = Path(q.judgements)
    shape = _shape(path, path.stat().st_mtime_ns if path.exists() else 0)
    return _moved(detection, shape.detection), _moved(false_reject, shape.false_reject)


def _moved(level: Array, logits: Array) -> Array:
    x = np.clip(level, 1e-12, 1 - 1e-12)[:, None, None]
    moved = expit(np.log(x / (1 - x)) + logits)
    edge = np.broadcast_to(level[:, None, None], moved.shape)
    return np.where((edge == 0) | (edge == 1), edge, moved)


@lru_cache(maxsize=8)
def _shape(path: Path, _changed_ns: int) -> ReviewShape:
    found = from_judgements(path).verifier
    if found is None:
        raise InputError(f"quality.judgements {path.name}: no column 'valid' says which drafts were really right")
    return shape_of(found)


def shape_of(judged: VerifierCurves) -> ReviewShape:
    """The shape of a verifier's curves; a place with few cases takes that of its offset, or else none.

    A share of n cases counts as (share n + 1/2) / (n + 1), and a place needs `LEAST_CASES`.
    """
    n_offsets = 1 + max(c.position for c in judged.cells)
    n_lengths = max((c.length or 1) for c in judged.cells)
    tables = {}
    for name in ("detection", "false_reject"):
        level = _logit(getattr(judged, name))
        table = np.zeros((n_offsets, n_lengths))
        for m in range(n_offsets):
            here = [c for c in judged.cells if c.position == m]
            pooled = _logit(_pooled(getattr(c, name) for c in here))
            for n in range(n_lengths):
                own = _logit(_pooled(getattr(c, name) for c in here if _stands_for(c, n + 1)))
                best = next((x for x in (own, pooled) if x is not None), level)
                table[m, n] = 0.0 if best is None or level is None else best - level
        tables[name] = table
    return ReviewShape(**tables)


def _stands_for(cell: Cell, length: int) -> bool:
    return cell.length is None or cell.length == length


def _pooled(rates: Iterable[Rate | None]) -> Rate | None:
    known = [r for r in rates if r is not None]
    n = sum(r.n for r in known)
    if not n:
        return None
    value = sum(r.n * r.value for r in known) / n
    return Rate(value=value, low=value, high=value, n=n)


def _logit(rate: Rate | None) -> float | None:
    if rate is None or rate.n < LEAST_CASES:
        return None
    p = (rate.value * rate.n + 0.5) / (rate.n + 1)
    return float(np.log(p / (1 - p)))
