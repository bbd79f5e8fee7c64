"""Drafted tokens in a plan: part of every strategy, a row of their own, and never a baseline that nobody would run."""

from __future__ import annotations

import pytest

from costmodel.deployment import deploy
from costmodel.speculation import token_speculation
from hwprofiles.errors import InputError
from simulator.plan import plan
from simulator.scenario_file import load_scenario
from simulator.sides import side_document

SMALL = ["workload.n=4", "run.samples=16"]
DECODE = 'strong.decode={method="mtp", length=3, acceptance=0.7}'
ROWS = 'strategies=["strong_only", "token_speculation", "spec_agent"]'


@pytest.fixture(scope="module")
def plans():
    options = {"plain": [], "drafting": [DECODE], "rows": [DECODE, ROWS]}
    return {name: plan(load_scenario("retail-h200", [*SMALL, *more])) for name, more in options.items()}


def time_of(found, strategy):
    return found.predictions[strategy]["time_s"].value


def test_with_the_option_strong_only_drafts_too(plans):
    assert time_of(plans["drafting"], "strong_only") < 0.8 * time_of(plans["plain"], "strong_only")
    assert plans["drafting"].document()["baseline"] == "strong_only"
    # the reviewed strategy gains less against a strong model that drafts tokens
    ratios = [plans[name].ratios["spec_agent"]["time"].value for name in ("plain", "drafting")]
    assert ratios[1] > ratios[0]


def test_as_a_row_it_is_the_baseline_and_strong_only_is_plain(plans):
    rows, drafting, plain = plans["rows"], plans["drafting"], plans["plain"]
    assert rows.document()["baseline"] == "token_speculation"
    assert time_of(rows, "token_speculation") == pytest.approx(time_of(drafting, "strong_only"), rel=1e-12)
    assert time_of(rows, "strong_only") == pytest.approx(time_of(plain, "strong_only"), rel=1e-12)
    assert rows.ratios["spec_agent"]["time"].value == pytest.approx(
        drafting.ratios["spec_agent"]["time"].value, rel=1e-12
    )
    assert rows.ratios["strong_only"]["time"].value > 1.2
    assert rows.verdicts["time"].ratio == rows.ratios["spec_agent"]["time"]
    success = [rows.predictions[n]["success"].value for n in ("strong_only", "token_speculation")]
    assert success[0] == success[1]


@pytest.mark.parametrize("decode", [[], ['strong.decode={method="mtp", length=0, acceptance=0.7}']])
def test_the_row_needs_the_option(decode):
    with pytest.raises(InputError, match=r"needs \[strong\.decode\]"):
        load_scenario("retail-h200", [*SMALL, ROWS, *decode])


def test_an_option_behind_an_api_is_refused():
    with pytest.raises(InputError, match=r"strong\.decode has no effect"):
        load_scenario("edge-cloud", [DECODE])


@pytest.mark.parametrize(
    "options",
    [
        {"method": "mtp", "length": 2, "acceptance": 0.6},
        {"method": "draft", "length": 4, "acceptance": 0.5, "draft_model": "Qwen/Qwen3.5-4B"},
        {
            "method": "draft",
            "length": 1,
            "acceptance": 0.5,
            "draft_model": "Qwen/Qwen3.5-4B",
            "draft_weight_dtype": "fp8",
        },
    ],
)
def test_a_deployment_becomes_keys_and_those_the_same_deployment(options):
    name = "Qwen/Qwen3.5-397B-A17B"
    how = {"n_devices": 8, "weight_dtype": "fp8", "expert_parallel": 8, "memory_share": 0.8}
    dep = deploy(name, "h200", speculation=token_speculation(name, **options), **how)
    found = side_document("strong", dep)
    assert found["decode"] == options
    assert {k: found[k] for k in how} == how


def test_under_load_each_row_decodes_its_own_way():
    loaded = ["load.concurrency=2", "run.seeds=2", "load.n_trajectories=4"]
    found = plan(load_scenario("retail-h200", [*SMALL, DECODE, ROWS, *loaded]))
    assert time_of(found, "token_speculation") < time_of(found, "strong_only")
    assert found.document()["baseline"] == "token_speculation"
