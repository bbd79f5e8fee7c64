"""What the cost model must reach on the measurement tables, line by line, and whether bands cover rows left out.

Command: `python -m validate.fit_targets FOLDER -o docs/accuracy/targets.json` prints both tables and writes them for
the page. It refits without each model, each device, each deployment of one table and each part of the edge points in
turn: ten minutes on two cores. `--left-out FILE.npz` keeps the first half of that work for the next run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwprofiles.errors import InputError
from validate import fit as base
from validate import fit_left_out
from validate.accuracy import calibration, fit_edge, fit_generations, fit_serving_widths, fit_widths
from validate.accuracy.bands import half_width
from validate.accuracy.kinds import SERVING, Subject
from validate.accuracy.predict import Prepared, prepare
from validate.accuracy.score import odd_share
from validate.accuracy.tables import Row, load_rows
from validate.fit_factors import MAX_KV_SHARE
from validate.fit_layout import Array, Mask
from validate.fit_left_out import LeftOut
from validate.fit_targets_list import BANDS, TARGETS, Part, Target

EDGE_FOLDS = 8
MEASURED = ("argonne", "edge_", "llamacpp", "splitwise", "trtllm_docs")
"""Tables of whole steps, static batches and edge runs, by the start of their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Rows of one regime: errors in percent, share in the band, and its full log width; None where there is no row."""

    regime: str
    judged: str
    n: int
    median_ape: float | None
    p90_ape: float | None
    bias: float | None
    in_band: float | None
    band_log_width: float | None
    target_median: float | None = None
    target_p90: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether both targets are met; None where there is nothing to judge."""
        if self.median_ape is None or self.p90_ape is None or self.target_median is None:
            return None
        return self.median_ape <= self.target_median and self.p90_ape <= (self.target_p90 or float("inf"))


@dataclass(frozen=True, slots=True)
class Errors:
    """log(predicted / measured) of some rows under each way to leave rows out, and the rows' subjects."""

    rows: Sequence[Row]
    prepared: Prepared
    by: Mapping[str, Array]

    def mask(self, part: Part) -> Mask:
        """Rows of a regime, without odd ones."""
        found = np.zeros(len(self.rows), dtype=bool)
        for i, (row, s) in enumerate(zip(self.rows, self.prepared.subjects, strict=True)):
            if s is None or "low control" in row.kind:
                continue
            light = self.prepared.kv_share[i] < MAX_KV_SHARE
            odd = not part.odd and bool(odd_share(row, self.prepared.floor_share[i]))
            found[i] = not odd and part.holds(row, s, bool(light))
        return found


def step_errors(folder: Path, left: LeftOut | None = None) -> tuple[Errors, LeftOut]:
    """Operators and device-only steps: in the fit, and left out of it."""
    prepared = base.load(folder)
    whole = base.fit(prepared)
    out = left or fit_left_out.left_out(prepared, whole)
    by = {"in the fit": whole.errors, "model left out": out.model, "no model with experts seen": out.family}
    by |= {"device left out": out.device, "device left out, five probe rows": out.probed}
    return Errors(prepared.rows, prepared, by), out


def measured_errors(rows: Sequence[Row]) -> Errors:
    """Whole steps, batches and serving runs: in the fit, without their model, and two tables in finer parts."""
    prepared = prepare(rows)
    measured = np.log([row.value if row.value > 0 else np.nan for row in rows])
    inside = np.log(prepared.values(*calibration.bundled())) - measured
    served = np.array([s is not None and s.kind in SERVING for s in prepared.subjects])
    left_out = np.where(served, fit_serving_widths.left_out_errors(rows), fit_widths.left_out_errors(rows))
    by = {"in the fit": inside, "model left out": left_out}
    by["point left out"] = _points(rows, prepared, measured)
    by["model and devices left out"] = _cells(rows, prepared, measured)
    return Errors(rows, prepared, by)


def _points(rows: Sequence[Row], prepared: Prepared, measured: Array) -> Array:
    """Edge rows under fits without one of `EDGE_FOLDS` random parts of them."""
    errors = np.full(len(rows), np.nan)
    edge = np.array([fit_edge.is_edge(row, s) for row, s in zip(rows, prepared.subjects, strict=True)])
    fold = np.random.default_rng(0).integers(0, EDGE_FOLDS, len(rows))
    factors, generations = calibration.bundled()
    for k in range(EDGE_FOLDS):
        out = np.flatnonzero(edge & (fold == k))
        own = fit_edge.fit([rows[int(i)] for i in np.flatnonzero(edge & (fold != k))])
        kept = {key: table for key, table in factors.items() if "/" not in key}
        errors[out] = _under([rows[int(i)] for i in out], {**kept, **own}, generations) - measured[out]
    return errors


def _cells(rows: Sequence[Row], prepared: Prepared, measured: Array) -> Array:
    """Rows of 2023 whole steps under generation fits without their model on their number of devices."""
    errors = np.full(len(rows), np.nan)
    ours = [i for i, row in enumerate(rows) if row.table == "splitwise_steps" and prepared.subjects[i] is not None]
    factors, generations = calibration.bundled()
    for cell in sorted({(rows[i].model, rows[i].n_devices) for i in ours}):
        out = [i for i in ours if (rows[i].model, rows[i].n_devices) == cell]
        own = fit_generations.fit([rows[i] for i in ours if i not in set(out)], factors, generations)
        errors[out] = _under([rows[i] for i in out], factors, {**generations, **own}) - measured[out]
    return errors


def _under(rows: Sequence[Row], factors: Mapping[str, Any], generations: Mapping[str, Any]) -> Array:
    found: Array = np.log(prepare(rows).values(factors, generations))
    return found


def scored(errors: Errors, judged: str, mask: Mask, target: Target) -> Scored:
    """Errors and coverage of some rows."""
    keep = mask & np.isfinite(errors.by[judged])
    e = errors.by[judged][keep]
    if not len(e):
        none = dict.fromkeys(("median_ape", "p90_ape", "bias", "in_band", "band_log_width"))
        return Scored(
            regime=target.regime, judged=judged, n=0, target_median=target.median, target_p90=target.p90, **none
        )
    known = not judged.startswith("device left out") or "probe" in judged
    half = np.array([half_width(_subject(errors.prepared, int(i)), known) for i in np.flatnonzero(keep)])
    ape = 100.0 * np.abs(np.expm1(e))
    return Scored(
        regime=target.regime,
        judged=judged,
        n=len(e),
        median_ape=float(np.median(ape)),
        p90_ape=float(np.quantile(ape, 0.9)),
        bias=float(100.0 * np.median(e)),
        in_band=float(np.mean(np.abs(e) <= half)),
        band_log_width=float(2.0 * np.median(half)),
        target_median=target.median,
        target_p90=target.p90,
    )


def _subject(prepared: Prepared, i: int) -> Subject:
    subject = prepared.subjects[i]
    assert subject is not None
    return subject


def judged_lines(sources: Mapping[str, Errors], targets: Sequence[Target]) -> Iterator[Scored]:
    """Every target, in every way it is judged."""
    for target in targets:
        errors = sources[target.source]
        mask = errors.mask(target.part)
        for judged in target.judged:
            yield scored(errors, judged, mask, target)


def lines(title: str, found: Sequence[Scored]) -> list[str]:
    """A plain table."""
    heads = ("rows", "median", "p90", "bias", "in band", "width")
    out = [title, " ".join([f"{'regime':58s}", f"{'judged on':33s}", *(f"{h:>7s}" for h in heads), " target"])]
    for s in found:
        cells: list[float | None] = [s.median_ape, s.p90_ape, s.bias]
        cells += [None if s.in_band is None else 100 * s.in_band]
        figures = [f"{'-' if v is None else format(v, '.1f'):>7s}" for v in cells]
        width = "-" if s.band_log_width is None else f"{s.band_log_width:.2f}"
        out.append(" ".join([f"{s.regime:58s}", f"{s.judged:33s}", f"{s.n:7d}", *figures, f"{width:>7s}", goal(s)]))
    return [*out, ""]


def goal(s: Scored) -> str:
    """The target and whether it is met; empty where there is none."""
    if s.target_median is None:
        return ""
    limits = f"{s.target_median:g}" + (f" / {s.target_p90:g}" if s.target_p90 else "")
    return f" {limits}: {'met' if s.met else 'not met'}" if s.n else f" {limits}: no rows"


def document(folder: Path, left: LeftOut | None = None) -> tuple[dict[str, Any], LeftOut]:
    """Both tables as plain values, and what was left out of the device fit."""
    steps, left = step_errors(folder, left)
    named = sorted(path for path in folder.glob("*.csv") if path.name not in base.TABLES)
    serving = load_rows(path for path in named if path.name.startswith("serving"))
    sources = {
        "steps": steps,
        "measured": measured_errors(load_rows(p for p in named if p.name.startswith(MEASURED))),
        "serving": _inside(serving),
    }
    targets, bands = (list(judged_lines(sources, wanted)) for wanted in (TARGETS, BANDS))
    sys.stdout.write("\n".join([*lines("Targets", targets), *lines("Bands on rows left out", bands)]))
    return {"targets": [_plain(s) for s in targets], "bands": [_plain(s) for s in bands]}, left


def _inside(rows: Sequence[Row]) -> Errors:
    prepared = prepare(rows)
    measured = np.log([row.value if row.value > 0 else np.nan for row in rows])
    return Errors(rows, prepared, {"in the fit": np.log(prepared.values(*calibration.bundled())) - measured})


def _plain(s: Scored) -> dict[str, Any]:
    found = {**asdict(s), "met": s.met}
    return {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in found.items()}


def main(argv: Sequence[str] | None = None) -> None:
    """Both tables from the command line."""
    parser = argparse.ArgumentParser(prog="python -m validate.fit_targets", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--left-out", type=Path)
    given = parser.parse_args(argv)
    try:
        kept = given.left_out
        left = LeftOut(**np.load(kept)) if kept is not None and kept.exists() else None
        found, left = document(given.folder, left)
        if kept is not None:
            np.savez(kept, **{name: getattr(left, name) for name in LeftOut.__slots__})
        if given.output is not None:
            given.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    except InputError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
