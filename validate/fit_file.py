"""The calibration file a fit writes: factors with their bands, covariance, widths of residuals and provenance."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np

from hwprofiles.efficiency import FACTOR_NAMES, factor_range
from validate import fit as base
from validate.accuracy.predict import Prepared
from validate.fit_bands import Bands
from validate.fit_factors import QUIRKS, STEPS
from validate.fit_layout import Array, from_scale
from validate.fit_solve import Task

_Z90 = 1.645
_DTYPES = ("bf16", "fp8")
_UNSEEN = ("-", "-")
_SAME_CHIP = {"a100-40gb": "a100", "a100-pcie-80gb": "a100", "a100-pcie-40gb": "a100"}
"""Devices without rows of their own that carry the chip of a fitted one."""


def kept_bands(path: Path) -> Bands:
    """The widths in an existing file, none where there is no such file."""
    if not path.exists():
        return {}
    found: Bands = tomllib.loads(path.read_text(encoding="utf-8")).get("bands", {})
    return found


def text(prepared: Prepared, found: base.Fit, bands: Bands) -> str:
    """The file."""
    rows = int(base.usable(prepared).sum())
    misfit = _misfit(prepared, found, bands)
    lines = [
        "# Efficiency factors of data-centre GPUs, fitted by `python -m validate.fit`; see hwprofiles/efficiency.py.",
        "# [low, high]: 90 % band, of the fit's covariance and of what the form misses in steps of other models.",
        "[provenance]",
        f'command = "python -m validate.fit TABLES -o FILE{" --bands" if bands else ""}"',
        f"tables = [{', '.join(repr(n).replace(chr(39), chr(34)) for n in base.TABLES)}]",
        f"engines = [{', '.join(chr(34) + e + chr(34) for e in _engines(prepared))}]",
        f"n = {rows}",
        f"unknowns = {found.layout.size}",
        f"misfit = {misfit:.4g}",
        "",
    ]
    lines += _factors("class:dc_gpu", found, *_UNSEEN, misfit)
    measured = _measured(found)
    for device in sorted(measured):
        if "vllm" in measured[device] or measured[device] == {"vidur"}:
            lines += _factors(device, found, device, "vllm", misfit)
        for library in sorted(measured[device] - {"vllm", "vidur"}):
            for dtype in _DTYPES:
                lines += _factors(f"{device}/{dtype}/{library}", found, device, library, misfit)
    for device, chip in _SAME_CHIP.items():
        if chip in measured:
            lines += _factors(device, found, chip, "vllm", misfit)
    lines += _generations(found, measured)
    for kind, widths in bands.items():
        lines += [f"[bands.{kind}]", *(f'"{name}" = {width:.4f}' for name, width in widths.items()), ""]
    return "\n".join(lines + _covariance(found, sorted(measured)))


def _engines(prepared: Prepared) -> list[str]:
    return sorted({f"{row.source}: {row.engine}" for row in prepared.rows})


def _measured(found: base.Fit) -> dict[str, set[str]]:
    cells: dict[str, set[str]] = {}
    for task in found.problem.tasks:
        cells.setdefault(task.cell[0], set()).add(task.cell[1])
    return cells


def _factors(key: str, found: base.Fit, device: str, library: str, misfit: float) -> list[str]:
    layout, x = found.layout, found.solution.x
    spread = layout.deviations(found.solution.covariance, device, library)
    lines = [f'[factors."{key}"]']
    for name in FACTOR_NAMES:
        if name not in layout.parameters:
            continue
        scale = layout.parameters[name].scale
        z, half = layout.z(x, name, device, library), _Z90 * float(np.hypot(spread[name], misfit))
        floor, ceiling = factor_range(name)
        low, value, high = (float(np.clip(from_scale(v, scale), floor, ceiling)) for v in (z - half, z, z + half))
        lines.append(f"{name} = {{ value = {value:.4g}, low = {low:.4g}, high = {high:.4g} }}")
    return [*lines, ""]


def _generations(found: base.Fit, measured: dict[str, set[str]]) -> list[str]:
    """Quirks of the sources, and the older kernels of one of them, where `validate.accuracy` looks for them."""
    lines = []
    for source in sorted(set(QUIRKS.values())):
        for device in sorted(d for d in measured if "vllm" in measured[d]):
            own = found.layout.values(found.solution.x, device, "vllm")
            lines += [f'[generations."{source}/{device}"]']
            lines += [f"{name} = {own[name]:.4g}" for name, where in QUIRKS.items() if where == source] + [""]
    for device in sorted(d for d in measured if "vidur" in measured[d]):
        old = found.layout.values(found.solution.x, device, "vidur")
        new = found.layout.values(found.solution.x, device, "vllm")
        lines += [f'[generations."vidur/{device}"]']
        lines += [f"{n} = {old[n]:.4g}" for n in FACTOR_NAMES if n in old and abs(old[n] / new[n] - 1) > 1e-3] + [""]
    return lines


def _misfit(prepared: Prepared, found: base.Fit, bands: Bands) -> float:
    """Spread that every factor gets on top of the covariance, so that independent draws spread steps as bands do.

    To first order a step's log varies by `misfit^2 sum over factors of (d log t / d z)^2`; the median row of the steps
    is asked to reach the width of decode.
    """
    wanted = bands.get("decode", {}).get("bf16", 0.1) / _Z90
    steps = [task for task in found.problem.tasks if task.group.subject.generation == STEPS]
    sums = np.concatenate([_squares(found, task) for task in steps])
    return float(wanted / np.sqrt(np.median(sums)))


def _squares(found: base.Fit, task: Task) -> Array:
    logs = found.problem.slopes(task, found.solution.x)
    squares: Array = (logs**2).sum(axis=0)
    return squares


def _covariance(found: base.Fit, devices: list[str]) -> list[str]:
    """Lower triangle of the covariance of each device's factors on their scales (`validate.fit_layout`)."""
    layout = found.layout
    lines = []
    for device in devices:
        names = [n for n in layout.parameters if (n, device) in layout.index]
        pick = np.zeros((len(names), layout.size))
        for row, name in enumerate(names):
            pick[row, layout.places(name, device, "vllm")] = 1.0
        matrix = pick @ found.solution.covariance @ pick.T
        lower = [f"{matrix[i, j]:.3g}" for i in range(len(names)) for j in range(i + 1)]
        listed = ", ".join(f'"{n}"' for n in names)
        lines += [f'[covariance."{device}"]', f"names = [{listed}]", f"lower = [{', '.join(lower)}]", ""]
    return lines
