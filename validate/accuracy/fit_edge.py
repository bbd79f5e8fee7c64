"""Fits edge, workstation and NPU devices: how much of bandwidth and of peak each reaches, by storage type and library.

    log e = common(class) + storage(class, dtype, library) + device(device) + own(device, dtype, library)

for e_m (memory) and e_c (compute), and by class and library one scale of the fixed times and one of what a gated-delta
scan reaches. Every effect has a normal prior around zero: a device without rows is the same fit with its effects at
zero. Least squares on log(predicted / measured) with a soft-L1 loss; rows that `odd` marks are left out.

Command: `python -m validate.accuracy.fit_edge TABLE.csv... -o FILE.toml --devices
hwprofiles/data/efficiency/fitted_edge.toml`
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwprofiles.calibration import BUNDLED
from hwprofiles.efficiency import Efficiency
from hwprofiles.load import efficiency
from validate.accuracy.factors import FactorTable, bundled_generations
from validate.accuracy.fit_covariance import covariance_lines, curvature
from validate.accuracy.kinds import Subject
from validate.accuracy.predict import prepare
from validate.accuracy.score import odd_share
from validate.accuracy.tables import Row, load_rows

Array = np.ndarray[Any, np.dtype[np.float64]]

Key = tuple[str, str, str, str]
"""Device class, device, storage type and library of a deployment."""
CLASSES = ("workstation", "edge_soc", "npu", "cpu")
MAIN = ("memory", "compute")
_SPREAD = {"common": 0.5, "storage": 0.4, "device": 0.3, "own": 0.2}
"""Prior standard deviations of the effects on log e; the scales have that of `common`, three times wider."""
_SCALES = ("fixed", "linear")
_ROW_SD = 0.12
_MOST = {"memory": 0.97, "compute": 1.3}
"""Upper ends: of bandwidth, and of a peak stated with 32-bit accumulation where 16-bit accumulation runs faster."""
_FIXED = ("gemm_s", "gemm_8bit_s", "attention_prefill_s", "attention_decode_s", "elementwise_s", "expert_s")


@dataclass(frozen=True, slots=True)
class Layout:
    """The parameters: names in order, prior spreads, and for each deployment key the parameters it adds up."""

    names: tuple[tuple[str, ...], ...]
    spreads: Array
    keys: Mapping[Key, dict[str, list[int]]]


def assumed(group: str) -> Efficiency:
    """What the effects multiply: the class's factors without this fit."""
    return efficiency(group, BUNDLED)


def is_edge(row: Row, subject: Subject | None) -> bool:
    """Whether a row takes part: a step outside the data centre, or of llama.cpp anywhere; no low control."""
    if subject is None or subject.kind not in ("decode", "prefill", "batch") or "low control" in row.kind:
        return False
    return subject.device.device_class in CLASSES or subject.library == "llama.cpp"


def layout(subjects: Sequence[Subject]) -> Layout:
    """Parameters of every (class, device, dtype, library) among some rows."""
    index: dict[tuple[str, ...], int] = {}
    keys: dict[Key, dict[str, list[int]]] = {}
    for s in subjects:
        key = (s.device.device_class, s.device.name, s.dtype, s.library)
        if key in keys:
            continue
        group, device, dtype, library = key
        keys[key] = {name: [index.setdefault((name, "common", group, library), len(index))] for name in _SCALES}
        for what in MAIN:
            effects = [
                (what, "common", group),
                (what, "storage", group, dtype, library),
                (what, "device", device),
                (what, "own", device, dtype, library),
            ]
            keys[key][what] = [index.setdefault(effect, len(index)) for effect in effects]
    spreads = np.array([_SPREAD[name[1]] * (3.0 if name[0] in _SCALES else 1.0) for name in index])
    return Layout(tuple(index), spreads, keys)


def table(plan: Layout, x: Array) -> dict[str, dict[str, Any]]:
    """The factors of every key under parameters `x`, (n,) or (n_samples, n)."""
    found: dict[str, dict[str, Any]] = {}
    for (group, device, dtype, library), parts in plan.keys.items():
        found[f"{device}/{dtype}/{library}"] = factors_of(group, {w: _summed(x, p) for w, p in parts.items()})
        no_device = {
            w: _summed(x, [i for i in p if plan.names[i][1] in ("common", "storage")]) for w, p in parts.items()
        }
        found[f"class:{group}/{dtype}/{library}"] = factors_of(group, no_device)
    return found


def _summed(x: Array, places: list[int]) -> Any:
    total = x[..., places].sum(axis=-1)
    return total[:, None] if x.ndim == 2 else float(total)


def factors_of(group: str, log: Mapping[str, Any], most: Mapping[str, float] = _MOST) -> dict[str, Any]:
    """The factors of a class under sums of effects by `memory`, `compute`, `fixed`, `linear`; shares end at `most`."""
    first = assumed(group).values()
    memory = np.minimum(first["gemm_memory"] * np.exp(log["memory"]), most["memory"])
    compute = np.minimum(first["gemm_compute"] * np.exp(log["compute"]), most["compute"])
    share = compute / first["gemm_compute"]
    fixed = np.exp(log["fixed"])
    return {
        "gemm_memory": memory,
        "gemm_memory_8bit": memory,
        "expert_memory": memory,
        "gemm_compute": compute,
        "gemm_compute_8bit": np.minimum(first["gemm_compute_8bit"] * share, most["compute"]),
        "expert_compute": np.minimum(first["expert_compute"] * share, most["compute"]),
        "attention_prefill_compute": np.minimum(first["attention_prefill_compute"] * share, 1.0),
        "linear_attention_compute": np.minimum(first["linear_attention_compute"] * share * np.exp(log["linear"]), 1.0),
        **{name: first[name] * fixed for name in _FIXED},
    }


@dataclass(frozen=True, slots=True)
class Fitted:
    """A solved fit: parameters, their values and covariance (n, n), and each deployment's rows by what they show."""

    layout: Layout
    x: Array
    covariance: Array
    counts: Mapping[Key, Mapping[str, int]]

    @property
    def n_rows(self) -> int:
        """Rows behind the fit."""
        return sum(sum(c.values()) for c in self.counts.values())

    def factors(self) -> dict[str, dict[str, float]]:
        """Factors by `DEVICE/DTYPE/LIBRARY` and `class:CLASS/DTYPE/LIBRARY`."""
        return {key: {k: float(v) for k, v in factors.items()} for key, factors in table(self.layout, self.x).items()}


def fit(rows: Sequence[Row], generations: FactorTable | None = None) -> dict[str, dict[str, float]]:
    """`solve`, and of it the factors."""
    return solve(rows, generations).factors()


def solve(rows: Sequence[Row], generations: FactorTable | None = None) -> Fitted:
    """Fit all effects to some rows.

    Parameters
    ----------
    rows : sequence of Row
        Rows of any kind; those that `is_edge` refuses and those that `odd` marks are left out.
    generations : mapping or None
        Engine generations, None for the bundled ones.
    """
    from scipy.optimize import least_squares

    host = bundled_generations() if generations is None else generations
    first = prepare(rows)
    kept = [i for i, r in enumerate(rows) if is_edge(r, first.subjects[i]) and not odd_share(r, first.floor_share[i])]
    prepared = prepare([rows[i] for i in kept])
    plan = layout([s for s in prepared.subjects if s is not None])
    measured = np.log([row.value for row in prepared.rows])

    def residuals(x: Array) -> Array:
        errors = (np.log(prepared.values(table(plan, x), host)) - measured) / _ROW_SD
        return np.concatenate([np.nan_to_num(errors), x / plan.spreads])

    def jacobian(x: Array) -> Array:
        step = 1e-4
        moved = np.log(prepared.values(table(plan, np.vstack([x, x + step * np.eye(len(x))])), host))
        slope = (moved[1:] - moved[0]) / (step * _ROW_SD)
        return np.vstack([np.nan_to_num(slope).T, np.diag(1.0 / plan.spreads)])

    found = least_squares(residuals, np.zeros(len(plan.names)), jac=jacobian, loss="soft_l1", max_nfev=30)
    covariance = curvature(residuals(found.x), jacobian(found.x))
    return Fitted(plan, found.x, covariance, _counts([s for s in prepared.subjects if s is not None]))


def _counts(subjects: Sequence[Subject]) -> dict[Key, dict[str, int]]:
    """Rows by deployment: prefill shows what it computes, everything else what it moves."""
    found: dict[Key, dict[str, int]] = {}
    for s in subjects:
        own = found.setdefault((s.device.device_class, s.device.name, s.dtype, s.library), dict.fromkeys(MAIN, 0))
        own["compute" if s.kind == "prefill" else "memory"] += 1
    return found


def written(found: Fitted, source: str) -> str:
    """The fit as a calibration file: factors, and the covariance of the logarithms they are made of, by deployment."""
    lines = [f"# {source}", f'[provenance]\nsource = "{source}"\nn = {found.n_rows}', ""]
    for key, factors in sorted(found.factors().items()):
        lines.append(f'[factors."{key}"]')
        lines += [f"{name} = {value:.4g}" for name, value in factors.items()]
        lines.append("")
    for (_, *where), parts in sorted(found.layout.keys.items()):
        pick = np.zeros((len(parts), len(found.x)))
        for row, places in enumerate(parts.values()):
            pick[row, places] = 1.0
        lines += covariance_lines("/".join(where), list(parts), pick @ found.covariance @ pick.T)
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Fit from the command line."""
    parser = argparse.ArgumentParser(prog="python -m validate.accuracy.fit_edge", description=__doc__)
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--devices", type=Path, help="also what plans are priced with, by device and class")
    given = parser.parse_args(argv)
    found = solve(load_rows(given.tables))
    names = ", ".join(sorted(path.name for path in given.tables))
    text = written(found, f"python -m validate.accuracy.fit_edge on {names}")
    given.output.write_text(text, encoding="utf-8")
    if given.devices is not None:
        from validate.accuracy import fit_edge_devices

        command = "python -m validate.accuracy.fit_edge TABLES -o FILE --devices FILE"
        text = fit_edge_devices.written(found, command, sorted(path.name for path in given.tables))
        given.devices.write_text(text, encoding="utf-8")
    sys.stderr.write(f"{len(found.factors())} sets of factors to {given.output}\n")


if __name__ == "__main__":
    main()
