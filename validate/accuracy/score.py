"""Scores predictions against measurements, over all rows and by group."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwprofiles.errors import unknown_name
from validate.accuracy.kinds import SERVING
from validate.accuracy.predict import Predicted
from validate.accuracy.tables import COLUMNS, MORE_THAN_LIMIT, Row

NO_BAND = 2 * math.log(10.0)
"""Full log width of a band that spans a factor of ten either way; a wider one is no prediction."""
_KV_HEAVY = 0.05
_SURE_OF_EXPERTS = 1.3
"""How many experts a pass touches is an estimate, so a step of them is impossible only well below its traffic."""


def _lane(row: Row, p: Predicted) -> str:
    """The row's kind; warm prefixes by the weight of their KV read."""
    if p.subject is None:
        return "skipped"
    kind = p.subject.kind
    if kind == "warm":
        return "warm, KV read < 5 %" if p.kv_share < _KV_HEAVY else "warm, KV read >= 5 %"
    return kind


def _device(row: Row, p: Predicted) -> str:
    return p.subject.device.name if p.subject else row.hardware


def _concurrency(row: Row, p: Predicted) -> str:
    if p.subject is None or p.subject.kind not in SERVING:
        return "-"
    return "open loop" if row.batch is None else ("<= 16" if row.batch <= 16 else "> 16")


DERIVED: Mapping[str, Callable[[Row, Predicted], str]] = {
    "table": lambda row, p: row.table,
    "row_kind": _lane,
    "device": _device,
    "dtype": lambda row, p: p.subject.dtype if p.subject else row.weight_dtype,
    "family": lambda row, p: p.subject.family if p.subject else "-",
    "tp": lambda row, p: str(row.n_devices),
    "library": lambda row, p: p.subject.library if p.subject else row.engine,
    "generation": lambda row, p: p.subject.generation if p.subject else "-",
    "odd": lambda row, p: odd(row, p) or "no",
    "load": _concurrency,
    "parallel": lambda row, p: _parallel(row),
}
"""Columns beside those of the tables that results can be grouped by."""


def _parallel(row: Row) -> str:
    """Expert or tensor parallel experts, attention data parallel; `-` where the row says nothing."""
    note = row.note
    if note.get("attn_dp", "1") not in ("", "1"):
        return "attention dp"
    if note.get("moe_ep", "1") not in ("", "1"):
        return "ep"
    return "tp" if note.get("moe_tp", "1") not in ("", "1") or row.n_devices > 1 else "-"


def odd(row: Row, p: Predicted) -> str:
    """Why a row is not to be trusted, by what its table says or by what no device could do; empty if it is fine."""
    if "low control" in row.kind:
        return "low control"
    sure = p.subject is None or p.subject.family != "moe"
    reason = odd_share(row, p.floor_share / (1.0 if sure else _SURE_OF_EXPERTS))
    ended = p.subject is not None and p.subject.kind == "batch" and reason.startswith("faster")
    return "ended early" if ended else reason


def odd_share(row: Row, floor_share: float) -> str:
    """As `odd`, from the share of the measured time that the memory traffic takes at full bandwidth."""
    for key in row.note:
        if key.startswith("OUTLIER"):
            return "outlier by its source"
        if key.startswith("repeat runs"):
            return "repeats differ"
        if key == MORE_THAN_LIMIT:
            return key
    return "faster than its memory traffic" if floor_share >= 1.0 else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Errors of one group of rows.

    ape = |predicted / measured - 1| in percent; bias = median log(predicted / measured) in percent; in_band = share of
    rows whose measured value lies in [low, high]. None where nothing is covered.
    """

    n: int
    covered: int
    median_ape: float | None
    mean_ape: float | None
    p90_ape: float | None
    bias: float | None
    in_band: float | None
    band_log_width: float | None

    def document(self) -> dict[str, Any]:
        """As plain values."""
        return {name: getattr(self, name) for name in self.__slots__}


def cannot_tell(figures: Mapping[str, Any]) -> bool:
    """Whether the median band of a group is wider than `NO_BAND`: it covers because it says nothing."""
    width = figures["band_log_width"]
    return width is not None and width > NO_BAND


def score(rows: Sequence[Row], predictions: Sequence[Predicted]) -> Score:
    """Score some rows; those whose measured value is 0 are left out."""
    pairs = [(r.value, p) for r, p in zip(rows, predictions, strict=True) if p.status == "ok" and r.value > 0]
    if not pairs:
        none: dict[str, float | None] = dict.fromkeys(
            ("median_ape", "mean_ape", "p90_ape", "bias", "in_band", "band_log_width")
        )
        return Score(n=len(rows), covered=0, **none)
    value = np.array([v for v, _ in pairs])
    got, low, high = (np.array([getattr(p, key) for _, p in pairs]) for key in ("value", "low", "high"))
    ape = 100.0 * np.abs(got / value - 1.0)
    return Score(
        n=len(rows),
        covered=len(pairs),
        median_ape=float(np.median(ape)),
        mean_ape=float(ape.mean()),
        p90_ape=float(np.quantile(ape, 0.9)),
        bias=float(100.0 * np.median(np.log(got / value))),
        in_band=float(np.mean((low <= value) & (value <= high))),
        band_log_width=float(np.median(np.log(high / low))),
    )


def columns(by: Iterable[str]) -> list[str]:
    """The columns to group by, checked; raises `InputError` with the nearest one."""
    known = {*COLUMNS, *DERIVED}
    wanted = [name.strip() for name in by if name.strip()]
    for name in wanted:
        if name not in known:
            raise unknown_name("column", name, known)
    return wanted


def groups(rows: Sequence[Row], predictions: Sequence[Predicted], by: Sequence[str]) -> list[dict[str, Any]]:
    """One score per distinct combination of the columns `by`, in order of first appearance."""
    keyed: dict[tuple[str, ...], list[int]] = {}
    for i, (row, p) in enumerate(zip(rows, predictions, strict=True)):
        key = tuple(DERIVED[c](row, p) if c in DERIVED else row.text[c] for c in by)
        keyed.setdefault(key, []).append(i)
    found = []
    for key, places in keyed.items():
        one = score([rows[i] for i in places], [predictions[i] for i in places])
        found.append({"group": dict(zip(by, key, strict=True)), **one.document()})
    return found


LANES: Mapping[str, Callable[[Row, Predicted], str]] = {
    "warm prefix": lambda row, p: _lane(row, p) if p.subject and p.subject.kind == "warm" else "",
    "experts": lambda row, p: p.subject.kind if p.subject and p.subject.family == "moe" else "",
    "experts by parallelism": lambda row, p: (
        f"{p.subject.kind}, {_parallel(row)}" if p.subject and p.subject.family == "moe" and row.n_devices > 1 else ""
    ),
    "devices of a step": lambda row, p: (
        f"{p.subject.kind}, {row.n_devices}" if p.subject and p.subject.kind in ("decode", "prefill", "warm") else ""
    ),
    "first token": lambda row, p: f"load {_concurrency(row, p)}" if row.metric.startswith("ttft") and p.subject else "",
}
"""Lines that every report has, whatever it is grouped by; an empty text leaves a row out."""


def lanes(rows: Sequence[Row], predictions: Sequence[Predicted]) -> list[dict[str, Any]]:
    """The scores of `LANES`, those without a row left out."""
    found = []
    for name, text in LANES.items():
        keyed: dict[str, list[int]] = {}
        for i, (row, p) in enumerate(zip(rows, predictions, strict=True)):
            key = text(row, p)
            if key:
                keyed.setdefault(key, []).append(i)
        for key in sorted(keyed):
            one = score([rows[i] for i in keyed[key]], [predictions[i] for i in keyed[key]])
            found.append({"group": {"line": name, "of": key}, **one.document()})
    return found


def skipped(predictions: Sequence[Predicted]) -> dict[str, int]:
    """How many rows were skipped for which reason, most frequent first."""
    return dict(Counter(p.status for p in predictions if p.status != "ok").most_common())
