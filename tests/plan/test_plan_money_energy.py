"""Money and energy, by hand; what cannot be known is null with its reason."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.protocol import Role
from simulator.plan import plan

# Prices of one's own, so that the arithmetic here does not follow the bundled price of the day.
PRICES = ("weak.usd_per_h=2", "strong.usd_per_h=3")
DEVICES = {"strong_only": 4 * 3, "weak_only": 2, "step_verification": 2 + 4 * 3, "spec_agent": 2 + 4 * 3}


def test_dedicated_money_is_every_reserved_device_for_the_wall_time(planned):
    found = planned("llama-a100", *PRICES)
    for strategy, usd_per_h in DEVICES.items():
        row = found.predictions[strategy]
        assert row["usd"].value == pytest.approx(usd_per_h / 3600 * row["time_s"].value, rel=1e-12)


def test_replicas_are_reserved_too(planned):
    found = planned("llama-a100", *PRICES, "weak.replicas=3")
    row = found.predictions["spec_agent"]
    assert row["usd"].value == pytest.approx((3 * 2 + 4 * 3) / 3600 * row["time_s"].value, rel=1e-12)


def test_shared_money_is_the_busy_share_over_the_target_utilisation(planned):
    found = planned("llama-a100", *PRICES, "objective.money=shared", "objective.target_utilisation=0.5")
    for strategy, o in found.outcomes.items():
        busy = {role: float(o.central.busy_s[role][0]) for role in Role}
        usd = (2 * busy[Role.WEAK] + 4 * 3 * busy[Role.STRONG]) / 3600 / 0.5
        assert found.predictions[strategy]["usd"].value == pytest.approx(usd, rel=1e-12)
    busy_s = sum(float(found.outcomes["spec_agent"].central.busy_s[r][0]) for r in Role)
    assert busy_s < found.predictions["spec_agent"]["time_s"].value


def test_energy_is_idle_power_for_the_wall_time_and_the_ledger_above_it(planned):
    found = planned("llama-a100")
    for strategy, o in found.outcomes.items():
        above = float(o.central.column("energy_j")[0])
        idle_w = 0.0
        for role in Role:
            if strategy in (f"{role}_only", "step_verification", "spec_agent"):
                server = found.case.sites[role].server
                idle_w += (
                    server.efficiency.factors["idle_w_share"].value * server.hardware.tdp_w.value * server.n_devices
                )
        expected = above + idle_w * found.predictions[strategy]["time_s"].value
        assert 0 < above < expected
        assert found.predictions[strategy]["energy_j"].value == pytest.approx(expected, rel=1e-12)


def test_no_average_power_above_the_limit_of_the_devices(planned):
    """Sanity of the joules per FLOP and byte: a device cannot draw more than its limit, on average over the run."""
    for name in ("llama-a100", "retail-h200", "autonomous-h200"):
        found = planned(name)
        limit = sum(found.case.sites[r].server.hardware.tdp_w.value * found.case.devices(r) for r in Role)
        for row in found.predictions.values():
            assert row["energy_j"].value < limit * row["time_s"].value


def test_an_api_hides_its_bytes_flops_and_joules(planned):
    found = planned("edge-cloud")
    for strategy in ("strong_only", "step_verification", "spec_agent"):
        for column, word in (("traffic_bytes", "traffic"), ("flops", "flops"), ("energy_j", "energy")):
            assert found.predictions[strategy][column] is None
            assert "API anthropic/claude-sonnet-4-6 cannot be known" in found.reasons[strategy][column]
            assert found.ratios["spec_agent"][word] is None
            assert found.verdicts[word].verdict == "cannot_tell"
            assert found.verdicts[word].because == (found.reasons["strong_only"][column],)
        assert found.predictions[strategy]["usd"].value > 0
    assert found.predictions["weak_only"]["traffic_bytes"].value > 0
    assert "flops" not in found.reasons["weak_only"]


def test_an_api_is_paid_by_tokens_and_not_by_the_hour(planned):
    """strong_only reserves nothing: its money does not depend on its time, and is exact."""
    found = planned("edge-cloud")
    p = found.predictions["strong_only"]["usd"]
    assert p.high - p.low <= 1e-12 * p.value
    free = planned("edge-cloud", "strong.prices={input=0, cached=0, cache_write=0, output=0}")
    assert free.predictions["strong_only"]["usd"].value == 0
    assert free.ratios["spec_agent"]["money"] is None  # nothing divided by nothing
    assert "zero" in free.verdict("money")


def test_a_device_without_price_or_power_limit_says_so(small):
    """The M3 Max has neither a rental price nor a published power limit."""
    found = plan(small("llama-a100", "weak.hardware=m3-max", "strong.usd_per_h=1"))
    for strategy in ("weak_only", "spec_agent", "step_verification"):
        assert found.predictions[strategy]["usd"] is None
        assert found.reasons[strategy]["usd"] == "no price for m3-max; set weak.usd_per_h"
        assert found.predictions[strategy]["energy_j"] is None
        assert "power limit" in found.reasons[strategy]["energy_j"]
    assert found.predictions["strong_only"]["usd"].value > 0
    assert found.predictions["weak_only"]["traffic_bytes"].value > 0
    priced = plan(small("llama-a100", "weak.hardware=m3-max", "strong.usd_per_h=1", "weak.usd_per_h=0.1"))
    assert priced.predictions["spec_agent"]["usd"].value > 0


def test_money_splits_by_device_and_bill(planned):
    found = planned("edge-cloud")
    o = found.outcomes["spec_agent"]
    from simulator.outcome import objective_terms

    terms = objective_terms(found.case, o, "money", central=True, samples={})
    assert set(terms) == {"API", "weak devices"}
    assert float(np.ravel(terms["API"])[0]) == pytest.approx(float(o.central.column("api_usd")[0]))
