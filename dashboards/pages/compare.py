"""Compare runs: distributions and means of several saved runs side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dash
import pandas as pd

from dashboards import figures, parts, query, shelf
from dashboards.desk import Desk
from dashboards.pages import runs, showing
from dashboards.pages.showing import Shown
from dashboards.units import digits, is_number
from hwprofiles.errors import InputError

PATH, TITLE, PAGE = "/compare", "Compare runs", "compare"
MOST = 12
"""Curves that can still be told apart."""
_MEANS = (("traffic_bytes", "traffic (B)"), ("energy_j", "energy (J)"), ("strong_output_tokens", "strong tokens"))


def layout(desk: Desk, asked: Mapping[str, str]) -> Any:
    """The page, its runs where the URL says, else the first few."""
    if not desk.shelf.runs:
        return runs.none_given(TITLE)
    known = [str(i) for i in range(len(desk.shelf.runs))]
    chosen = [k for k in query.text(asked, "runs", ",".join(known[:4])).split(",") if k in known][:MOST]
    knobs = [parts.select(PAGE, "runs", "Runs", runs.labels(desk), ",".join(chosen), multi=True)]
    lead = f"Up to {MOST} runs: one colour per strategy, one dash per run of it; marks at the median, 95 % and 99 %."
    return parts.page(TITLE, lead, knobs, [showing.place(PAGE)])


def register(app: dash.Dash, desk: Desk) -> None:
    """Add the callbacks."""

    def answer(at: Mapping[str, Any]) -> Shown:
        found = [desk.shelf.run(n) for n in list(at.get("runs") or ())[:MOST]]
        if not found:
            raise InputError("choose a run")
        times = [_counted(r) for r in found]
        curves = [{"strategy": r.strategy, "label": r.label, "time_s": t} for r, t in zip(found, times, strict=True)]
        return Shown(
            figures=[("Share of tasks done within a time", figures.latencies(curves))],
            data=pd.DataFrame(
                [
                    {"run": r.label, "strategy": r.strategy, "time_s": t}
                    for r, all_s in zip(found, times, strict=True)
                    for t in all_s
                ]
            ),
            document={},
            below=[parts.table([_row(r) for r in found], "Means over the counted tasks")],
        )

    showing.register(app, PAGE, answer)


def _counted(run: shelf.Saved) -> list[float]:
    frame = shelf.columns(run.folder, "trajectories", ("counted", "time_s"))
    return [float(t) for t in frame.loc[frame["counted"], "time_s"].tolist()]


def _row(run: shelf.Saved) -> dict[str, object]:
    times, means = run.summary.get("time_s") or {}, run.summary.get("mean") or {}
    return {
        "run": run.label,
        "tasks": run.summary.get("n_counted"),
        **{f"{q} time (s)": _short(times.get(q)) for q in ("mean", "p50", "p95", "p99")},
        **{words: _short(means.get(key)) for key, words in _MEANS},
    }


def _short(value: object) -> str:
    return digits(float(value)) if is_number(value) else "–"
