"""One break-even map per load: idle engines expected, loaded ones simulated, on the same axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwprofiles.errors import InputError
from simulator.axis import Axis, parse_axis
from simulator.breakeven import LOAD_KEYS, BreakEven, breakeven, check_map
from simulator.plan import is_loaded
from simulator.scenario import Scenario
from simulator.scenario_file import load_scenario, to_document

MOST_LOADS, MOST_AGENTS = 8, 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ByLoad:
    """Maps of one scenario, `maps[i]` with `agents[i]` trajectories at once."""

    scenario: Scenario
    agents: tuple[int, ...]
    maps: tuple[BreakEven, ...]

    def document(self) -> dict[str, Any]:
        """The maps as plain values, in the layout of the command line's JSON."""
        first = self.maps[0]
        return {
            "objective": first.objective,
            "strategy": first.strategy,
            "x": {"name": first.x.name, "values": list(first.x.values)},
            "y": {"name": first.y.name, "values": list(first.y.values)},
            "loads": [{"concurrency": n, **m.cells()} for n, m in zip(self.agents, self.maps, strict=True)],
            "scenario": to_document(self.scenario),
        }


def by_load(
    scenario: Scenario | str | Path,
    x: Axis | str,
    y: Axis | str,
    agents: Sequence[int],
    *,
    objective: str = "time",
    strategy: str = "spec_agent",
    study: str | Path | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ByLoad:
    """Map the ratio to strong-only at each of several loads (closed loops of so many agents).

    Parameters
    ----------
    agents : whole numbers, rising
        Expected where nobody has to wait (one agent), simulated where somebody may.
    study, workers, progress : as in `simulator.breakeven_simulated.simulated`

    Raises
    ------
    InputError
        As `breakeven`; or loads that are no rising whole numbers, stand beside another load, or are an axis already.

    Limits
    ------
    A cell that cannot be simulated has no ratio, and its map says why under `failed`.
    """
    if not isinstance(scenario, Scenario):
        scenario = load_scenario(scenario)
    x, y = (parse_axis(a) if isinstance(a, str) else a for a in (x, y))
    _check_loads(scenario, x, y, agents)
    check_map(scenario, x, y, objective, strategy, (), "expected")
    cases = {n: scenario.with_(**{"load.concurrency": n}) for n in agents}
    loaded = [n for n, s in cases.items() if is_loaded(s)]
    if not loaded and (study is not None or workers is not None):
        raise InputError("study and workers have an effect on simulated maps only, and one agent alone is expected")
    found = {n: breakeven(s, x, y, objective=objective, strategy=strategy) for n, s in cases.items() if n not in loaded}
    if loaded:
        from simulator.breakeven_simulated import simulated

        kept: dict[str, Any] = {"study": study, "workers": workers, "progress": progress}
        drawn = simulated(scenario, x, y, objective, strategy, loads=loaded, **kept)
        found |= dict(zip(loaded, drawn, strict=True))
    return ByLoad(scenario=scenario, agents=tuple(agents), maps=tuple(found[n] for n in agents))


def _check_loads(scenario: Scenario, x: Axis, y: Axis, agents: Sequence[int]) -> None:
    if not agents or len(agents) > MOST_LOADS:
        raise InputError(f"loads: 1 to {MOST_LOADS} numbers of agents, got {len(agents)}")
    if not all(1 <= n <= MOST_AGENTS for n in agents) or list(agents) != sorted(set(agents)):
        got = ", ".join(map(str, agents))
        raise InputError(f"loads: whole numbers of agents from 1 to {MOST_AGENTS}, rising, got {got}")
    for axis in (x, y):
        if axis.key in LOAD_KEYS:
            raise InputError(f"loads: {axis.name} is an axis already; give one of the two")
    if scenario.load.arrival_rate_per_s is not None or scenario.load.arrivals is not None:
        raise InputError("loads: the scenario has arrivals already; loads are numbers of agents in a closed loop")
