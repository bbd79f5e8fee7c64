"""Widths of 90 % bands from residuals of rows whose model, or device, was left out of the fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from validate import fit as base
from validate.accuracy.kinds import OPERATORS, Subject
from validate.accuracy.predict import Prepared
from validate.fit_factors import STEPS
from validate.fit_layout import Array, Mask

Bands = Mapping[str, Mapping[str, float]]
COVERED = 0.9
_STEP_KINDS = ("decode", "prefill", "warm")
_MANY = 8
"""Devices from which a deployment counts as wide: its residuals spread more."""


def left_out(prepared: Prepared, whole: base.Fit) -> Bands:
    """Half log widths by kind: per dtype, and what `tp8`, `moe` and `unseen_device` add in quadrature.

    Steps: rows of each model under a fit without it. Operators: the fit's own residuals. Both: rows of each device
    under a fit without it.
    """
    by_model = whole.errors.copy()
    steps = base.marked(prepared, lambda s: s.generation == STEPS)
    for model in _names(prepared, steps, "model"):
        rows = steps & base.marked(prepared, _has("model", model))
        refit = base.fit(prepared, ~rows, base.REFIT_EVALUATIONS)
        by_model[rows] = refit.errors[rows]
    by_device = np.full(len(prepared.rows), np.nan)
    for device in _names(prepared, steps, "device"):
        rows = base.marked(prepared, _has("device", device))
        refit = base.fit(prepared, ~rows, base.REFIT_EVALUATIONS)
        by_device[rows] = refit.errors[rows]
    keep = base.usable(prepared)
    base.say("Models left out, percent:", base.table(prepared, by_model, steps & keep))
    base.say("Devices left out, percent:", base.table(prepared, by_device, keep))
    return {kind: _kind(prepared, by_model, by_device, keep, kind) for kind in (*_STEP_KINDS, *sorted(OPERATORS))}


def _kind(prepared: Prepared, by_model: Array, by_device: Array, keep: Mask, kind: str) -> dict[str, float]:
    ours = keep & base.marked(prepared, lambda s: s.kind == kind)
    wide = base.marked(prepared, lambda s: s.n_devices >= _MANY and s.kind in _STEP_KINDS)
    moe = base.marked(prepared, lambda s: s.family == "moe")
    found: dict[str, float] = {}
    for dtype in ("bf16", "fp8"):
        rows = ours & ~wide & ~moe & base.marked(prepared, _is_dtype(dtype))
        if rows.any():
            found[dtype] = _width(by_model[rows])
    plain = _width(by_model[ours & ~wide & ~moe])
    for name, rows, errors in (
        ("tp8", ours & wide & ~moe, by_model),
        ("moe", ours & moe & ~wide, by_model),
        ("unseen_device", ours & ~wide & np.isfinite(by_device), by_device),
    ):
        if rows.any():
            found[name] = float(max(0.0, _width(errors[rows]) ** 2 - plain**2) ** 0.5)
    return found


def _has(what: str, name: str) -> Callable[[Subject], bool]:
    return lambda subject: getattr(getattr(subject, what), "name", None) == name


def _is_dtype(dtype: str) -> Callable[[Subject], bool]:
    return lambda subject: subject.dtype == dtype


def _names(prepared: Prepared, rows: Mask, what: str) -> list[str]:
    found = set()
    for i in np.flatnonzero(rows):
        subject = prepared.subjects[i]
        assert subject is not None
        named = getattr(subject, what)
        found.add(named.name)
    return sorted(found)


def _width(errors: Array) -> float:
    return float(np.quantile(np.abs(errors), COVERED))
