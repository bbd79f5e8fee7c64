"""From a scenario to the rules of its fleet: routers, rate limits, cache lifetimes, the link."""

from __future__ import annotations

from costmodel.protocol import Role
from simulator.api_limits import LimitRules
from simulator.fleet import FleetRules
from simulator.links import LinkRules
from simulator.routing import RouteRule
from simulator.scenario import Scenario
from simulator.scenario_world import LinkSection, RateLimits
from simulator.surroundings import jitter_law


def fleet_rules(scenario: Scenario) -> FleetRules:
    """The rules that a scenario states."""
    sides = {Role.WEAK: scenario.weak, Role.STRONG: scenario.strong}
    return FleetRules(
        routes={
            role: RouteRule(router=side.router or "least_loaded", per_request=side.route_per == "request")
            for role, side in sides.items()
        },
        limits={role: _limits(side.limits) for role, side in sides.items() if side.limits is not None},
        cache_ttl_s={role: side.cache_ttl_s for role, side in sides.items() if side.cache_ttl_s is not None},
        link=None if scenario.link is None else _link(scenario.link),
        share_devices=scenario.strong.share_devices_with is not None,
    )


def _limits(limits: RateLimits) -> LimitRules:
    return LimitRules(
        requests_per_min=limits.requests_per_min,
        tokens_per_min=limits.tokens_per_min,
        retries=limits.retries,
        backoff_s=limits.backoff_s or 0.0,
    )


def _link(link: LinkSection) -> LinkRules | None:
    """None for a link that has nothing but its mean round trip and bandwidth."""
    if not link.jitter_s and link.outage_s is None:
        return None
    return LinkRules(
        jitter_s=link.jitter_s or 0.0,
        jitter=jitter_law(link),
        outage_every_s=link.outage_every_s,
        outage_s=link.outage_s,
        timeout_s=link.timeout_s,
        retries=link.retries or 0,
        backoff_s=link.backoff_s or 0.0,
    )
