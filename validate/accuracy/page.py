"""The accuracy page: from measurement tables to a result file, and from a result file to `docs/accuracy.md`.

Commands:

- `python -m validate.accuracy.page measure TABLE.csv... -o docs/accuracy/results.json` predicts and scores;
- `python -m validate.accuracy.page write docs/accuracy/results.json -o docs/accuracy.md` writes the page and its plots,
  with the targets of `targets.json` beside the result file (`python -m validate.fit_targets`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from validate.accuracy import calibration, page_targets
from validate.accuracy.parity import bins, drawing
from validate.accuracy.predict import predict_rows
from validate.accuracy.report import ttft_intercepts
from validate.accuracy.score import cannot_tell, groups, lanes, odd, score, skipped
from validate.accuracy.tables import load_rows

BY = ("table", "row_kind", "device", "dtype")
_HEAD = "| n | covered | median % | p90 % | mean % | bias % | in band | band |"
_RULE = "|---:|---:|---:|---:|---:|---:|---:|---:|"


def measure(tables: Sequence[Path]) -> dict[str, Any]:
    """Everything the page shows, as plain values; odd rows are scored apart.

    Raises
    ------
    InputError
        A wrong table.
    """
    rows = load_rows(tables)
    found = predict_rows(rows, *calibration.bundled())
    fine = [i for i, (row, p) in enumerate(zip(rows, found, strict=True)) if not odd(row, p)]
    good_rows, good = [rows[i] for i in fine], [found[i] for i in fine]
    return {
        "tables": sorted(path.name for path in tables),
        "overall": score(rows, found).document(),
        "fine": score(good_rows, good).document(),
        "summary": groups(good_rows, good, ("table", "row_kind")),
        "odd": groups(rows, found, ("table", "odd")),
        "groups": groups(good_rows, good, BY),
        "lanes": lanes(good_rows, good),
        "ttft_intercepts": ttft_intercepts(rows, found),
        "skipped": skipped(found),
        "parity": bins(good_rows, good),
    }


def page(results: dict[str, Any], plots: dict[str, str], targets: dict[str, Any] | None = None) -> str:
    """The page in Markdown.

    Parameters
    ----------
    results : dict
        What `measure` returns.
    plots : mapping table -> path of its plot, relative to the page
    targets : dict or None
        What `validate.fit_targets` writes.
    """
    overall = results["overall"]
    parts = [
        "# Accuracy",
        "",
        "Predicted against measured, for every row of the tables named below. Written by "
        "`python -m validate.accuracy.page write docs/accuracy/results.json -o docs/accuracy.md`; nothing here is "
        "typed by hand. `specroof accuracy TABLE.csv ...` gives the same figures for any table with the same columns, "
        "`specroof accuracy` alone for the few hundred published rows that come with the product.",
        "",
        "Error is |predicted / measured - 1|; bias is the median of log(predicted / measured); *in band* is the share "
        "of rows whose measured value lies in the 90 % band, *band* the band's full width on a log scale. Device "
        "factors were fitted on these same tables (fitted rows are in the figures), so read the columns for bands, "
        "which come from left-out rows, beside them; *cannot tell*: a band wider than a factor of ten either way, "
        "which holds its rows because it says nothing. Rows that their source or physics marks as odd are "
        "scored apart.",
        "",
        f"Rows: {overall['n']}, predicted: {overall['covered']}.",
        "",
        *(page_targets.sections(targets) if targets else ()),
        "## By table and kind of row",
        "",
        *_table(results["summary"]),
        "",
        "## Always shown: warm prefix, experts, parallelism, first token",
        "",
        *_table(results["lanes"]),
        "",
        *_intercepts(results["ttft_intercepts"]),
        "",
        "## Predicted against measured",
        "",
        *(f"![{table}: predicted over measured, both on log scales]({path})" for table, path in plots.items()),
        "",
        "## By device and storage type",
        "",
        *_table(results["groups"]),
        "",
        "## Odd rows",
        "",
        *_table(results["odd"]),
        "",
        "## Not predicted",
        "",
        "| rows | why |",
        "|---:|---|",
        *(f"| {n} | {reason} |" for reason, n in results["skipped"].items()),
        "",
    ]
    return "\n".join(parts)


def _table(lines: Sequence[dict[str, Any]]) -> list[str]:
    if not lines:
        return ["None."]
    names = list(lines[0]["group"])
    out = ["| " + " | ".join(names) + " " + _HEAD, "|" + "---|" * len(names) + _RULE[1:]]
    for line in lines:
        if line["covered"] == 0:
            continue
        figures = (f"{line[key]:.1f}" for key in ("median_ape", "p90_ape", "mean_ape", "bias"))
        unsure = " (cannot tell)" if cannot_tell(line) else ""
        band = f"{100 * line['in_band']:.0f} % | {line['band_log_width']:.2f}{unsure}"
        keys = " | ".join(str(value) for value in line["group"].values())
        out.append(f"| {keys} | {line['n']} | {line['covered']} | {' | '.join(figures)} | {band} |")
    return out


def _intercepts(lines: Sequence[dict[str, Any]]) -> list[str]:
    out = ["| engine | rows | first token beyond the prediction, ms (median; half of them within) |", "|---|---:|---|"]
    out += [
        f"| {x['generation']} | {x['n']} | {x['median_ms']:.1f}; {x['low_ms']:.1f} to {x['high_ms']:.1f} |"
        for x in lines
    ]
    return out


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, or write the page, from the command line."""
    parser = argparse.ArgumentParser(prog="python -m validate.accuracy.page", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, files in (("measure", "+"), ("write", None)):
        one = commands.add_parser(name)
        one.add_argument("inputs", nargs=files, type=Path)
        one.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args(argv)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    if given.command == "measure":
        rounded = _rounded(measure(given.inputs))
        given.output.write_text(json.dumps(rounded, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        return
    results = json.loads(given.inputs.read_text(encoding="utf-8"))
    folder = given.output.with_suffix("")
    folder.mkdir(exist_ok=True)
    plots = {}
    for table, cells in results["parity"].items():
        (folder / f"{table}.svg").write_text(drawing(table, cells), encoding="utf-8")
        plots[table] = f"{folder.name}/{table}.svg"
    beside = given.inputs.with_name("targets.json")
    targets = json.loads(beside.read_text(encoding="utf-8")) if beside.exists() else None
    given.output.write_text(page(results, plots, targets), encoding="utf-8")


def _rounded(value: Any) -> Any:
    """Four significant digits, so that a result file changes only when a result does."""
    if isinstance(value, dict):
        return {key: _rounded(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_rounded(v) for v in value]
    return float(np.format_float_positional(value, 4, fractional=False)) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
