"""Predicts every row of some measurement tables.

`prepare` sorts the rows into groups that are priced together, once; `Prepared.values` prices all of them under some
factors, which is what a fit calls again and again; `predict_rows` adds bands and reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from validate.accuracy import operators
from validate.accuracy.bands import Band, half_width
from validate.accuracy.factors import FactorTable, bundled_generations, has_own_factors, row_factors
from validate.accuracy.kinds import OPERATORS, SERVING, Subject, classify
from validate.accuracy.serving import Serving
from validate.accuracy.steps import Steps, problem
from validate.accuracy.tables import Row

Num = Any
Array = np.ndarray[Any, np.dtype[np.float64]]
Pricer = Callable[[Mapping[str, Num]], Num]

_ASSUMED_CONTEXT = 150.0
"""Context of a decode row that states none: community runs with a short prompt and 300 tokens of output."""
_SCALE = {"ms": 1e3, "s": 1.0}


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that are priced by one call: their places in the table, and the seconds as a function of the factors."""

    subject: Subject
    places: Array
    price: Pricer


@dataclass(frozen=True, slots=True)
class Prepared:
    """Rows sorted for pricing.

    `subjects` has one entry per row, None where it is skipped and `reasons` says why. A figure is
    `scale * seconds`, or `tokens / seconds` where `tokens` > 0. `kv_share` is the KV read at full bandwidth over the
    measured time, `floor_share` that of everything a step must read.
    """

    rows: Sequence[Row]
    subjects: list[Subject | None]
    reasons: list[str]
    groups: list[Group]
    scale: Array
    tokens: Array
    kv_share: Array
    floor_share: Array

    def values(self, efficiency_by_device: FactorTable, generations: FactorTable | None = None) -> Array:
        """The figures of all rows, (n_rows,) or (n_samples, n_rows); NaN where skipped.

        Parameters
        ----------
        efficiency_by_device, generations : mappings
            See `validate.accuracy.factors`; generations default to the bundled ones.
        """
        host = bundled_generations() if generations is None else generations
        parts = [(g, np.asarray(g.price(row_factors(g.subject, efficiency_by_device, host)))) for g in self.groups]
        samples = max((seconds.shape[0] for _, seconds in parts if seconds.ndim == 2), default=0)
        found = np.full((samples, len(self.rows)) if samples else len(self.rows), np.nan)
        for group, seconds in parts:
            found[..., group.places] = self.figures(group.places, seconds)
        return found

    def figures(self, places: Array, seconds: Array) -> Array:
        """The figures of some rows from their seconds."""
        tokens = self.tokens[places]
        figure: Array = np.where(tokens > 0, tokens / seconds, self.scale[places] * seconds)
        return figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """The prediction of one row, in the row's unit; NaN where `status` is not `ok` and names the reason."""

    value: float
    low: float
    high: float
    status: str
    subject: Subject | None
    kv_share: float
    floor_share: float


def predict_rows(
    rows: Sequence[Row],
    efficiency_by_device: FactorTable | None = None,
    generations: FactorTable | None = None,
    band: Band = half_width,
) -> list[Predicted]:
    """Predict every row.

    Parameters
    ----------
    efficiency_by_device, generations : mappings or None
        See `validate.accuracy.factors`; None: class values, bundled generations.
    band : callable (row kind, dtype, whether the device's factors are fitted) -> half log width of the 90 % band

    Returns
    -------
    list of Predicted, one per row in order.
    """
    table = efficiency_by_device or {}
    hosts = bundled_generations() if generations is None else generations
    prepared = prepare(rows)
    values = prepared.values(table, hosts)
    found = []
    for i, subject in enumerate(prepared.subjects):
        value = float(values[i])
        status = prepared.reasons[i] or ("ok" if np.isfinite(value) and value > 0 else "no finite prediction")
        if subject is None or status != "ok":
            nan = float("nan")
            found.append(
                Predicted(value=nan, low=nan, high=nan, status=status, subject=None, kv_share=nan, floor_share=nan)
            )
            continue
        spread = float(np.exp(band(subject, has_own_factors(subject, table, hosts))))
        found.append(
            Predicted(
                value=value,
                low=value / spread,
                high=value * spread,
                status=status,
                subject=subject,
                kv_share=float(prepared.kv_share[i]),
                floor_share=float(prepared.floor_share[i]),
            )
        )
    return found


def prepare(rows: Sequence[Row]) -> Prepared:
    """Classify rows and sort them into groups that are priced together."""
    subjects: list[Subject | None] = []
    reasons: list[str] = []
    keyed: dict[tuple[Any, ...], list[int]] = {}
    for place, row in enumerate(rows):
        found = classify(row)
        if isinstance(found, str):
            subjects.append(None)
            reasons.append(found)
            continue
        subjects.append(found)
        reasons.append("")
        keyed.setdefault(_key(found, row), []).append(place)
    unknown = np.full(len(rows), np.nan)
    prepared = Prepared(rows, subjects, reasons, [], *_units(rows), unknown, unknown.copy())
    for places in keyed.values():
        _add_group(prepared, places)
    return prepared


def _key(s: Subject, row: Row) -> tuple[Any, ...]:
    note = row.note
    detail: tuple[Any, ...] = ()
    if s.kind == "attention":
        detail = (note["heads"], note["kv_heads"], note["head_dim"], note["kind"])
    elif s.kind in OPERATORS:
        detail = (note.get("op", ""),)
    model = s.model.name if s.model else ""
    deployment = (s.device.name, s.n_devices, model, s.weight_dtype, s.kv_dtype, s.split, s.expert_parallel)
    kind = "serving" if s.kind in SERVING else s.kind
    return (kind, deployment, s.library, s.generation, detail)


def _units(rows: Sequence[Row]) -> tuple[Array, Array]:
    scale, tokens = np.ones(len(rows)), np.zeros(len(rows))
    for i, row in enumerate(rows):
        scale[i] = _SCALE.get(row.unit, 1.0)
        batch = row.batch or 1.0
        if row.metric == "req_s":
            tokens[i] = 1.0
        elif row.metric == "tok_s":
            tokens[i] = batch * (row.input_tokens or 1.0 if row.phase == "prefill" else 1.0)
        elif row.metric.startswith("output_tok_s"):
            tokens[i] = batch * (row.output_tokens or 0.0)
            if row.metric.endswith("per_gpu"):
                tokens[i] /= row.n_devices
    return scale, tokens


def _add_group(prepared: Prepared, places: list[int]) -> None:
    rows = [prepared.rows[i] for i in places]
    subject = prepared.subjects[places[0]]
    assert subject is not None
    reason = _problem(subject, rows[0])
    if reason:
        for i in places:
            prepared.subjects[i] = None
            prepared.reasons[i] = reason
        return
    where = np.array(places)
    operator = subject.kind in OPERATORS
    price = _operator_pricer(subject, rows) if operator else _step_pricer(prepared, subject, rows, where)
    prepared.groups.append(Group(subject, where, price))


def _problem(subject: Subject, row: Row) -> str | None:
    if subject.kind in ("gemm", "attention"):
        return None
    if subject.kind in OPERATORS:
        return None if operators.known_operator(row) else "operator that is not modelled"
    return problem(subject)


def _operator_pricer(subject: Subject, rows: Sequence[Row]) -> Pricer:
    if subject.kind == "gemm":
        return operators.gemm(subject, rows)
    return operators.attention(subject, rows) if subject.kind == "attention" else operators.linear(subject, rows)


def _step_pricer(prepared: Prepared, subject: Subject, rows: Sequence[Row], where: Array) -> Pricer:
    if subject.kind in SERVING:
        return Serving(subject, rows).seconds
    steps = Steps(subject)
    batch = np.array([row.batch for row in rows], dtype=float)
    new = np.array([row.input_tokens or 1.0 for row in rows], dtype=float)
    if subject.kind == "batch":
        output = np.array([row.output_tokens for row in rows], dtype=float)
        floor = (output - 1.0) * steps.floor_s(batch, 1.0, new + output / 2.0, decode=True)
        prepared.floor_share[where] = floor / _measured_seconds(prepared, where)
        return lambda factors: steps.batch_s(factors, batch, new, output)
    context = np.array([_context(row) for row in rows], dtype=float)
    decode = subject.kind == "decode"
    seconds = _measured_seconds(prepared, where)
    prepared.kv_share[where] = steps.kv_s(batch, new, context, decode=decode) / seconds
    prepared.floor_share[where] = steps.floor_s(batch, new, context, decode=decode) / seconds
    if decode:
        return lambda factors: steps.decode_s(factors, batch, context)
    request = np.array([row.metric == "ttft_ms" for row in rows], dtype=float)
    return lambda factors: steps.prefill_s(factors, batch, new, context) + request * factors["request_s"]


def _measured_seconds(prepared: Prepared, where: Array) -> Array:
    values = np.array([prepared.rows[i].value for i in where])
    tokens = prepared.tokens[where]
    safe = np.where(values > 0, values, np.nan)
    seconds: Array = np.where(tokens > 0, tokens / safe, safe / prepared.scale[where])
    return seconds


def _context(row: Row) -> float:
    if row.context_tokens is not None:
        return row.context_tokens
    if row.phase != "decode":
        return 0.0
    try:
        return 50.0 + float(row.note["avg_output_tokens"]) / 2.0
    except (KeyError, ValueError):
        return _ASSUMED_CONTEXT
