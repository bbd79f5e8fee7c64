"""The sections of the accuracy page that hold targets against rows the fits have not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SETTLE: Mapping[str, str] = {
    "static batches of 2024 on NVIDIA (Argonne)": "A third of the models at a time is left out, which leaves some "
    "engines one model to learn from; with the models in the fit the target is met. What would settle it: the same "
    "batches with different prompts in each sequence and the time of every step, which would part host time, prefill "
    "and expert routing (all sequences of this benchmark are alike, so that they route alike).",
    "serving, time per token, concurrency <= 16: BLIS": "The rows give means over stages of an open loop whose lengths "
    "are nominal. What would settle it: arrival, first-token and last-token times of every request of one stage.",
    "serving, time per token, concurrency <= 16: InferenceX": "Sparse models in 8 bit and below on B200 and H200 carry "
    "the tail: the tables do not say which kernels ran, and some device counts contradict the memory the weights need. "
    "What would settle it: the same sweep with precision of every tensor, engine flags and step times stated.",
}
"""For regimes whose target is not met: where the error sits, and the measurement that would settle it."""


def sections(targets: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Targets and bands in Markdown."""
    out = [
        "## Targets",
        "",
        "By `python -m validate.fit_targets TABLES -o docs/accuracy/targets.json`. *In the fit*: the rows were fitted. "
        "*Left out*: predicted by a fit that has not seen their model, device, point, or model on that number of "
        "devices. Limits are median / 90th percentile of the error in percent.",
        "",
        "| regime | judged on | rows | median % | p90 % | bias % | in band | band | target |",
        "|---|---|---:|---:|---:|---:|---:|---:|---|",
        *(_line(line, target=True) for line in targets["targets"]),
        "",
    ]
    missed = [line for line in targets["targets"] if line["met"] is False]
    if missed:
        out += ["Not met:", "", *(f"- {_missed(line)}" for line in missed), ""]
    return [
        *out,
        "### Bands on rows left out",
        "",
        "A 90 % band should hold 85 to 95 % of rows left out (80 to 98 % on a device never seen).",
        "",
        "| regime | judged on | rows | median % | p90 % | bias % | in band | band |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
        *(_line(line, target=False) for line in targets["bands"]),
        "",
    ]


def _line(line: Mapping[str, Any], *, target: bool) -> str:
    cells = [str(line["regime"]), str(line["judged"]), str(line["n"])]
    if line["n"] == 0:
        cells += ["-"] * 5
    else:
        cells += [f"{line[key]:.1f}" for key in ("median_ape", "p90_ape", "bias")]
        cells += [f"{100 * line['in_band']:.0f} %", f"{line['band_log_width']:.2f}"]
    if target:
        cells.append(_goal(line))
    return "| " + " | ".join(cells) + " |"


def _goal(line: Mapping[str, Any]) -> str:
    if line["target_median"] is None:
        return "reported"
    limits = f"{line['target_median']:g}" + (f" / {line['target_p90']:g}" if line["target_p90"] else "")
    return limits if line["met"] is None else f"{limits}: {'met' if line['met'] else '**not met**'}"


def _missed(line: Mapping[str, Any]) -> str:
    why = SETTLE.get(line["regime"], "no measurement named yet")
    return f"{line['regime']}, {line['judged']}: {line['median_ape']:.1f} / {line['p90_ape']:.1f}. {why}"
