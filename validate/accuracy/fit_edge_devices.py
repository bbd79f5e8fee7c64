"""What an edge fit says of a device, or of a class, whatever its storage type and library: what plans are priced with.

    log e = sum over the device's deployments of w log e(dtype, library),  w = rows that show it
    variance = w' C w + spread of libraries and storage types (of the device, at least that of its class)

and for a class its common and storage effects alone, with the variance between its devices and within them. A factor's
band [value exp(-1.645 s), value exp(1.645 s)] is never narrower than what is assumed of it, but for the two shares the
rows show directly. Fixed times and scans are the library's, which is seldom the engine of a plan: they stay as assumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hwprofiles.calibration import BUNDLED, fitted_devices
from hwprofiles.efficiency import Factor
from validate.accuracy.fit_edge import MAIN, Fitted, Key, assumed, factors_of

Array = np.ndarray[Any, np.dtype[np.float64]]
Logs = Mapping[str, tuple[float, float]]
"""Mean and standard deviation of each logarithm the factors are made of."""

_Z90 = 1.645
_SHOWN = {
    "memory": ("gemm_memory", "gemm_memory_8bit", "expert_memory"),
    "compute": ("gemm_compute", "gemm_compute_8bit", "expert_compute", "attention_prefill_compute"),
}
"""Factors that each logarithm moves, the one that rows show directly first."""
_TOP = {"memory": 0.97, "compute": 0.97}
_HIGHEST = 0.99
"""Largest value, and upper end of a band, of a share: this side of what the datasheet states."""
_FEWEST_DEVICES = 3
"""Devices a class needs for an entry of its own."""


def entries(found: Fitted) -> dict[str, dict[str, Factor]]:
    """Factors by `class:CLASS` and `DEVICE`, of devices outside the data-centre fit, their bands around them."""
    own = fitted_devices(BUNDLED)
    result: dict[str, dict[str, Factor]] = {}
    for group in sorted({key[0] for key in found.layout.keys} - {"dc_gpu"}):
        members = [key for key in found.layout.keys if key[0] == group]
        libraries = {what: _library_spread(found, members, what) for what in MAIN}
        by_device: dict[str, list[Key]] = {}
        for key in members:
            by_device.setdefault(key[1], []).append(key)
        logs = {device: _logs(found, keys, None, libraries) for device, keys in sorted(by_device.items())}
        if len(logs) >= _FEWEST_DEVICES:
            spread = {what: _device_spread(list(logs.values()), what) for what in MAIN}
            result[f"class:{group}"] = _banded(group, _logs(found, members, ("common", "storage"), spread))
        result.update({device: _banded(group, of_device) for device, of_device in logs.items() if device not in own})
    return result


def _weights(found: Fitted, keys: Sequence[Key], what: str) -> Array:
    """Share of each deployment's rows among those that show `what`; equal shares where none does."""
    rows = np.array([found.counts[key][what] for key in keys], dtype=float)
    shares: Array = rows / rows.sum() if rows.sum() else np.full(len(keys), 1.0 / len(keys))
    return shares


def _picked(found: Fitted, keys: Sequence[Key], what: str, levels: Sequence[str] | None) -> Array:
    pick = np.zeros((len(keys), len(found.x)))
    for row, key in enumerate(keys):
        places = found.layout.keys[key][what]
        pick[row, [i for i in places if levels is None or found.layout.names[i][1] in levels]] = 1.0
    return pick


def _logs(found: Fitted, keys: Sequence[Key], levels: Sequence[str] | None, extra: Mapping[str, float]) -> Logs:
    logs = {}
    for what in MAIN:
        weights = _weights(found, keys, what)
        pick = _picked(found, keys, what, levels)
        each, mean_pick = pick @ found.x, weights @ pick
        mean = float(weights @ each)
        between = float(weights @ (each - mean) ** 2)
        variance = float(mean_pick @ found.covariance @ mean_pick) + max(between, extra[what])
        logs[what] = (mean, variance**0.5)
    return logs


def _library_spread(found: Fitted, members: Sequence[Key], what: str) -> float:
    """Variance of the effects of storage type and library within a class."""
    weights = _weights(found, members, what)
    each = _picked(found, members, what, ("storage",)) @ found.x
    return float(weights @ (each - weights @ each) ** 2)


def _device_spread(logs: Sequence[Logs], what: str) -> float:
    """Variance of a device to come: between the measured ones, and what is not known of each of those."""
    means, deviations = np.array([of_device[what] for of_device in logs]).T
    return float(np.var(means, ddof=1) + np.mean(deviations**2))


def _banded(group: str, logs: Logs) -> dict[str, Factor]:
    first = assumed(group).factors
    means = {"fixed": 0.0, "linear": 0.0} | {what: mean for what, (mean, _) in logs.items()}
    values = factors_of(group, means, _TOP)
    result = {}
    for what, names in _SHOWN.items():
        for i, name in enumerate(names):
            stated = 0.0 if i == 0 else float(np.log(first[name].high / first[name].low)) / (2 * _Z90)
            half = _Z90 * max(logs[what][1], stated)
            low, high = values[name] * np.exp(-half), min(values[name] * np.exp(half), _HIGHEST)
            result[name] = Factor(value=values[name], low=low, high=high, tier="fitted", source="")
    return result


def written(found: Fitted, command: str, tables: Sequence[str]) -> str:
    """The entries as a calibration file."""
    names = ", ".join(f'"{name}"' for name in tables)
    lines = [
        f"# Efficiency factors of devices outside the data centre, by `{command}`; see hwprofiles/efficiency.py.",
        "# Over the storage types and libraries measured on a device; [low, high]: 90 % band, their spread in it.",
        f'[provenance]\ncommand = "{command}"\ntables = [{names}]\nn = {found.n_rows}',
        "",
    ]
    for key, factors in entries(found).items():
        lines.append(f'[factors."{key}"]')
        lines += [
            f"{n} = {{ value = {f.value:.4g}, low = {f.low:.4g}, high = {f.high:.4g} }}" for n, f in factors.items()
        ]
        lines.append("")
    return "\n".join(lines)
