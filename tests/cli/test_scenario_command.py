"""`specroof scenario`: all keys with their meaning, the bundled scenarios, and what a check builds or refuses."""

from __future__ import annotations

import json
import tomllib

import pytest

from simulator.scenario import PARAMETERS
from simulator.scenario_file import all_keys, from_document, load_scenario, scenario_names

MINIMAL = {
    "weak": {"model": "Qwen/Qwen3.5-4B", "hardware": "h200"},
    "strong": {"model": "Qwen/Qwen3.5-397B-A17B", "hardware": "h200", "n_devices": 8, "weight_dtype": "fp8"},
    "workload": {"trace": "airline"},
}


@pytest.fixture
def check(run_cli):
    def run(*args):
        outcome = run_cli("scenario", "check", *args, "--json")
        assert outcome.code == 0, outcome.err
        return json.loads(outcome.out)

    return run


def test_keys_have_default_unit_tier_and_meaning(run_cli):
    rows = json.loads(run_cli("scenario", "keys", "--json").out)["keys"]
    assert [row["key"] for row in rows] == list(all_keys())
    for row in rows:
        assert {"key", "default", "required", "unit", "tier", "meaning", "parameter", "type"} <= set(row)
        assert row["meaning"]
        assert row["tier"] in {"datasheet", "measured", "fitted", "assumed"}
    assert {row["parameter"] for row in rows} - {None} == set(PARAMETERS)


def test_the_table_of_keys_has_every_key(run_cli):
    text = run_cli("scenario", "keys").out
    assert all(key in text for key in all_keys())


def test_defaults_that_are_shown_are_the_defaults_that_hold(run_cli):
    rows = json.loads(run_cli("scenario", "keys", "--json").out)["keys"]
    document = json.loads(json.dumps(MINIMAL))
    for row in rows:
        *section, name = row["key"].split(".")
        if row["default"] is not None and section != ["link"]:
            (document.setdefault(section[0], {}) if section else document).setdefault(name, row["default"])
    assert from_document(document, "all defaults") == from_document(MINIMAL, "none")


def test_list_names_the_bundled_ones(run_cli):
    rows = json.loads(run_cli("scenario", "list", "--json").out)["scenarios"]
    assert [row["name"] for row in rows] == scenario_names()
    assert all(row["title"] for row in rows)
    text = run_cli("scenario", "list").out
    assert all(name in text for name in scenario_names())


@pytest.mark.parametrize("name", scenario_names())
def test_bundled_scenarios_have_no_fault(name, check):
    found = check(name)
    assert found["scenario"]["title"] == load_scenario(name).title
    assert found["tasks"]["n"] > 0
    assert found["tasks"]["steps"] == found["workload"]["steps"]
    for site in found["models"].values():
        if "memory" in site:
            memory = site["memory"]
            assert memory["weight_bytes"] + memory["reserve_bytes"] + memory["cache_bytes"] == memory["usable_bytes"]
            assert memory["kv_cache_tokens"] >= site["longest_context_tokens"]
        else:
            assert site["usd_per_mtok"]["output"] > 0


def test_a_file_may_hold_the_least(check, tmp_path, run_cli):
    import tomli_w

    file = tmp_path / "least.toml"
    file.write_text(tomli_w.dumps(MINIMAL), encoding="utf-8")
    found = check(file)
    assert found["path"] == str(file)
    assert found["models"]["weak"]["label"] == "Qwen3.5-4B bf16 on 1 x h200"
    assert found["models"]["strong"]["memory"]["weight_bytes"] == pytest.approx(50e9, rel=0.01)  # 397e9 / 8
    assert found["acceptance"]["rung"].startswith("prior")
    assert "no fault found" in run_cli("scenario", "check", file).out


def test_the_effective_scenario_is_one_that_can_be_read_again(check):
    found = check("retail-h200", "--set", "acceptance=0.85", "--set", "window=6", "--set", "weak.hardware=h100")
    assert found["scenario"]["protocol"]["window"] == 6
    assert found["scenario"]["protocol"]["acceptance"] == 0.85
    assert found["models"]["weak"]["hardware"].startswith("h100")
    assert from_document(found["scenario"], "again").protocol.window == 6


def test_too_long_contexts_are_refused(run_cli):
    outcome = run_cli("scenario", "check", "retail-h200", "--set", "context_tokens=300000", "--json")
    assert (outcome.code, outcome.out) == (2, "")
    assert "the model takes 262144" in outcome.err


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["windw=4"], ["windw", "window"]),
        (["protocol.windw=4"], ["protocol.windw", "window"]),
        (["weak.model=Qwen/Qwen3.5-4"], ["Qwen/Qwen3.5-4B"]),
        (["workload.trace=retial"], ["retial", "retail"]),
        (["strong.n_devices=1"], ["strong", "does not fit"]),
        (["workload.trace=memory:gone-0123456789ab"], ["memory"]),
        (["load.concurrency=4", "load.arrival_rate_per_s=1"], ["two sources"]),
        (["effects.map.get_user_details=reed"], ["get_user_details", "read"]),
    ],
    ids=" ".join,
)
def test_a_fault_ends_with_2_and_one_line(settings, words, run_cli):
    outcome = run_cli("scenario", "check", "retail-h200", *(a for s in settings for a in ("--set", s)))
    assert (outcome.code, outcome.out) == (2, "")
    (line,) = outcome.err.splitlines()
    assert all(word in line for word in words), line


def test_a_fault_in_a_file_names_file_and_place(run_cli, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[weak]\nmodel = "Qwen/Qwen3.5-4B"\nhardwar = "h200"\n', encoding="utf-8")
    outcome = run_cli("scenario", "check", file)
    assert outcome.code == 2
    assert "mine.toml" in outcome.err
    assert "weak.hardwar" in outcome.err
    assert "hardware" in outcome.err
    assert tomllib.loads(file.read_text(encoding="utf-8"))["weak"]["hardwar"] == "h200"  # untouched
