"""Sizing against known answers: M/D/c through real scenarios, and exhaustive simulation."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from costmodel.protocol import Role
from hwprofiles.errors import InputError
from simulator.case import prepare
from simulator.run import simulate
from simulator.scenario_file import load_scenario
from simulator.size import size
from simulator.size_cost import FleetCost, RoleCost, Terms, fleet_cost, role_costs
from simulator.slo import Slo, parse_rate, parse_slo, parse_slos
from simulator.theory import mdc_wait_s

# One step of one task on an engine that runs one sequence at a time: constant service, so M/D/c.
CONSTANT = ["workload.n=1", "steps=1", "strong.max_seqs=1", "run.samples=16", "load.n_trajectories=600"]


@pytest.fixture(scope="module")
def constant():
    return load_scenario("autonomous-h200", CONSTANT)


@pytest.fixture(scope="module")
def service_s(constant):
    run = simulate(constant, "strong_only")
    assert run.counted()["busy_s"].std() < 1e-9
    return float(run.counted()["busy_s"].mean())


@pytest.mark.parametrize(("limit", "answer"), [(0.54 * 1.4, 3), (0.54 * 0.6, 4)], ids=["three", "four"])
def test_constant_service_gives_the_answer_of_the_table(constant, service_s, limit, answer):
    """M/D/3 at rho = 0.8 waits 0.54 services, M/D/4 at the same load 0.1: limits around the first ask for 3 and 4."""
    assert mdc_wait_s(2.4, 1.0, 3) == pytest.approx(0.54, rel=0.03)
    goal = f"mean queue_s <= {limit * service_s}"
    found = size(constant, [goal], 2.4 / service_s, strategies=["strong_only"], workers=1)
    assert found.best("strong_only").fleet.strong == answer
    assert found.recommended is found.best("strong_only")


@pytest.mark.slow
def test_within_one_replica_of_exhaustive_simulation():
    scenario = load_scenario("autonomous-h200", ["run.samples=16"])
    slo, rate = Slo(statistic="p95", metric="trajectory_s", limit_s=50.0), 0.6
    found = size(scenario, [str(slo)], rate, strategies=["strong_only", "spec_agent"])

    def meets(strategy, weak, strong):
        keys = {"weak.replicas": weak, "strong.replicas": strong, "load.n_trajectories": 240}
        case = prepare(scenario.with_(arrival_rate_per_s=rate, **keys))
        try:
            runs = [simulate(case, strategy, seed).counted()["time_s"].to_numpy() for seed in range(100, 108)]
        except InputError:
            return False
        return slo.of(np.concatenate(runs)) <= slo.limit_s

    strong = min(s for s in range(1, 6) if meets("strong_only", 1, s))
    assert abs(found.best("strong_only").fleet.strong - strong) <= 1
    pairs = [(w, s) for w, s in itertools.product(range(1, 5), range(1, 3)) if meets("spec_agent", w, s)]
    weak, strong = min(pairs, key=lambda p: p[0] + 8 * p[1])
    best = found.best("spec_agent").fleet
    assert (abs(best.weak - weak) <= 1, abs(best.strong - strong) <= 1) == (True, True)


@pytest.fixture(scope="module")
def sized(constant, service_s):
    goal = f"mean trajectory_s <= {3 * service_s}"
    return size(constant, [goal], 1.5 / service_s, strategies=["strong_only"], workers=1)


def test_the_document_has_the_keys_of_the_contract(sized):
    document = json.loads(json.dumps(sized.document(), allow_nan=False))
    assert {"fleets", "recommended", "strong_only", "slos", "rate_per_s", "scenario"} <= set(document)
    keys = {"strategy", "weak_replicas", "strong_replicas", "usd_per_h", "meets", "p95_s", "low", "high"}
    assert all(keys <= set(fleet) for fleet in document["fleets"])
    best = document["recommended"]
    assert best["low"] <= best["p95_s"] <= best["high"]
    assert best["weak_replicas"] == 0
    cheaper = [f for f in document["fleets"] if f["usd_per_h"] < best["usd_per_h"]]
    assert not any(f["meets"] for f in cheaper)


@pytest.mark.slow
def test_the_same_answer_twice(sized, constant, service_s):
    again = size(
        constant, [f"mean trajectory_s <= {3 * service_s}"], 1.5 / service_s, strategies=["strong_only"], workers=2
    )
    assert again.document() == sized.document()


def test_alternatives_budgets_and_prices(constant, service_s, sized):
    goal = [f"mean trajectory_s <= {3 * service_s}"]
    dear = size(
        constant,
        goal,
        1.5 / service_s,
        strategies=["strong_only"],
        vary=["strong.usd_per_h=1.0,2.0", "strong.weight_dtype=fp8,nonsense"],
        terms=Terms(usd_per_kwh=0.2, pue=1.5),
        workers=1,
    )
    assert [f["settings"]["strong.weight_dtype"] for f in dear.failed] == ["nonsense"] * 2
    best = dear.recommended
    assert best.settings["strong.usd_per_h"] == 1.0
    replicas = best.fleet.strong
    power = best.cost.mean_w / 1000 * 0.2
    assert best.cost.usd_per_h == pytest.approx(8 * replicas + power)
    assert best.cost.peak_w == pytest.approx(1.5 * 8 * 700 * replicas)
    none = size(constant, goal, 1.5 / service_s, strategies=["strong_only"], terms=Terms(max_power_w=5000), workers=1)
    assert none.recommended is None
    assert "within the budgets" in none.document()["strategies"][0]["reason"]


def test_what_a_fleet_costs():
    costs = {Role.WEAK: RoleCost(usd_per_h=2.0, idle_w=50, peak_w=300)}
    found = fleet_cost(
        costs, {Role.WEAK: 3}, Terms(usd_per_kwh=0.1, pue=1.2), rate_per_s=0.5, energy_j=400, api_usd=0.01
    )
    assert found == FleetCost(
        usd_per_h=pytest.approx(6 + 18 + 1.2 * 350 / 1000 * 0.1), peak_w=pytest.approx(1080), mean_w=pytest.approx(420)
    )


def test_capital_is_spread_over_years(constant):
    case = prepare(constant)
    owned = role_costs(case, (Role.STRONG,), Terms(capex_usd={Role.STRONG: 35064.0}, lifetime_years=4))
    assert owned[Role.STRONG].usd_per_h == pytest.approx(8 * 1.0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"pue": 1.3}, "no effect"),
        ({"pue": 0.5, "usd_per_kwh": 0.1}, "1 to 10"),
        ({"max_power_w": -1}, "positive"),
        ({"usd_per_kwh": float("nan")}, ">= 0"),
        ({"lifetime_years": 3}, "purchase price"),
        ({"capex_usd": {Role.WEAK: 10.0}}, "lifetime_years"),
    ],
)
def test_terms_that_cannot_be(given, words):
    with pytest.raises(InputError, match=words):
        Terms(**given)


def test_objectives_and_rates_are_read_strictly():
    assert parse_slo("p95 trajectory_s <= 60") == Slo(statistic="p95", metric="trajectory_s", limit_s=60.0)
    assert parse_slo(" mean  queue_s<=1e-1 ").limit_s == 0.1
    assert (parse_rate("2/s"), parse_rate("120 / min"), parse_rate("7200/h")) == (2.0, 2.0, 2.0)
    assert Slo(statistic="p50", metric="queue_s", limit_s=1).of(np.array([1.0, np.inf])) == np.inf


def test_who_fails_meets_no_objective_and_spoils_no_other():
    """Three of ten never end: the median and p90 of [1 .. 7, inf, inf, inf] are 5.5 and infinite."""
    times = np.append(np.arange(1.0, 8.0), [np.inf] * 3)
    at = {s: Slo(statistic=s, metric="trajectory_s", limit_s=60.0).of(times) for s in ("p50", "p90", "mean")}
    assert at == {"p50": 5.5, "p90": np.inf, "mean": np.inf}


def test_a_fleet_whose_trajectories_fail_is_not_enough():
    """One tool run in twenty hangs for ever: tasks have no p95 then, however fast the rest; a median they have."""
    scenario = load_scenario("autonomous-h200", ["run.samples=16", "load.n_trajectories=60", "tools.hang=0.05"])
    found = size(scenario, ["p95 trajectory_s <= 300"], 0.05, strategies=["strong_only"], workers=1)
    (strong,) = found.sized
    assert (strong.best, strong.fleets) == (None, ())
    assert "trajectories fail there" in strong.reason
    found = size(scenario, ["p50 trajectory_s <= 300"], 0.05, strategies=["strong_only"], workers=1)
    best = found.best("strong_only")
    assert (best.judged.meets, best.judged.p95) == (True, None)
    json.dumps(found.document(), allow_nan=False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("p95 trajectory_s < 60", "expected"),
        ("p95 trajectory_s >= 60", "expected"),
        ("p96 trajectory_s <= 60", "did you mean 'p9"),
        ("p95 trajectoris_s <= 60", "did you mean 'trajectory_s'"),
        ("p95 trajectory_s <= 0", "positive"),
        ("p95 trajectory_s <= 1e999", "positive"),
        ("p95 trajectory_s <= 6e", "positive"),
        ("", "expected"),
    ],
)
def test_objectives_that_cannot_be(text, words):
    with pytest.raises(InputError, match=words):
        parse_slo(text)


def test_further_refusals(constant):
    for text in ("2", "2/d", "0/s", "/s", "-1/s"):
        with pytest.raises(InputError, match="--rate"):
            parse_rate(text)
    with pytest.raises(InputError, match="one limit for each"):
        parse_slos(["p95 trajectory_s <= 60", "p95 trajectory_s <= 50"])
    with pytest.raises(InputError, match="needs the rate"):
        size(constant, ["p95 trajectory_s <= 60"])
    with pytest.raises(InputError, match="two sources"):
        size(constant.with_(arrival_rate_per_s=1), ["p95 trajectory_s <= 60"], "1/s")
    with pytest.raises(InputError, match="strategy of the scenario"):
        size(constant, ["p95 trajectory_s <= 60"], "1/s", strategies=["spec_agnet"])


def test_the_command(run_cli):
    line = ["size", "autonomous-h200", *(x for s in CONSTANT for x in ("--set", s)), "--strategy", "strong_only"]
    done = run_cli(*line, "--slo", "p95 trajectory_s <= 1", "--rate", "1/s", "--workers", 1)
    assert done.code == 0
    assert "misses an objective even on idle engines" in done.out
    assert "recommended: none" in done.out
    assert run_cli(*line, "--slo", "p95 trajectory_s < 1", "--rate", "1/s").code == 2
