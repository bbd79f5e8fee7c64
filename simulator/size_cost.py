"""What a fleet costs per hour and how much power it needs: prices or capital, electricity, bills of APIs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from costmodel.api import Api
from costmodel.protocol import Role
from hwprofiles.errors import InputError
from simulator.case import Case

HOURS_PER_YEAR = 8766.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How money and power are counted.

    Parameters
    ----------
    max_usd_per_h, max_power_w : float or None
        Most that a fleet may cost and draw.
    usd_per_kwh : float or None
        Electricity, paid on top of the price of a device; None where that price includes it (rented devices).
    pue : float
        Power of the site over power of its devices.
    capex_usd : mapping Role -> float
        Purchase price of one device in place of an hourly price, spread over `lifetime_years`.
    """

    max_usd_per_h: float | None = None
    max_power_w: float | None = None
    usd_per_kwh: float | None = None
    pue: float = 1.0
    capex_usd: Mapping[Role, float] = field(default_factory=dict)
    lifetime_years: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_usd_per_h", "max_power_w", "lifetime_years"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InputError(f"{name} must be a positive number, got {value}")
        prices = {"usd_per_kwh": self.usd_per_kwh, **{f"{r}_capex_usd": v for r, v in self.capex_usd.items()}}
        for name, value in prices.items():
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise InputError(f"{name} must be a number >= 0, got {value}")
        if not 1.0 <= self.pue <= 10.0:
            raise InputError(f"pue must be 1 to 10, got {self.pue}")
        if self.pue != 1.0 and self.usd_per_kwh is None and self.max_power_w is None:
            raise InputError("pue has no effect without usd_per_kwh or max_power_w")
        if bool(self.capex_usd) != (self.lifetime_years is not None):
            raise InputError("a purchase price needs lifetime_years, and lifetime_years a purchase price")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleCost:
    """One replica of a role: dollars per hour, idle watts, and most watts (0 behind an API)."""

    usd_per_h: float
    idle_w: float
    peak_w: float


def role_costs(case: Case, roles: tuple[Role, ...], terms: Terms) -> dict[Role, RoleCost]:
    """Cost of a replica of each role.

    usd_per_h = n_devices (capex_usd / (lifetime_years 8766) or price);   peak_w = n_devices tdp_w

    Raises
    ------
    InputError
        No price, or no power limit where power is asked for, is known for a device; a capital cost of an API.
    """
    found = {}
    for role in roles:
        server = case.sites[role].server
        if isinstance(server, Api):
            if role in terms.capex_usd:
                raise InputError(f"{role}_capex_usd has no effect on the API {server.name}")
            found[role] = RoleCost(usd_per_h=0.0, idle_w=0.0, peak_w=0.0)
            continue
        capex, years = terms.capex_usd.get(role), terms.lifetime_years
        price = case.usd_per_h[role] if capex is None or years is None else capex / (years * HOURS_PER_YEAR)
        if price is None:
            raise InputError(f"no price is known for {server.hardware.name}: set {role}.usd_per_h, or give its capex")
        tdp = server.hardware.tdp_w
        if tdp is None and (terms.usd_per_kwh is not None or terms.max_power_w is not None):
            raise InputError(f"no power limit is known for {server.hardware.name}, so its power cannot be counted")
        peak_w = tdp.value * server.n_devices if tdp is not None else 0.0
        idle = server.efficiency.factors["idle_w_share"].value
        found[role] = RoleCost(usd_per_h=price * server.n_devices, idle_w=idle * peak_w, peak_w=peak_w)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCost:
    """What a fleet costs: all dollars per hour, most watts and mean watts of the site."""

    usd_per_h: float
    peak_w: float
    mean_w: float


def fleet_cost(
    costs: Mapping[Role, RoleCost],
    replicas: Mapping[Role, int],
    terms: Terms,
    *,
    rate_per_s: float,
    energy_j: float,
    api_usd: float,
) -> FleetCost:
    """Cost of a fleet at a load.

    mean_w = pue (sum replicas idle_w + rate energy_j);   usd_per_h = sum replicas usd_per_h + 3600 rate api_usd
    + mean_w / 1000 usd_per_kwh

    Parameters
    ----------
    energy_j, api_usd : float
        Per trajectory: energy above idle, and bills of APIs.
    """
    mean_w = terms.pue * (sum(n * costs[r].idle_w for r, n in replicas.items()) + rate_per_s * energy_j)
    devices = sum(n * costs[r].usd_per_h for r, n in replicas.items())
    power = mean_w / 1000.0 * terms.usd_per_kwh if terms.usd_per_kwh is not None else 0.0
    return FleetCost(
        usd_per_h=devices + 3600.0 * rate_per_s * api_usd + power,
        peak_w=terms.pue * sum(n * costs[r].peak_w for r, n in replicas.items()),
        mean_w=mean_w,
    )
