"""Operating points of a scenario's passes under the roofs of its devices, fast enough to follow a knob."""

from __future__ import annotations

from typing import Any

from costmodel.protocol import Role
from simulator.case import prepare
from simulator.glance import fewer
from simulator.outcome import Evaluator
from simulator.pictures import POINTS, Wanted, roofline
from simulator.sampling import draw_samples, inputs
from simulator.scenario import Scenario

_WANTED: Wanted = (
    ("weak prefill", Role.WEAK, "weak_only", "prompt_prefill"),
    ("strong prefill", Role.STRONG, "strong_only", "prompt_prefill"),
    *POINTS,
    ("verdict decode", Role.STRONG, "spec_agent", "verdict_decode"),
)
_STRATEGIES = ("strong_only", "weak_only", "spec_agent")


def operating_points(scenario: Scenario) -> dict[str, Any]:
    """Roofs and points as `dashboards.figures.roofline` takes them, from four tasks that stand for the workload.

    `share_of_roof = achieved_flops_per_s / min(peak_flops_per_s, bandwidth_bytes_per_s * intensity_flops_per_byte)`.

    Raises
    ------
    InputError
        The scenario cannot be so.
    """
    case = fewer(prepare(scenario))
    ev = Evaluator(case, draw_samples(inputs(case), 1, scenario.run.seed))
    found = roofline(case, ev, {name: ev.outcome(name, scenario.protocol.window) for name in _STRATEGIES}, _WANTED)
    roofs = {d["role"]: (d["peak_flops_per_s"], d["bandwidth_bytes_per_s"]) for d in found["devices"]}
    for point in found["points"]:
        peak, bandwidth = roofs[point["role"]]
        roof = min(peak, bandwidth * point["intensity_flops_per_byte"])
        point["share_of_roof"] = point["achieved_flops_per_s"] / roof
    return found
