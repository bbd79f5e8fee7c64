"""Errors of rows that a fit has not seen: without their model, without any of its family, without their device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hwprofiles.efficiency import FACTOR_NAMES
from validate import fit as base
from validate import fit_probe
from validate.accuracy.factors import row_factors
from validate.accuracy.kinds import Subject
from validate.accuracy.predict import Prepared
from validate.fit_factors import STEPS
from validate.fit_layout import Array, Mask
from validate.fit_solve import log_errors

PROBES = 5
"""Measured steps of a new device that it is fitted to."""
_DRAWS = 3
_NOBODY = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """log(predicted / measured) of every row, NaN where it was not left out.

    `model`: steps of each model; operators keep the errors of the whole fit. `family`: steps of models with experts,
    none of which was seen. `device`: every row of each device. `probed`: steps of each device, fitted to `PROBES` of
    its own (the same dtype and kernel library) and judged on the others.
    """

    model: Array
    family: Array
    device: Array
    probed: Array


def left_out(prepared: Prepared, whole: base.Fit) -> LeftOut:
    """Refit without each model, without all models with experts and without each device, in turn (some minutes)."""
    steps = base.marked(prepared, lambda s: s.generation == STEPS)
    by_model = whole.errors.copy()
    family, device, probed = (np.full(len(prepared.rows), np.nan) for _ in range(3))
    experts = steps & base.marked(prepared, lambda s: s.family == "moe")
    for name in _names(prepared, steps, "model"):
        rows = steps & base.marked(prepared, _has("model", name))
        by_model[rows] = _without(prepared, rows).errors[rows]
        if (rows == experts).all():
            family[rows] = by_model[rows]
    if experts.any() and not np.isfinite(family[experts]).all():
        family[experts] = _without(prepared, experts).errors[experts]
    for name in _names(prepared, steps, "device"):
        rows = base.marked(prepared, _has("device", name))
        refit = _without(prepared, rows)
        device[rows] = refit.errors[rows]
        _probe(prepared, refit, rows & steps & base.usable(prepared), probed)
    return LeftOut(model=by_model, family=family, device=device, probed=probed)


def _without(prepared: Prepared, rows: Mask) -> base.Fit:
    return base.fit(prepared, ~rows, base.REFIT_EVALUATIONS)


def _probe(prepared: Prepared, refit: base.Fit, rows: Mask, errors: Array) -> None:
    """Fill in errors of the steps in `rows`, by dtype and library, after a few random ones of them were fitted."""
    cells: dict[tuple[str, str], list[int]] = {}
    for i in np.flatnonzero(rows):
        subject = prepared.subjects[i]
        assert subject is not None
        cells.setdefault((subject.dtype, subject.library), []).append(int(i))
    for (_, library), places in sorted(cells.items()):
        common = refit.layout.values(refit.solution.x, _NOBODY, library)
        drawn = [_drawn(prepared, places, seed, common) for seed in range(_DRAWS)]
        errors[places] = _middle(np.array(drawn)[:, places])


def _drawn(prepared: Prepared, places: list[int], seed: int, common: dict[str, float]) -> Array:
    probes = np.random.default_rng(seed).choice(places, PROBES, replace=False)
    keep = np.zeros(len(prepared.rows), dtype=bool)
    keep[probes] = True
    table = {"class:dc_gpu": {n: v for n, v in common.items() if n in FACTOR_NAMES}}
    quirks = {STEPS: {n: v for n, v in common.items() if n not in FACTOR_NAMES}}
    (own,) = fit_probe.probed(prepared, keep, table, quirks).values()
    values = np.full(len(prepared.rows), np.nan)
    wanted = set(places)
    for group in prepared.groups:
        if wanted.isdisjoint(group.places.tolist()):
            continue
        factors = {**row_factors(group.subject, table, quirks), **own}
        values[group.places] = prepared.figures(group.places, np.asarray(group.price(factors)))
    errors = log_errors(prepared, values)
    errors[probes] = np.nan
    return errors


def _middle(drawn: Array) -> Array:
    """Of each column the number in the middle; NaN where there is none."""
    found = np.full(drawn.shape[1], np.nan)
    some = np.isfinite(drawn).any(axis=0)
    found[some] = np.nanmedian(drawn[:, some], axis=0)
    return found


def _has(what: str, name: str) -> Callable[[Subject], bool]:
    return lambda subject: getattr(getattr(subject, what), "name", None) == name


def _names(prepared: Prepared, rows: Mask, what: str) -> list[str]:
    found = set()
    for i in np.flatnonzero(rows):
        subject = prepared.subjects[i]
        assert subject is not None
        found.add(getattr(subject, what).name)
    return sorted(found)
