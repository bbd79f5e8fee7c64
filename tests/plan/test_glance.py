"""A plan at a glance stays close to the plan."""

import pytest

from hwprofiles.errors import InputError
from simulator.glance import Glancer
from simulator.plan import plan
from simulator.scenario_file import load_scenario


def test_a_glance_agrees_with_the_plan():
    scenario = load_scenario("autonomous-h200")
    full, quick = plan(scenario).ratios, Glancer().glance(scenario).ratios
    for name in full:
        for objective in ("time", "traffic", "flops", "energy"):
            a, b = full[name][objective], quick[name][objective]
            assert b.value == pytest.approx(a.value, rel=0.06)
            assert b.low == pytest.approx(a.low, rel=0.3)
            assert b.high == pytest.approx(a.high, rel=0.3)


def test_the_same_scenario_gives_the_same_glance_whatever_came_before():
    scenario = load_scenario("autonomous-h200")
    alone = Glancer().glance(scenario).document()
    busy = Glancer()
    busy.glance(scenario.with_(window=2))
    assert (
        busy.glance(scenario).ratios["spec_agent"]["time"].value
        == (alone["ratios_to_strong_only"]["spec_agent"]["time"]["value"])
    )


def test_a_scenario_that_cannot_be_compared_is_refused():
    with pytest.raises(InputError, match="ask for the full plan"):
        Glancer().glance(
            load_scenario(
                "retail-h200",
                [
                    'strategies=["strong_only", "token_speculation", "spec_agent"]',
                    'strong.decode={method="mtp", length=1, acceptance=0.8}',
                ],
            )
        )
