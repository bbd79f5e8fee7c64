"""Widths of 90 % bands from residuals of rows whose model, or device, was left out of the fit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from validate import fit as base
from validate.accuracy.kinds import OPERATORS, Subject
from validate.accuracy.predict import Prepared
from validate.fit_factors import STEPS
from validate.fit_layout import Array, Mask
from validate.fit_left_out import LeftOut

Bands = Mapping[str, Mapping[str, float]]
COVERED = 0.9
_STEP_KINDS = ("decode", "prefill", "warm")
_MANY = 8
"""Devices from which a deployment counts as wide: its residuals spread more."""
_LEAST_COVERED = 0.85
"""A device of whose left-out rows the width of all covers less than this has a width of its own."""
_LEAST_UNSEEN = 0.82
"""Share of the steps of any one device, never seen, that its width must cover."""


def widths(prepared: Prepared, whole: base.Fit, out: LeftOut) -> Bands:
    """Half log widths by kind: per dtype, and what `tp8`, `moe`, `unseen_device` and single devices add in quadrature.

    Steps: rows of each model under a fit without it; a device whose steps spread more than the others' adds
    `DTYPE/DEVICE`. Operators: the fit's own residuals. Both: rows of each device under a fit without it.
    """
    steps = base.marked(prepared, lambda s: s.generation == STEPS)
    keep = base.usable(prepared)
    base.say("Models left out, percent:", base.table(prepared, out.model, steps & keep))
    base.say("Devices left out, percent:", base.table(prepared, out.device, keep))
    return {kind: _kind(prepared, out, keep, kind) for kind in (*_STEP_KINDS, *sorted(OPERATORS))}


def _kind(prepared: Prepared, out: LeftOut, keep: Mask, kind: str) -> dict[str, float]:
    ours = keep & base.marked(prepared, lambda s: s.kind == kind)
    wide = base.marked(prepared, lambda s: s.n_devices >= _MANY and s.kind in _STEP_KINDS)
    moe = base.marked(prepared, lambda s: s.family == "moe")
    errors, even = np.abs(out.model), ours & ~wide & ~moe
    found: dict[str, float] = {}
    for dtype in ("bf16", "fp8"):
        rows = even & base.marked(prepared, lambda s: s.dtype == dtype)  # noqa: B023  # used at once
        if rows.any():
            found.update(_with_uneven_devices(prepared, errors, rows, dtype))
    known = np.array([0.0 if s is None else _known(found, s) for s in prepared.subjects])
    for name, rows in (("tp8", ours & wide & ~moe), ("moe", ours & moe & ~wide)):
        if rows.any():
            found[name] = _added(errors[rows], known[rows])
    rows = ours & ~wide & np.isfinite(out.device)
    if rows.any():
        plain = np.hypot(known, np.where(moe, found.get("moe", 0.0), 0.0))
        least = _LEAST_UNSEEN if kind in _STEP_KINDS else 0.0
        found["unseen_device"] = _unseen(prepared, np.abs(out.device), plain, rows, least)
    return found


def _with_uneven_devices(prepared: Prepared, errors: Array, rows: Mask, dtype: str) -> dict[str, float]:
    """The width of a dtype, and what devices add of which it covers less than `_LEAST_COVERED`."""
    names = [s.device.name if s is not None else "" for s in prepared.subjects]
    of = {name: rows & np.array([n == name for n in names]) for name in sorted(set(np.array(names)[rows]))}
    width = float(np.quantile(errors[rows], COVERED))
    uneven = [name for name, own in of.items() if np.mean(errors[own] <= width) < _LEAST_COVERED]
    others = rows & ~np.any([of[name] for name in uneven], axis=0) if uneven else rows
    width = float(np.quantile(errors[others], COVERED)) if others.any() else width
    added = {f"{dtype}/{name}": _added(errors[of[name]], np.full(int(of[name].sum()), width)) for name in uneven}
    return {dtype: width, **added}


def _unseen(prepared: Prepared, errors: Array, plain: Array, rows: Mask, least: float) -> float:
    """What a device never seen adds: enough for `COVERED` of all rows, and for `least` of the worst device's.

    Rows of five devices are five draws of what a new one may be, so the worst of them counts.
    """
    names = np.array([s.device.name if s is not None else "" for s in prepared.subjects])
    each = [rows & (names == name) for name in sorted(set(names[rows]))]
    worst = max(_added(errors[own], plain[own], least) for own in each)
    return max(_added(errors[rows], plain[rows]), worst)


def _known(found: dict[str, float], subject: Subject) -> float:
    own = found.get(subject.dtype, 0.0)
    return float(np.hypot(own, found.get(f"{subject.dtype}/{subject.device.name}", 0.0)))


def _added(errors: Array, plain: Array, covered: float = COVERED) -> float:
    """What has to be added in quadrature to half widths `plain` so that they cover a share of the errors."""
    square = float(np.quantile(errors**2 - plain**2, covered))
    return float(max(0.0, square) ** 0.5)
