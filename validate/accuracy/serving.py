"""Serving figures of the rows of one deployment: rows that differ only in metric share one simulation.

Closed loops have a closed form (`serving_cycle`), open ones are played (`serving_runs`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from validate.accuracy.kinds import Subject, serving_metric
from validate.accuracy.serving_cycle import Cycles
from validate.accuracy.serving_load import Load, load_of
from validate.accuracy.serving_runs import played
from validate.accuracy.steps import Steps
from validate.accuracy.tables import Row

Num = Any


class Serving:
    """Prices the serving rows of one deployment, whatever their metric."""

    def __init__(self, subject: Subject, rows: Sequence[Row]) -> None:
        self.subject = subject
        self.metrics = [found for found in (serving_metric(row) for row in rows) if found]
        loads = [load for load in (load_of(row, subject.library) for row in rows) if isinstance(load, Load)]
        assert len(loads) == len(self.metrics) == len(rows)
        self.closed = [i for i, load in enumerate(loads) if load.clients]
        self.open: dict[Load, list[int]] = {}
        for i, load in enumerate(loads):
            if not load.clients:
                self.open.setdefault(load, []).append(i)
        distinct = list(dict.fromkeys(loads[i] for i in self.closed))
        self.cycle = [distinct.index(loads[i]) for i in self.closed]
        self.cycles = Cycles(Steps(subject), distinct) if distinct else None

    def seconds(self, factors: Mapping[str, Num]) -> Num:
        """Seconds of the rows, per request where they state a throughput: (n_rows,) or (n_samples, n_rows)."""
        samples = max((np.shape(v)[0] for v in factors.values() if np.ndim(v)), default=0)
        found = np.full((samples, len(self.metrics)) if samples else len(self.metrics), np.nan)
        if self.cycles:
            figures = self.cycles.figures(factors)
            for i, j in zip(self.closed, self.cycle, strict=True):
                name, _ = self.metrics[i]
                found[..., i] = 1.0 / figures.rate[..., j] if name == "rate" else getattr(figures, name)[..., j]
        for sample in range((samples or 1) if self.open else 0):
            one = {name: _at(value, sample) for name, value in factors.items()}
            for load, places in self.open.items():
                found[(sample, places) if samples else places] = self._played(load, places, one)
        return found

    def _played(self, load: Load, places: Sequence[int], factors: Mapping[str, float]) -> list[float]:
        """Seconds of the rows of one load, from one simulation."""
        result = played(self.subject, load, factors)
        points = (self.metrics[i] for i in places)
        return [1.0 / result["rate"][0] if name == "rate" else _point(result[name], point) for name, point in points]


def _at(value: Num, sample: int) -> float:
    each = np.ravel(value)
    return float(each[sample if len(each) > 1 else 0])


def _point(values: Any, point: float | None) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean() if point is None else np.quantile(known, point))
