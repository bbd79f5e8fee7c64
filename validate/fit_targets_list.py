"""The regimes of the accuracy targets: which rows, judged how, and what their errors must stay under."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from validate.accuracy.kinds import Subject
from validate.accuracy.tables import Row
from validate.fit_factors import STEPS

Source = Literal["steps", "measured", "serving"]
"""Operators and device-only steps; whole steps, batches and edge runs; serving runs."""
_LIGHT = 16
"""Concurrency up to which a serving run is light."""
_NVIDIA = "NVIDIA"
_IN, _MODEL, _DEVICE = "in the fit", "model left out", "device left out"
_POINT, _CELL, _PROBED = "point left out", "model and devices left out", "device left out, five probe rows"
_FAMILY = "no model with experts seen"


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows: `holds(row, subject, light)`, where `light` says that the row reads little of a KV cache.

    Rows that `validate.accuracy.score.odd_share` marks are left out, unless `odd`.
    """

    holds: Callable[[Row, Subject, bool], bool]
    odd: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A regime, the ways it is judged, and the median and 90th percentile of |error| in percent it must stay under."""

    regime: str
    source: Source
    part: Part
    judged: tuple[str, ...]
    median: float | None = None
    p90: float | None = None


def _steps(*kinds: str, dtype: str = "", device: str = "", family: str = "", light: bool | None = True) -> Part:
    def holds(row: Row, s: Subject, is_light: bool) -> bool:
        if (
            s.generation != STEPS
            or s.kind not in kinds
            or (s.kind == "warm" and light is not None and is_light != light)
        ):
            return False
        return dtype in ("", s.dtype) and device in ("", s.device.name) and family in ("", s.family)

    return Part(holds, odd=True)


def _kinds(*kinds: str) -> Part:
    return Part(lambda row, s, light: s.kind in kinds, odd=True)


def _table(table: str, *kinds: str, vendor: str = "", most_clients: float = float("inf")) -> Part:
    def holds(row: Row, s: Subject, light: bool) -> bool:
        if not row.table.startswith(table) or s.kind not in kinds or vendor not in ("", s.device.vendor):
            return False
        return most_clients == float("inf") or (row.batch is not None and row.batch <= most_clients)

    return Part(holds)


def _edge(kind: str, npu: bool | None = None) -> Part:
    def holds(row: Row, s: Subject, light: bool) -> bool:
        ours = row.table.startswith(("edge_", "llamacpp")) and s.kind == kind
        return ours and npu in (None, s.device.device_class == "npu")

    return Part(holds)


_OPERATORS: tuple[tuple[str, tuple[str, ...], float, float], ...] = (
    ("products: GEMM and linear", ("gemm", "linear"), 6.0, 18.0),
    ("attention", ("attention",), 8.0, 25.0),
    ("element-wise", ("elementwise",), 16.0, 45.0),
)

TARGETS: tuple[Target, ...] = (
    *(
        Target(
            regime=f"device-only steps, {dtype}: decode and cold prefill",
            source="steps",
            part=_steps("decode", "prefill", dtype=dtype),
            judged=(_IN, _MODEL),
            median=median,
            p90=p90,
        )
        for dtype, median, p90 in (("bf16", 4.0, 12.0), ("fp8", 5.0, 18.0))
    ),
    Target(
        regime="warm prefix, KV read < 5 % of the step",
        source="steps",
        part=_steps("warm"),
        judged=(_IN, _MODEL),
        median=5.0,
        p90=15.0,
    ),
    Target(
        regime="warm prefix, KV read >= 5 %, as its source prices it",
        source="steps",
        part=_steps("warm", light=False),
        judged=(_IN, _MODEL),
    ),
    *(
        Target(regime=f"operators: {name}", source="steps", part=_kinds(*kinds), judged=(_IN,), median=median, p90=p90)
        for name, kinds, median, p90 in _OPERATORS
    ),
    Target(
        regime="whole steps of 2023 (splitwise)",
        source="measured",
        part=_table("splitwise", "decode", "prefill"),
        judged=(_IN, _CELL),
        median=10.0,
        p90=25.0,
    ),
    Target(
        regime="static batches of 2024 on NVIDIA (Argonne)",
        source="measured",
        part=_table("argonne", "batch", vendor=_NVIDIA),
        judged=(_IN, _MODEL),
        median=7.0,
        p90=25.0,
    ),
    Target(
        regime="serving, time per token, concurrency <= 16: BLIS",
        source="serving",
        part=_table("serving_blis", "tpot"),
        judged=(_IN,),
        median=6.0,
        p90=15.0,
    ),
    Target(
        regime="serving, time per token, concurrency <= 16: InferenceX",
        source="serving",
        part=_table("serving_inferencex", "tpot", most_clients=_LIGHT),
        judged=(_IN,),
        median=9.0,
        p90=25.0,
    ),
    *(
        Target(
            regime=f"edge and consumer, {kind}",
            source="measured",
            part=_edge(kind),
            judged=(_IN, _POINT, _MODEL),
            median=median,
            p90=p90,
        )
        for kind, median, p90 in (("decode", 10.0, 35.0), ("prefill", 20.0, 60.0))
    ),
    *(
        Target(
            regime=f"a data-centre GPU never seen, {dtype}: steps",
            source="steps",
            part=_steps("decode", "prefill", "warm", dtype=dtype),
            judged=(_DEVICE,),
            median=median,
        )
        for dtype, median in (("bf16", 10.0), ("fp8", 13.0))
    ),
    *(
        Target(
            regime=f"the same after five steps of it, {dtype}",
            source="steps",
            part=_steps("decode", "prefill", "warm", dtype=dtype),
            judged=(_PROBED,),
            median=7.0,
        )
        for dtype in ("bf16", "fp8")
    ),
    *(
        Target(
            regime=f"experts never seen: {kind}",
            source="steps",
            part=_steps(kind, family="moe"),
            judged=(_FAMILY,),
            median=median,
        )
        for kind, median in (("decode", 12.0), ("prefill", 10.0), ("warm", None))
    ),
)
"""The targets, in the order of the issue that set them."""


def _band(regime: str, part: Part, judged: str, source: Source = "steps") -> Target:
    return Target(regime=regime, source=source, part=part, judged=(judged,))


_GPUS = ("a100", "b200", "h100", "h200", "l40s")

BANDS: tuple[Target, ...] = (
    *(
        _band(f"{kind}, {dtype}", _steps(kind, dtype=dtype), _MODEL)
        for kind in ("decode", "prefill", "warm")
        for dtype in ("bf16", "fp8")
    ),
    *(_band(f"{kind}, experts", _steps(kind, family="moe"), _FAMILY) for kind in ("decode", "prefill", "warm")),
    *(_band(f"steps on {gpu}", _steps("decode", "prefill", "warm", device=gpu), _MODEL) for gpu in _GPUS),
    *(_band(f"steps on {gpu}, never seen", _steps("decode", "prefill", "warm", device=gpu), _DEVICE) for gpu in _GPUS),
    *(_band(f"operators: {kind}", _kinds(kind), _IN) for kind in ("gemm", "linear", "attention", "elementwise")),
    *(
        _band(f"operators: {kind}, device never seen", _kinds(kind), _DEVICE)
        for kind in ("gemm", "linear", "attention")
    ),
    *(_band(f"splitwise {kind}", _table("splitwise", kind), _CELL, "measured") for kind in ("decode", "prefill")),
    _band("Argonne batches, NVIDIA", _table("argonne", "batch", vendor=_NVIDIA), _MODEL, "measured"),
    _band("Argonne batches, AMD", _table("argonne", "batch", vendor="AMD"), _MODEL, "measured"),
    _band("Argonne batches, Intel", _table("argonne", "batch", vendor="Intel"), _MODEL, "measured"),
    *(
        _band(f"edge and consumer {kind}{', NPUs' if npu else ''}", _edge(kind, npu=npu), _MODEL, "measured")
        for kind in ("decode", "prefill")
        for npu in (False, True)
    ),
)
"""Regimes whose bands are checked on rows that were left out."""
