"""Plans under load: simulated, paired, never faster than alone, and reserved devices shared by the agents."""

from __future__ import annotations

import pytest

from costmodel.cost import PHASES
from hwprofiles.errors import InputError
from simulator.plan import plan

LOAD = ("concurrency=4", "load.n_trajectories=12", "run.seeds=2", "weak.usd_per_h=2", "strong.usd_per_h=3")
RARE = ("arrival_rate_per_s=0.0005", "load.n_trajectories=60", "run.seeds=2", "weak.usd_per_h=2", "strong.usd_per_h=3")


def test_four_agents_wait_for_each_other(planned):
    found = planned("llama-a100", *LOAD)
    assert {s["method"] for s in found.document()["strategies"]} == {"simulated"}
    for strategy, row in found.predictions.items():
        assert row["time_s"].value >= 0.999 * row["time_alone_s"].value, strategy
        assert row["time_s"].low <= row["time_s"].value <= row["time_s"].high
    assert (
        found.predictions["strong_only"]["time_s"].value > 1.02 * found.predictions["strong_only"]["time_alone_s"].value
    )
    queue = {r["strategy"] for r in found.document()["phases"] if r["phase"] == "queue" and r["time_s"] > 0}
    assert "strong_only" in queue


def test_shared_sweeps_lower_the_traffic_of_each(planned):
    """Four agents share weight sweeps of decode steps, so each moves less than alone."""
    alone, shared = planned("llama-a100"), planned("llama-a100", *LOAD)
    for strategy in ("strong_only", "weak_only"):
        mine, theirs = (p.predictions[strategy]["traffic_bytes"].value for p in (shared, alone))
        assert mine < theirs


def test_ratios_under_load_are_paired(planned):
    found = planned("llama-a100", *LOAD)
    for row in found.ratios.values():
        r = row["time"]
        assert r.low <= r.value <= r.high
    mine, theirs = (found.predictions[s]["time_s"] for s in ("spec_agent", "strong_only"))
    assert found.ratios["spec_agent"]["time"].value == pytest.approx(mine.value / theirs.value, rel=1e-12)


def test_the_ledger_under_load_sums_to_the_time(planned):
    found = planned("llama-a100", *LOAD)
    rows = found.document()["phases"]
    assert {r["phase"] for r in rows} <= set(PHASES)
    for strategy, p in found.predictions.items():
        total = sum(r["time_s"] for r in rows if r["strategy"] == strategy)
        assert total == pytest.approx(p["time_s"].value, rel=1e-9)


def test_agents_at_work_together_share_the_reserved_devices(planned):
    """Four agents hold the fleet for time / 4 each."""
    row = planned("llama-a100", *LOAD).predictions["spec_agent"]
    assert row["usd"].value == pytest.approx((2 + 4 * 3) / 3600 * row["time_s"].value / 4, rel=1e-12)


def test_rare_arrivals_are_as_fast_as_alone(planned):
    """One arrival in 2000 s, 15 s each: the chance to meet another is below 2 %. What is left is which tasks and
    verdicts the two seeds draw."""
    found = planned("llama-a100", *RARE)
    for strategy, row in found.predictions.items():
        assert row["time_s"].value == pytest.approx(row["time_alone_s"].value, rel=0.06), strategy


def test_an_open_load_reserves_the_devices_between_arrivals(planned):
    """At 0.0005 arrivals a second every trajectory pays 2000 s of the whole fleet, whatever it takes itself."""
    found = planned("llama-a100", *RARE)
    for strategy, usd_per_h in (("strong_only", 12), ("weak_only", 2), ("spec_agent", 14)):
        p = found.predictions[strategy]["usd"]
        assert p.value == pytest.approx(usd_per_h * 2000 / 3600, rel=1e-12)
        assert p.high - p.low < 1e-9


def test_a_load_that_finishes_nothing_says_so(small):
    from simulator.plan import plan

    with pytest.raises(InputError, match=r"run\.horizon_s"):
        plan(small("llama-a100", "concurrency=2", "run.horizon_s=0.001", "run.seeds=1"))


def test_under_load_a_critical_value_belongs_to_the_loaded_ratio(planned):
    """The edge in acceptance lies below the scenario's own acceptance exactly where the loaded central ratio wins."""
    found = planned("llama-a100", *LOAD, "acceptance=0.9")
    for objective in ("time", "traffic", "energy", "money"):
        v = found.verdicts[objective]
        edge = v.critical["acceptance"]
        if edge is not None:
            assert (edge < 0.9) == (v.ratio.value < 1), objective
    alone = planned("llama-a100", "acceptance=0.9")
    edges = [p.verdicts["time"].critical["acceptance"] for p in (alone, found)]
    assert (edges[0] < edges[1]) == (alone.verdicts["time"].ratio.value < found.verdicts["time"].ratio.value)


def test_more_agents_never_make_anybody_faster(planned):
    times = [
        planned("llama-a100", f"concurrency={n}", *LOAD[1:]).predictions["strong_only"]["time_s"].value for n in (2, 8)
    ]
    assert times == sorted(times)


def test_the_runs_are_told_before_they_begin(small):
    said = []
    plan(small("llama-a100", *LOAD), progress=said.append)
    assert said[:2] == ["simulating strong_only, seed 1 of 2 ...", "simulating strong_only, seed 2 of 2 ..."]
    assert "simulating spec_agent, seed 2 of 2 ..." in said
