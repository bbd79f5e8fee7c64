"""Commands from outside, as the contract words them: keys, exactly one document, the same bytes twice."""

from __future__ import annotations

import json

import pytest

STEP = ["step", "--model", "Qwen/Qwen3.5-4B", "--hardware", "h200", "--weight-dtype", "bf16"]

CASES = {
    "doctor": (["doctor"], {"checks"}),
    "hardware list": (["hardware", "list"], set()),
    "hardware": (["hardware"], set()),
    "hardware show": (
        ["hardware", "show", "h200"],
        {
            "name",
            "peak_flops_per_s",
            "memory_bytes",
            "bandwidth_bytes_per_s",
            "ridge_flops_per_byte",
            "sources",
        },
    ),
    "models list": (["models", "list"], set()),
    "models": (["models"], set()),
    "models show": (
        ["models", "show", "Qwen/Qwen3.5-4B"],
        {"n_params", "n_active_params", "kv_bytes_per_token", "state_bytes_per_sequence", "n_layers", "layers"},
    ),
    "scenario keys": (["scenario", "keys"], {"keys"}),
    "step": (
        [*STEP, "--prefill", "512@1000", "--decode", "2@1000", "--decode", "1@4000"],
        {"time_s", "low_s", "high_s", "flops", "bytes", "bound", "ops"},
    ),
    "plan": (
        ["plan", "retail-h200"],
        {"scenario", "strategies", "ratios_to_strong_only", "verdicts", "recommended", "provenance"},
    ),
}


@pytest.mark.parametrize(("args", "keys"), CASES.values(), ids=CASES)
def test_one_document_with_the_keys_of_the_contract(args, keys, run_cli):
    outcome = run_cli(*args, "--json")
    assert outcome.code == 0, outcome.err
    document = json.loads(outcome.out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert next(iter(document)) == "schema_version"
    assert keys <= set(document)


@pytest.mark.parametrize("args", [args for args, _ in CASES.values()], ids=CASES)
def test_the_same_bytes_twice(args, run_cli):
    for options in ([], ["--json"]):
        first, second = run_cli(*args, *options), run_cli(*args, *options)
        assert first.out == second.out
        assert first.out.strip()


def test_plan_rows_hold_values_with_intervals_or_a_reason(run_cli):
    document = json.loads(run_cli("plan", "retail-h200", "--json").out)
    objectives = ("time_s", "time_alone_s", "traffic_bytes", "flops", "energy_j", "usd", "success")
    names = [row["name"] for row in document["strategies"]]
    assert {"strong_only", "weak_only", "step_verification", "spec_agent"} <= set(names)
    for row in document["strategies"]:
        assert row["method"] in {"expected", "simulated"}
        for objective in (*objectives, "strong_output_tokens"):
            cell = row[objective]
            if cell is None or cell.get("value") is None:
                assert (cell or row).get("reason"), (row["name"], objective)
            else:
                assert cell["low"] <= cell["value"] <= cell["high"]
    for verdict in document["verdicts"].values():
        assert verdict["verdict"] in {"wins", "loses", "cannot_tell"}
        assert {"strategy", "ratio", "low", "high", "because", "critical"} <= set(verdict)
