"""The acceptance a scenario stands on: its own word, what [quality] implies, or the prior."""

from __future__ import annotations

import math
from functools import lru_cache

from costmodel.acceptance import PRIOR_LAW, PRIOR_MEAN, AcceptanceLaw, logit
from costmodel.quality import implied_acceptance
from hwprofiles.errors import ProfileError
from simulator.scenario import Scenario
from simulator.scenario_goals import HAZARDS, Quality
from simulator.uncertain import Uncertain


@lru_cache(maxsize=1)
def prior() -> Uncertain:
    """The acceptance prior when nothing is known."""
    value, low, high = PRIOR_MEAN
    source = (
        "agreement of recorded model pairs (0.81 to 0.96 per call) and of a model with its own rerun (0.87 to 0.93)"
    )
    return Uncertain(value=value, low=low, high=high, tier="assumed", source=source)


def stated_acceptance(scenario: Scenario) -> tuple[AcceptanceLaw, Uncertain, str]:
    """The acceptance law, its mean, and the rung it stands on: prior, [quality], measured, or the scenario's word."""
    p, q = scenario.protocol, scenario.quality
    by_position = p.acceptance_by_position
    if p.acceptance is None and by_position is None and _says_hazards(q):
        return AcceptanceLaw(), _implied(q), "implied by [quality]"
    if p.acceptance is None and by_position is None:
        return (
            PRIOR_LAW,
            prior(),
            (
                "prior: nothing of this workload has been measured "
                "(writes are kept less often, and so is a segment's first step)"
            ),
        )
    shape = (
        AcceptanceLaw() if by_position is None else AcceptanceLaw(position_logits=tuple(logit(x) for x in by_position))
    )
    if p.acceptance is None:
        assert by_position is not None
        mean = sum(by_position) / len(by_position)
        return shape, Uncertain(value=mean, low=mean, high=mean, source="scenario: acceptance_by_position"), "scenario"
    band = p.acceptance
    _agrees_with_quality(scenario, band, _says_hazards(q))
    return shape, band, f"{band.tier}: {band.source}"


def _says_hazards(q: Quality) -> bool:
    """Whether the scenario has hazards of its own, which imply an acceptance."""
    usual = Quality()
    return any(getattr(q, name) != getattr(usual, name) for name in HAZARDS)


def _implied(q: Quality) -> Uncertain:
    """Acceptance that the hazards of [quality] imply, their independent bands combined to first order."""
    names = ("weak_hazard", "detection", "false_reject")
    central = {name: getattr(q, name).value for name in names}
    value = float(implied_acceptance(**central))
    moves = [
        float(implied_acceptance(**{**central, name: getattr(getattr(q, name), end)})) - value
        for name in names
        for end in ("low", "high")
    ]
    down = math.sqrt(sum(m**2 for m in moves if m < 0))
    up = math.sqrt(sum(m**2 for m in moves if m > 0))
    low, high = max(0.0, value - down), min(1.0, value + up)
    return Uncertain(value=value, low=low, high=high, source="hazards of [quality]")


def _agrees_with_quality(scenario: Scenario, band: Uncertain, given: bool) -> None:
    """[quality] and acceptance are two sources for one thing unless they agree to 0.01."""
    if not given:
        return
    q = scenario.quality
    implied = float(implied_acceptance(q.weak_hazard.value, q.detection.value, q.false_reject.value))
    if abs(implied - band.value) > 0.01:
        raise ProfileError(
            f"[quality] implies acceptance {implied:.3f} and protocol.acceptance says {band.value:.3f}: "
            "two sources for one thing; give one or make them agree"
        )
