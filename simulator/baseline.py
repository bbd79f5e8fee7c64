"""What a comparison is made against: always a strong-only that a user would really run.

With `[strong.decode]` every strategy's strong model drafts tokens, strong_only too. Only where `token_speculation` is a
row of its own does strong_only decode plainly, to show what drafting tokens brings by itself; everything is then
compared with token_speculation, not with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from costmodel.deployment import Deployment
from costmodel.protocol import Role
from simulator.case import Case
from simulator.scenario import Scenario

TOKEN_SPECULATION = "token_speculation"


def baseline_of(strategies: Sequence[str]) -> str:
    """The row that all others are compared with."""
    return TOKEN_SPECULATION if TOKEN_SPECULATION in strategies else "strong_only"


def plain_case(case: Case) -> Case:
    """The same case with a strong model that decodes one token a pass."""
    site = case.sites[Role.STRONG]
    assert isinstance(site.server, Deployment)
    plain = replace(site, server=replace(site.server, speculation=None))
    return replace(case, sites={**case.sites, Role.STRONG: plain})


def with_baseline(scenario: Scenario) -> Scenario:
    """The scenario with `strong_only` first where it names no baseline of its own: every comparison needs it."""
    if "strong_only" in scenario.strategies:
        return scenario
    return replace(scenario, strategies=("strong_only", *scenario.strategies))
