"""The answer of `size`: what was simulated, the cheapest fleet per strategy, and which one to take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from costmodel.prediction import Prediction
from simulator.scenario import Scenario
from simulator.scenario_file import to_document
from simulator.size_cost import FleetCost
from simulator.size_runs import LEVEL, Judged
from simulator.size_search import Fleet
from simulator.slo import Slo
from simulator.verdict import decide

_UNREVIEWED = ("weak_only", "task_router", "step_router")
_NOT_LOST = ("wins", "cannot_tell")


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedFleet:
    """A simulated fleet of one strategy."""

    strategy: str
    settings: Mapping[str, Any]
    fleet: Fleet
    cost: FleetCost
    judged: Judged

    def document(self, slos: tuple[Slo, ...]) -> dict[str, Any]:
        """As plain values: `low` and `high` bound `p95_s`; `slos` has the objectives' own statistics."""
        p95 = self.judged.p95
        return {
            "strategy": self.strategy,
            "settings": dict(self.settings),
            "weak_replicas": self.fleet.weak,
            "strong_replicas": self.fleet.strong,
            "usd_per_h": self.cost.usd_per_h,
            "peak_w": self.cost.peak_w or None,
            "mean_w": self.cost.mean_w if self.cost.peak_w else None,
            "meets": bool(self.judged.meets),
            "p95_s": None if p95 is None else p95.value,
            "low": None if p95 is None else p95.low,
            "high": None if p95 is None else p95.high,
            "slos": [
                {"slo": str(slo), "value": e.value, "low": e.low, "high": e.high}
                for slo, e in zip(slos if self.judged.estimates else (), self.judged.estimates, strict=True)
            ],
            "runs": self.judged.n_runs,
            "reason": self.judged.reason or None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """One strategy of one alternative: its simulated fleets, and why none meets, if so."""

    strategy: str
    settings: Mapping[str, Any]
    success: Prediction
    fleets: tuple[SizedFleet, ...]
    reason: str

    @property
    def best(self) -> SizedFleet | None:
        """The cheapest fleet that meets the objectives with confidence."""
        met = [f for f in self.fleets if f.judged.meets]
        return min(met, key=lambda f: (f.cost.usd_per_h, f.fleet)) if met else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Fleets for every strategy at one rate."""

    scenario: Scenario
    slos: tuple[Slo, ...]
    rate_per_s: float
    sized: tuple[Sized, ...]
    failed: tuple[dict[str, Any], ...] = ()

    def best(self, strategy: str) -> SizedFleet | None:
        """The cheapest fleet of a strategy over all alternatives."""
        met = [s.best for s in self.sized if s.strategy == strategy and s.best is not None]
        return min(met, key=lambda f: f.cost.usd_per_h) if met else None

    @property
    def recommended(self) -> SizedFleet | None:
        """The cheapest fleet whose strategy may be recommended; strong-only where two cost the same.

        A reviewed strategy must not surely lose success, an unreviewed one must surely keep it.
        """
        keep = [s for s in self.sized if self._success(s) in (("wins",) if s.strategy in _UNREVIEWED else _NOT_LOST)]
        met = [s.best for s in keep if s.best is not None]
        return min(met, key=lambda f: (f.cost.usd_per_h, f.strategy != "strong_only")) if met else None

    def _success(self, sized: Sized) -> str:
        return decide("success", sized.success, self.scenario.objective.success_drop_max)

    def document(self) -> dict[str, Any]:
        """Everything as plain values, in the layout of the command line's JSON."""
        chosen, strong = self.recommended, self.best("strong_only")
        return {
            "scenario": to_document(self.scenario),
            "slos": [str(s) for s in self.slos],
            "rate_per_s": self.rate_per_s,
            "fleets": [
                f.document(self.slos) for s in self.sized for f in sorted(s.fleets, key=lambda f: f.cost.usd_per_h)
            ],
            "strategies": [self._strategy(s) for s in self.sized],
            "recommended": None if chosen is None else chosen.document(self.slos) | {"why": self._why(chosen, strong)},
            "strong_only": None if strong is None else strong.document(self.slos),
            "failed": list(self.failed),
            "interval_note": f"Intervals hold with {LEVEL:.0%} over all looks at a fleet: chance in simulation, at the "
            "central values of all inputs.",
        }

    def _strategy(self, sized: Sized) -> dict[str, Any]:
        best = sized.best
        s = sized.success
        return {
            "strategy": sized.strategy,
            "settings": dict(sized.settings),
            "best": None if best is None else best.document(self.slos),
            "success_ratio": {"value": s.value, "low": s.low, "high": s.high, "verdict": self._success(sized)},
            "reason": sized.reason or None,
        }

    def _why(self, chosen: SizedFleet, strong: SizedFleet | None) -> str:
        if chosen.strategy == "strong_only":
            return "no reviewed strategy holds the objectives for less"
        if strong is None:
            return "strong_only does not hold the objectives within the budgets"
        saved = 1 - chosen.cost.usd_per_h / strong.cost.usd_per_h
        sure = next(s for s in self.sized if s.best is chosen)
        note = "" if self._success(sure) == "wins" else "; its success is not sure to hold"
        return f"{saved:.0%} cheaper per hour than the strong_only fleet that holds the same objectives{note}"
