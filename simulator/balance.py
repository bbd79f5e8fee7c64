"""Hardware balance: from which acceptance drafting pays, device by device, over the ridge point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.deployment import Deployment
from costmodel.pricing import Site
from costmodel.protocol import Role
from hwprofiles.errors import InputError
from simulator.axis import Axis
from simulator.breakeven import frontier
from simulator.case import Case
from simulator.nodes import ACCEPTANCE, NodeMaker
from simulator.scenario import Scenario
from simulator.scenario_file import load_scenario, to_document

Array = np.ndarray[Any, np.dtype[np.float64]]

DEVICE_COUNTS: tuple[int, ...] = (1, 2, 4, 8, 16)
"""Devices tried per replica: the fewest that hold the model."""

_GRID = np.concatenate([np.linspace(0.02, 0.9, 30), np.linspace(0.91, 0.999, 10)])
_N_TASKS = 12
_N_CURVE = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """`devices`: one row per device; `curve`: the first of them with its compute scaled to other ridge points."""

    scenario: Scenario
    objective: str
    strategy: str
    devices: tuple[dict[str, Any], ...]
    curve: tuple[dict[str, Any], ...]

    def document(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "objective": self.objective,
            "strategy": self.strategy,
            "devices": list(self.devices),
            "curve": list(self.curve),
            "scenario": to_document(self.scenario),
        }


def balance(
    scenario: Scenario | str | Path, hardware: Sequence[str], *, objective: str = "time", strategy: str = "spec_agent"
) -> Balance:
    """Put both models of a scenario on one device after another and find the acceptance from which drafting pays.

    Each replica takes the fewest devices of `DEVICE_COUNTS` that hold it. The ridge point is
    peak FLOP/s of the strong model's compute dtype over bandwidth.

    Parameters
    ----------
    hardware : names of devices
    objective : time, traffic, flops or energy

    Raises
    ------
    InputError
        An unknown device, a scenario with an API, or no device that holds the models.

    Limits
    ------
    A device on which a model does not fit is listed with the reason. The curve keeps the efficiency factors of its
    device while its peak changes.
    """
    scenario = scenario if isinstance(scenario, Scenario) else load_scenario(scenario)
    if len(set(hardware)) != len(hardware) or not hardware:
        raise InputError(f"balance: name each device once, got {', '.join(hardware) or 'none'}")
    if scenario.weak.api is not None or scenario.strong.api is not None:
        raise InputError("balance: both models must run on devices; an API has no ridge point")
    if objective not in ("time", "traffic", "flops", "energy"):
        raise InputError(f"balance: objective must be time, traffic, flops or energy, got {objective!r}")
    maker = NodeMaker(scenario, objective, strategy, None, {ACCEPTANCE}, _N_TASKS)
    rows: list[dict[str, Any]] = []
    cases: list[Case] = []
    for name in hardware:
        try:
            case = _smallest(maker, name)
        except InputError as error:
            rows.append({"hardware": name, "reason": str(error)})
            continue
        rows.append(_row(maker, case, name))
        cases.append(case)
    if not cases:
        raise InputError(f"balance: no device can run both models; {rows[0]['hardware']}: {rows[0]['reason']}")
    ridges = [r["ridge_flops_per_byte"] for r in rows if "reason" not in r]
    return Balance(
        scenario=scenario,
        objective=objective,
        strategy=strategy,
        devices=tuple(rows),
        curve=tuple(_curve(maker, cases[0], np.geomspace(min(ridges) / 2, max(ridges) * 2, _N_CURVE))),
    )


def _smallest(maker: NodeMaker, name: str) -> Case:
    """The case with both roles on the fewest devices of a kind that hold them."""
    counts: dict[str, int] = {}
    last: InputError | None = None
    for role in ("weak", "strong"):
        other = "strong" if role == "weak" else "weak"
        for n in DEVICE_COUNTS:
            change: dict[str, Any] = {f"{role}.hardware": name, f"{role}.n_devices": n}
            if other in counts:
                change |= {f"{other}.hardware": name, f"{other}.n_devices": counts[other]}
            try:
                case = maker.case(change, _GRID)
            except InputError as error:
                last = error
                continue
            counts[role] = n
            break
        else:
            assert last is not None
            raise last
    return case


def _row(maker: NodeMaker, case: Case, name: str) -> dict[str, Any]:
    dep = case.sites[Role.STRONG].server
    assert isinstance(dep, Deployment)
    found = {
        "hardware": name,
        "ridge_flops_per_byte": dep.hardware.ridge_flops_per_byte(dep.compute_dtype),
        "compute_dtype": dep.compute_dtype,
        "n_devices": {role.value: case.devices(role) for role in Role},
    }
    return found | _critical(maker, case)


def _critical(maker: NodeMaker, case: Case) -> dict[str, Any]:
    """Critical acceptance with its band, and the ratio at the scenario's own acceptance."""
    node = maker.node(case, _GRID, banded=True)
    mine, theirs = (np.sum([t[i] for t in node.terms.values()], axis=0) for i in (0, 1))
    central = np.log(mine / theirs)
    one = Axis(name="objective", values=(0.0,))
    axis = Axis(name="acceptance", values=tuple(_GRID.tolist()))
    (point, *_) = frontier(axis, one, central[None], (central + node.low)[None], (central + node.high)[None])
    own = maker.scenario.protocol.acceptance
    at = own.value if own is not None else 0.9
    ratio = {
        k: float(np.exp(np.interp(at, _GRID, central + off)))
        for k, off in (("value", 0.0), ("low", node.low), ("high", node.high))
    }
    return {
        "critical_acceptance": {"value": point["x"], "low": point["x_low"], "high": point["x_high"]},
        "ratio": ratio,
        "ratio_at_acceptance": at,
    }


def _curve(maker: NodeMaker, case: Case, ridges: Array) -> list[dict[str, Any]]:
    return [{"ridge_flops_per_byte": float(r)} | _critical(maker, _scaled(case, float(r))) for r in ridges]


def _scaled(case: Case, ridge: float) -> Case:
    """The case with every peak scaled so that the strong model's device has this ridge point."""
    strong = case.sites[Role.STRONG].server
    assert isinstance(strong, Deployment)
    factor = ridge / strong.hardware.ridge_flops_per_byte(strong.compute_dtype)
    sites: Mapping[Role, Site] = {
        role: replace(site, server=_with_peak(site.server, factor)) for role, site in case.sites.items()
    }
    return replace(case, sites=sites)


def _with_peak(dep: Any, factor: float) -> Deployment:
    device = dep.hardware
    peaks = {k: replace(f, value=f.value * factor) for k, f in device.peak_flops_per_s.items()}
    scaled: Deployment = replace(dep, hardware=replace(device, peak_flops_per_s=peaks))
    return scaled
