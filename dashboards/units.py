"""Numbers as people read them: one display unit for a whole column or axis, three significant digits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import TypeGuard

_PREFIXES = ("n", "µ", "m", "", "k", "M", "G", "T", "P", "E")
_SI = tuple((10.0**power, prefix) for power, prefix in zip(range(-9, 21, 3), _PREFIXES, strict=True))
_SYMBOLS = {
    "time_s": "s",
    "time_s_p50": "s",
    "time_s_p95": "s",
    "time_s_p99": "s",
    "time_alone_s": "s",
    "traffic_bytes": "B",
    "flops": "FLOP",
    "energy_j": "J",
}
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A display unit: `shown = value * factor`, labelled `symbol`."""

    factor: float
    symbol: str


def is_number(value: object) -> TypeGuard[float]:
    """True for a finite number, False for None, NaN, infinity, booleans and anything else."""
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def unit_for(column: str, values: Iterable[object]) -> Unit:
    """The display unit in which the largest of `values` (SI base units of `column`) reads as 1 to 1000.

    Seconds stay seconds from 1 s up; success is shown in per cent, money in dollars.
    """
    if column == "success":
        return Unit(factor=100.0, symbol="%")
    if column == "usd":
        return Unit(factor=1.0, symbol="$")
    symbol = _SYMBOLS.get(column, "tokens" if column.endswith("_tokens") else "")
    if symbol == "tokens" or not symbol:
        return Unit(factor=1.0, symbol=symbol)
    return _si_unit(symbol, values)


def rate_unit(symbol: str, values: Iterable[object]) -> Unit:
    """The display unit of a rate such as FLOP/s: the prefix goes before `symbol`."""
    return _si_unit(symbol, values)


def _si_unit(symbol: str, values: Iterable[object]) -> Unit:
    largest = max((abs(float(v)) for v in values if is_number(v)), default=0.0)
    fitting = [(size, prefix) for size, prefix in _SI if size <= largest] or [(1.0, "")]
    size, prefix = (1.0, "") if symbol == "s" and largest >= 1.0 else fitting[-1]
    return Unit(factor=1.0 / size, symbol=prefix + symbol)


def digits(value: float, significant: int = 3) -> str:
    """`value` with `significant` digits: thin-spaced thousands, a power of ten outside 1e-4 to 1e7.

    >>> digits(1234.5), digits(0.98432), digits(3.2e-7)
    ('1\u2009230', '0.984', '3.2×10⁻⁷')
    """
    if value == 0:
        return "0"
    rounded = float(f"{value:.{significant - 1}e}")
    exponent = math.floor(math.log10(abs(rounded)))
    if not -4 <= exponent < 7:
        mantissa = f"{rounded / 10.0**exponent:.{significant - 1}f}"
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        return _minus(f"{mantissa}×10{str(exponent).translate(_SUPERSCRIPT)}")
    return _minus(f"{rounded:,.{max(0, significant - 1 - exponent)}f}".replace(",", "\u2009"))


def _minus(text: str) -> str:
    return text.replace("-", "−", 1) if text.startswith("-") else text


def shown(value: object, unit: Unit) -> str:
    """`value` scaled to `unit` without the unit's symbol, or a dash when it is no finite number."""
    return digits(float(value) * unit.factor) if is_number(value) else "–"


def with_unit(value: object, unit: Unit) -> str:
    """`value` scaled to `unit` with the symbol where its language puts it: `$1.20`, `62.1 %`, `14 s`."""
    text = shown(value, unit)
    if text == "–" or not unit.symbol:
        return text
    return f"${text}" if unit.symbol == "$" else f"{text}\u00a0{unit.symbol}"


def interval(estimate: Mapping[str, object], unit: Unit) -> str:
    """The two ends of an estimate joined by a dash, or nothing when either end is not known."""
    low, high = estimate.get("low"), estimate.get("high")
    return f"{shown(low, unit)} – {shown(high, unit)}" if is_number(low) and is_number(high) else ""


def compact(value: object) -> str:
    """Any JSON value as one short line: numbers with up to six digits, nothing invented for None."""
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if is_number(value):
        text = digits(float(value), 6)
        return text.rstrip("0").rstrip(".") if "." in text and "×" not in text else text
    if isinstance(value, Mapping):
        if "value" in value and set(value) <= {"value", "low", "high"}:
            ends = f"{compact(value.get('low'))} – {compact(value.get('high'))}"
            return f"{compact(value['value'])} ({ends})" if is_number(value.get("low")) else compact(value["value"])
        return ", ".join(f"{key} {compact(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(compact(item) for item in value)
    return str(value)
