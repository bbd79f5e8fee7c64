"""Rows of measurement tables as evidence of a calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from costmodel.deployment import Deployment, factor_values
from hwprofiles.errors import InputError
from validate.accuracy.factors import HOST
from validate.accuracy.kinds import SERVING
from validate.accuracy.predict import Group, Prepared, prepare
from validate.accuracy.tables import Row
from validate.calibrate import Evidence
from validate.design import SIGMA

_ALONE_SIGMA, _SERVING_SIGMA = 0.06, 0.12
"""Log noise of a serving figure of one client, and of several: the closed form of their queue misses a measured time by
about this much (docs/accuracy.md)."""


def evidence_of(rows: Sequence[Row], dep: Deployment) -> tuple[list[Evidence], dict[str, int]]:
    """What some rows say of a device, and how many rows were left out for which reason.

    Parameters
    ----------
    dep : Deployment
        Its device and its central factors; the rows may be of other models on the same device.

    Raises
    ------
    InputError
        No row can be used; the message gives the most frequent reason.
    """
    prepared = prepare(rows)
    left: dict[str, int] = {}
    for reason in prepared.reasons:
        if reason:
            left[reason] = left.get(reason, 0) + 1
    found = []
    for group in prepared.groups:
        why = _unusable(group, dep)
        if why is not None:
            left[why] = left.get(why, 0) + len(group.places)
        else:
            found.append(_evidence(prepared, group, dep))
    if not found:
        most = max(left, key=lambda r: left[r]) if left else "the tables have no rows"
        raise InputError(f"none of the {len(rows)} rows tells anything of {dep.label}: {most}")
    return found, left


def _unusable(group: Group, dep: Deployment) -> str | None:
    s = group.subject
    if s.device.name != dep.hardware.name:
        return f"device {s.device.name} is not {dep.hardware.name}"
    if s.kind in SERVING and any(load_is_open(group)):
        return "open loop: its queue says as much as its steps"
    return None


def load_is_open(group: Group) -> list[bool]:
    """Whether the rows of a serving group have a rate in place of clients."""
    serving = getattr(group.price, "__self__", None)
    return [bool(getattr(serving, "open", {}))]


def _evidence(prepared: Prepared, group: Group, dep: Deployment) -> Evidence:
    rows = [prepared.rows[i] for i in group.places]
    measured = np.array([row.value for row in rows])
    tokens = prepared.tokens[group.places]
    with np.errstate(divide="ignore"):
        seconds = np.where(tokens > 0, tokens / measured, measured / prepared.scale[group.places])
    base = {**HOST, **factor_values(dep)}
    is_device = group.subject.generation in ("silicon-database", "micro-benchmark", "vidur")

    def price(factors: Mapping[str, Any]) -> Any:
        full = {**base, **factors}
        if is_device:
            full |= {"host_step_s": 0.0, "host_seq_s": 0.0, "request_s": 0.0}
        return group.price(full)

    serving = group.subject.kind in SERVING
    sigma = [(_ALONE_SIGMA if row.batch == 1 else _SERVING_SIGMA) if serving else SIGMA for row in rows]
    return Evidence(
        seconds=price,
        measured_s=seconds,
        sigma=np.array(sigma),
        labels=tuple(f"{row.table} line {row.line}: {row.metric}, batch {row.batch or '?'}" for row in rows),
    )
