"""The strategies of a scenario, with their parameters from [protocol]."""

from __future__ import annotations

from costmodel.acceptance import MATCH_PRIOR
from costmodel.protocol import Strategy
from costmodel.strategies import Settings, strategy
from simulator.scenario import Scenario
from simulator.uncertain import Uncertain


def match_of(scenario: Scenario) -> Uncertain:
    """Probability of a literal match: the scenario's, or agreement of recorded model pairs on tau2 (assumed)."""
    if scenario.protocol.match is not None:
        return scenario.protocol.match
    value, low, high = MATCH_PRIOR
    source = "literal agreement per call of recorded model pairs on tau2"
    return Uncertain(value=value, low=low, high=high, source=source)


def playing(scenario: Scenario, name: str, window: int | None = None) -> Strategy:
    """A strategy by name, as the scenario sets it; `window` in the place of the scenario's.

    Raises
    ------
    InputError
        Unknown strategy.
    """
    p = scenario.protocol
    used = p.window if window is None else window
    settings = Settings(
        router_share=p.router_share,
        router_most_steps=p.router_most_steps,
        router_shares={str(name): share for name, share in p.router_shares.items()},
        adaptive_rule=p.adaptive_rule,
        adaptive_least_window=min(p.adaptive_least_window, used),
    )
    return strategy(name, used, settings)
