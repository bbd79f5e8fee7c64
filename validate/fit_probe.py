"""Fits one device to a few measured steps of it: its own effects alone, the common values held.

Every row counts in full, and effects have the priors of the large fit, so that a handful of rows moves what they speak
of (in effect one scale for each dtype and phase) and leaves the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from validate.accuracy.factors import FactorTable, row_factors
from validate.accuracy.kinds import Subject
from validate.accuracy.predict import Prepared
from validate.fit_factors import PARAMETERS, felt
from validate.fit_layout import Layout, Mask
from validate.fit_solve import EFFECTIVE_SHARE, Problem, solve


def probed(
    prepared: Prepared, keep: Mask, factors: FactorTable | None = None, generations: FactorTable | None = None
) -> Mapping[str, dict[str, float]]:
    """Factors of each device in the kept rows, by its name.

    Parameters
    ----------
    keep : bool array (n_rows,)
        The probe rows.
    factors, generations : mappings
        What is known before, by device and by engine generation (`validate.accuracy.factors`); None: class values.
    """
    table, host = factors or {}, generations or {}
    found: dict[str, dict[str, float]] = {}
    for group in prepared.groups:
        device = group.subject.device.name
        if device not in found and keep[group.places].any():
            found[device] = _one(prepared, keep, group.subject, table, host)
    return found


def _one(prepared: Prepared, keep: Mask, subject: Subject, table: FactorTable, host: FactorTable) -> dict[str, float]:
    device = subject.device.name
    rows = keep & np.array([s is not None and s.device.name == device for s in prepared.subjects])
    names: set[str] = set()
    for group in prepared.groups:
        if rows[group.places].any():
            names |= felt(group.subject)
    before = row_factors(subject, table, host)
    own = [
        replace(p, start=float(before[p.name]), common_sd=0.0)
        for p in PARAMETERS
        if p.name in names and float(before[p.name]) > 0
    ]
    layout = Layout(own, {(device, "vllm"): names})
    problem = Problem(
        prepared,
        layout,
        rows,
        device_table=table,
        generations=host,
        cell=lambda s: (s.device.name, "vllm"),
        names=felt,
        weight=lambda s: EFFECTIVE_SHARE**-0.5,
    )
    return layout.values(solve(problem).x, device, "vllm")
