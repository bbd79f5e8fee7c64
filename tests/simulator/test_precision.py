"""Seeds until a wanted precision: a stated schedule of looks, intervals corrected for them, paired differences."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from hwprofiles.errors import InputError
from simulator.case import prepare
from simulator.replication import (
    difference_interval,
    is_precise,
    level_of,
    looks,
    mean_interval,
    ratio_interval,
    replicate,
)
from simulator.scenario_file import load_scenario
from simulator.scenario_goals import Run

LOADED = ("concurrency=3", "load.n_trajectories=4", "workload.n=3")


def runs_of(times):
    """Runs that only know their mean time."""
    found = [{"time_s": {"mean": t}, "mean": {}} for t in times]
    return [SimpleNamespace(summary=lambda s=s: s) for s in found]


def test_without_a_precision_there_is_one_look_and_no_correction():
    assert looks(Run(seeds=7)) == (7,)
    assert level_of(Run(seeds=7)) == 0.9
    assert level_of(Run(seeds=7, confidence=0.95)) == 0.95


def test_looks_are_half_as_many_more_each_time():
    run = Run(seeds=4, precision=0.1, seeds_max=20)
    assert looks(run) == (4, 6, 9, 13, 19, 20)
    assert level_of(run) == pytest.approx(1 - 0.1 / 6)
    assert looks(Run(seeds=60, precision=0.1)) == (60,)


def test_the_run_stops_as_soon_as_everything_is_precise():
    run = Run(seeds=4, precision=0.05, seeds_max=50)
    base = [10.0, 10.1, 9.9, 10.0]
    assert is_precise(run, {"strong_only": runs_of(base), "spec_agent": runs_of([0.5 * t for t in base])})
    noisy = [5.0, 9.0, 1.0, 6.0]
    assert not is_precise(run, {"strong_only": runs_of(base), "spec_agent": runs_of(noisy)})
    assert not is_precise(run, {"strong_only": runs_of([None, *base[1:]])})


def test_stopping_early_keeps_the_coverage():
    """600 experiments that stop when the interval looks narrow: it holds the mean at least 90 % of the time."""
    rng = np.random.default_rng(2)
    run = Run(seeds=3, precision=0.2, seeds_max=15)
    level, naive, corrected = level_of(run), 0, 0
    for _ in range(600):
        x = rng.exponential(1.0, size=15) + 1.0
        for n in looks(run):
            found = mean_interval(x[:n].tolist(), level)
            if found.high - found.low <= 2 * 0.2 * found.value or n == 15:
                corrected += found.low <= 2.0 <= found.high
                break
        for n in looks(run):
            found = mean_interval(x[:n].tolist(), 0.9)
            if found.high - found.low <= 2 * 0.2 * found.value or n == 15:
                naive += found.low <= 2.0 <= found.high
                break
    assert corrected / 600 >= 0.9
    assert naive / 600 < 0.9


def test_differences_are_paired():
    base = [1.0, 10.0, 100.0]
    found = difference_interval(runs_of([t + 0.5 for t in base]), runs_of(base), "time_s")
    assert found.value == pytest.approx(0.5)
    assert found.high - found.low == pytest.approx(0, abs=1e-9)
    assert difference_interval(runs_of([None, 1.0]), runs_of([1.0, 1.0]), "time_s") is None


def test_a_higher_confidence_is_wider():
    x = [1.0, 2.0, 4.0]
    assert mean_interval(x, 0.95).high > mean_interval(x).high
    assert ratio_interval(runs_of(x), runs_of([1.0, 1.0, 1.0]), "time_s", 0.95).high > math.exp(0.5)


def test_common_random_numbers_narrow_the_ratio():
    """The paired interval of the ratio is narrower than what two unpaired means would give."""
    case = prepare(load_scenario("llama-a100", [*LOADED, "run.seeds=5", "tools.law=lognormal", "tools.sigma=1.5",
                                                "tools.latency_s=5"]))  # fmt: skip
    runs = replicate(case, ("strong_only", "spec_agent"))
    paired = ratio_interval(runs["spec_agent"], runs["strong_only"], "time_s")
    mixed = ratio_interval(runs["spec_agent"], [*runs["strong_only"][2:], *runs["strong_only"][:2]], "time_s")
    assert paired.high - paired.low < mixed.high - mixed.low


def test_precision_adds_seeds_and_keeps_the_first_ones():
    lines = [*LOADED, "run.seeds=2", "run.seeds_max=5"]
    rough = replicate(prepare(load_scenario("llama-a100", [*lines, "run.precision=0.9"])), ("strong_only",))
    fine = replicate(prepare(load_scenario("llama-a100", [*lines, "run.precision=0.0001"])), ("strong_only",))
    assert (len(rough["strong_only"]), len(fine["strong_only"])) == (2, 5)
    assert fine["strong_only"][0].trajectories.equals(rough["strong_only"][0].trajectories)


def test_the_command_says_what_was_reached(run_cli):
    sets = [x for line in (*LOADED, "run.seeds=2", "run.seeds_max=3") for x in ("--set", line)]
    found = run_cli("simulate", "llama-a100", "--strategy", "strong_only", *sets, "--precision", "1e-6", "--json")
    assert found.code == 0
    document = json.loads(found.out)
    assert document["load"]["kind"] == "closed"
    assert document["interval"] == {
        "confidence": 0.9,
        "level_of_each": pytest.approx(0.95),
        "correction": "Bonferroni over 2 possible looks",
        "seeds": 3,
        "precision": 1e-6,
        "reached": False,
    }
    text = run_cli("simulate", "llama-a100", "--strategy", "strong_only", *sets, "--precision", "1e-6").out
    assert "run.precision = 1e-06 was not reached with 3 seeds" in text


def test_a_precision_out_of_range_is_refused():
    with pytest.raises(InputError, match=r"run.precision"):
        load_scenario("llama-a100", ["run.precision=0"])
