"""Critical values, put back into the scenario, give a ratio of one."""

from __future__ import annotations

import pytest

from simulator.critical import crossing, curved_crossing

CASES = [("llama-a100", 4), ("edge-cloud", 4), ("autonomous-h200", 3), ("llama-a100", 24)]


@pytest.mark.parametrize(("name", "n"), CASES)
def test_at_a_critical_value_the_ratio_is_one(name, n, planned, small, central_ratio):
    """Up to eight tasks are evaluated whole; of 24 every third, and what was measured on those is scaled to all."""
    found = planned(name, f"workload.n={n}")
    tried = {}
    for objective, v in found.verdicts.items():
        for key, value in v.critical.items():
            if value is not None and objective in ("time", "traffic", "flops", "money"):
                tried[objective, v.strategy, key] = value
    assert any(key == "acceptance" for _, _, key in tried) or name == "edge-cloud"
    for (objective, strategy, key), value in tried.items():
        back = small(name, f"workload.n={n}").with_(**{key: value})
        off = abs(central_ratio(back, strategy, objective) - 1.0)
        limit = {"acceptance": 1e-3, "rtt_s": 1e-6}.get(key, 0.015 if n <= 8 else 0.03)
        assert off < limit, (objective, strategy, key, value)


def test_acceptance_at_the_edge_holds_for_a_law_by_position_too(planned, small, central_ratio):
    by_position = "protocol.acceptance_by_position=[0.8, 0.93]"
    found = planned("llama-a100", by_position)
    edge = found.verdicts["time"].critical["acceptance"]
    assert 0 < edge < 1
    both = small("llama-a100", by_position).with_(acceptance=edge)
    strategy = found.verdicts["time"].strategy
    assert central_ratio(both, strategy, "time") == pytest.approx(1.0, abs=1e-3)


def test_crossings_of_known_curves():
    x = [0.0, 1.0, 2.0, 4.0]
    assert crossing(x, [2.0, 1.0, -1.0, -2.0]) == pytest.approx(1.5)
    assert crossing(x, [2.0, 1.0, 1.0, 2.0]) is None
    assert crossing(x, [0.0, 1.0, 1.0, 2.0]) == 0.0
    assert crossing(x, [1e300, 1e300, -1e300, -1e300]) == pytest.approx(1.5)
    parabola = [v * v - 2.0 for v in x]
    assert curved_crossing(x, parabola) == pytest.approx(2**0.5)
    assert curved_crossing(x, [-p for p in parabola]) == pytest.approx(2**0.5)
    assert curved_crossing(x[:2], [1.0, -1.0]) == pytest.approx(0.5)
