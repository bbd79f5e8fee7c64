"""What a run on this machine came to: one document with machine and versions, and words for the screen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from validate.calibrate_run import Calibrated
from validate.gpu_device import Machine

SCHEMA_VERSION = 1
TARGETS = {"steps": 0.10, "trajectories": 0.10, "in_band": 0.80}
"""What a run on a quiet machine should come to: median errors at most, share inside the 90 % bands at least."""


def result_of(
    machine: Machine, found: Mapping[str, Calibrated], desk: Mapping[str, Any], replayed: Mapping[str, Any], date: str
) -> dict[str, Any]:
    """The result as plain values: steps outside the fit by role, trajectories by kind of run, ranking, counters."""
    return {
        "schema_version": SCHEMA_VERSION,
        "date": date,
        "machine": machine.to_dict(),
        "calibration": {role: _calibration(one) for role, one in found.items()},
        "steps": {role: one.check for role, one in found.items()},
        "desk": _run(desk) | {"held": desk["held"]},
        "replay": _run(replayed) | {"ranking": replayed["ranking"]},
        "targets": TARGETS,
    }


def _calibration(one: Calibrated) -> dict[str, Any]:
    errors = sorted(abs(r["error"]) for r in one.fitted.residuals())
    return {
        "deployment": one.deployment.label,
        "n": one.fitted.n,
        "median_residual": errors[len(errors) // 2],
        "misfit": one.fitted.misfit,
        "factors": {
            name: {"value": e.value, "low": e.low, "high": e.high}
            for name, e in one.fitted.estimates().items()
            if e.identified
        },
        "engine_version": one.facts.version if one.facts else None,
    }


def _run(document: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "median_error": document["errors"]["time_s"]["median_ape"],
        "bias": document["errors"]["time_s"]["bias"],
        "in_band": document["in_band"]["time_s"],
        "counters": document.get("counters"),
        "strategies": {
            name: {
                "measured_s": document["measured"][name]["time_s"],
                "predicted": document["predicted"][name]["time_s"],
                "median_error": one["errors"]["time_s"]["median_ape"],
                "in_band": one["in_band"]["time_s"],
                "pairs": one["pairs"]["time_s"],
            }
            for name, one in document["strategies"].items()
            if one["errors"]
        },
    }


def told(result: Mapping[str, Any]) -> str:
    """The result in words, one line each."""
    machine, targets = result["machine"], result["targets"]
    lines = [f"{machine['device']}, vLLM {machine['details']['vllm']}, torch {machine['details']['torch']}"]
    for role, one in result["calibration"].items():
        lines.append(f"{role}: {one['n']} points fitted, median residual {one['median_residual']:.1%}")
    for role, one in result["steps"].items():
        lines.append(
            f"{role}: {one['n']} steps outside the fit, median error {one['median_error']:.1%} "
            f"(at most {targets['steps']:.0%}), {one['in_band']:.0%} in band (at least {targets['in_band']:.0%})"
        )
    for kind in ("desk", "replay"):
        one = result[kind]
        lines.append(
            f"{kind}: median error of a trajectory {one['median_error']:.1%} (at most {targets['trajectories']:.0%}), "
            f"bias {one['bias']:+.1%}, {one['in_band']:.0%} in band (at least {targets['in_band']:.0%})"
        )
        for name, s in one["strategies"].items():
            p = s["predicted"]
            lines.append(
                f"  {name}: measured {s['measured_s']:.2f} s, predicted {p['value']:.2f} "
                f"[{p['low']:.2f}, {p['high']:.2f}] s"
            )
    order, held = result["replay"]["ranking"], result["desk"]["held"]
    lines.append(f"{order['ranked_right']} of {order['pairs_apart']} pairs of strategies apart are ranked right")
    lines.append(
        f"held actions: {held['held']}, run before a verdict {held['executed_before_verdict']}, lost {held['lost']}, "
        f"run twice {held['run_twice']}"
    )
    return "\n".join(lines) + "\n"
