"""APIs of a scenario: prices from a table or the scenario, each with its source; latency fitted from recorded calls."""

from __future__ import annotations

import builtins

import numpy as np
import pytest

from costmodel.protocol import Role
from hwprofiles.errors import InputError
from simulator.api_fit import Call, calls_of, fit_latency, read_calls
from simulator.case import prepare
from simulator.provenance import rows
from simulator.scenario_file import load_scenario
from simulator.workloads import workload

LATENCY = "strong.latency={request_s=1.0, output_token_s=0.01, input_token_s=0.001}"


def server(*settings):
    case = prepare(load_scenario("edge-cloud", ["workload.n=2", *settings]))
    return case.sites[Role.STRONG].server, case


def test_prices_come_from_the_offline_table_and_say_so():
    pytest.importorskip("genai_prices")
    found, case = server("strong.prices_from=genai-prices")
    assert found.input_usd == pytest.approx(3e-6)
    assert found.cached_usd == pytest.approx(0.3e-6)
    assert found.output_usd == pytest.approx(15e-6)
    assert "genai-prices" in found.price_source
    priced = [r for r in rows(case) if r["input"].endswith("usd_per_mtok")]
    assert len(priced) >= 3
    assert all("genai-prices" in r["source"] and "offline table" in r["source"] for r in priced)


def test_an_override_beats_the_table():
    found, case = server("strong.prices={output=1}")
    assert found.output_usd == pytest.approx(1e-6)
    sources = {r["input"].split(".")[-1]: r["source"] for r in rows(case) if r["input"].endswith("usd_per_mtok")}
    assert sources["output_usd_per_mtok"] == "scenario"
    assert "2026" in sources["input_usd_per_mtok"]


def test_another_model_needs_latency_and_prices():
    with pytest.raises(InputError, match='or give it latency, and prices or prices_from = "genai-prices"'):
        server("strong.api=openai/gpt-nothing")
    found, _ = server("strong.api=openai/gpt-nothing", LATENCY, "strong.prices={input=2, cached=0.5, output=8}")
    assert (found.input_usd, found.cached_usd, found.output_usd) == pytest.approx((2e-6, 0.5e-6, 8e-6))
    pytest.importorskip("genai_prices")
    other, _ = server("strong.api=openai/gpt-5", LATENCY, "strong.prices_from=genai-prices")
    assert other.output_usd > other.input_usd > 0
    with pytest.raises(InputError, match="is not in genai-prices"):
        server("strong.api=openai/gpt-nothing", LATENCY, "strong.prices_from=genai-prices")


def test_without_the_package_the_exit_is_3(monkeypatch, run_cli):
    real = builtins.__import__

    def absent(name, *args, **kwargs):
        if name == "genai_prices":
            raise ModuleNotFoundError("No module named 'genai_prices'", name="genai_prices")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    found = run_cli("plan", "edge-cloud", "--set", "strong.prices_from=genai-prices", "--set", "workload.n=2")
    assert found.code == 3
    assert "genai_prices" in found.err


def test_latency_of_ones_own_is_in_the_walk():
    """Per call: fixed + per new input token + per output token."""
    found, case = server(LATENCY)
    assert (found.request_s.value, found.output_token_s.value, found.input_token_s.value) == (1.0, 0.01, 0.001)
    names = {r["input"] for r in rows(case)}
    assert {"strong.request_s", "strong.input_token_s", "strong.output_token_s"} <= names


def recorded(n=300, *, slow=0.0, cached=True, seed=1):
    rng = np.random.default_rng(seed)
    out = []
    for i in range(n):
        sent, kept, new = int(rng.integers(2000, 9000)), int(rng.integers(0, 2000)), int(rng.integers(20, 400))
        seconds = 0.8 + 2e-4 * (sent - kept) + 0.012 * new
        seconds *= 20 if rng.random() < slow else rng.uniform(0.97, 1.03)
        out.append(Call(seconds, sent, new, kept if cached else None, "m", str(i // 10)))
    return out


def test_a_fit_finds_what_calls_were_made_of():
    fit = fit_latency(recorded(), "calls")
    assert fit.latency.request_s.value == pytest.approx(0.8, abs=0.05)
    assert fit.latency.input_token_s.value == pytest.approx(2e-4, rel=0.03)
    assert fit.latency.output_token_s.value == pytest.approx(0.012, rel=0.02)
    for band in (fit.latency.request_s, fit.latency.input_token_s, fit.latency.output_token_s):
        assert band.low <= band.value <= band.high
        assert band.tier == "fitted"
    assert fit.median_ape < 0.03


def test_a_few_stalled_calls_do_not_bend_the_line():
    """One call in twenty is twenty times as long: the line keeps its shape, its level becomes that of the mean."""
    calls = recorded(600, slow=0.05)
    fit = fit_latency(calls, "calls")
    share = fit.latency.output_token_s.value / fit.latency.input_token_s.value
    assert share == pytest.approx(0.012 / 2e-4, rel=0.05)
    kept = [c for c in calls if c.seconds <= 120]
    line = fit.latency
    fitted = [
        line.request_s.value + line.input_token_s.value * (c.input_tokens - c.cached_tokens)
        + line.output_token_s.value * c.output_tokens for c in kept
    ]  # fmt: skip
    assert sum(fitted) == pytest.approx(sum(c.seconds for c in kept), rel=1e-6)


def test_the_bundled_workload_can_be_fitted_or_says_why():
    calls = calls_of(workload("retail-gpt-4.1-mini"))
    if len(calls) >= 20:
        assert fit_latency(calls, "retail").latency.output_token_s.value > 0
    else:
        with pytest.raises(InputError, match="needs at least 20"):
            fit_latency(calls, "retail")


def test_the_command_reads_a_csv_and_writes_a_table(tmp_path, run_cli):
    import tomllib

    lines = ["seconds,input_tokens,output_tokens,cached_tokens,model,group"]
    lines += [
        f"{c.seconds},{c.input_tokens},{c.output_tokens},{c.cached_tokens},{c.model},{c.group}" for c in recorded()
    ]
    file = tmp_path / "calls.csv"
    file.write_text("\n".join(lines))
    found = run_cli("latency", file)
    assert found.code == 0
    table = tomllib.loads(found.out)["strong"]["latency"]
    assert table["output_token_s"]["value"] == pytest.approx(0.012, rel=0.02)
    scenario = tmp_path / "own.toml"
    scenario.write_text(load_scenario("edge-cloud", ["workload.n=2"]).to_toml() + "\n" + found.out)
    case = prepare(load_scenario(scenario))
    assert case.sites[Role.STRONG].server.request_s.value == table["request_s"]["value"]
    wrong = run_cli("latency", file, "--model", "n")
    assert (wrong.code, "unknown model of the calls" in wrong.err) == (2, True)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("seconds,input_tokens\n1,2\n", "column output_tokens is missing"),
        ("seconds,input_tokens,output_tokens,colour\n", "unknown column"),
        ("seconds,input_tokens,output_tokens\n1,x,3\n", "line 2"),
        ("seconds,input_tokens,output_tokens\n-1,2,3\n", "line 2"),
    ],
)
def test_a_wrong_table_of_calls_is_refused(tmp_path, text, fault):
    file = tmp_path / "calls.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=fault):
        read_calls(file)


def test_what_the_scenario_says_of_the_world_is_in_the_provenance():
    _, case = server("tools.failure=0.1", "strong.cache_ttl_s=300", "users.law=constant", "users.gap_s=5")
    found = {r["input"]: (r["value"], r["source"]) for r in rows(case)}
    assert found["tools.failure"] == (0.1, "scenario")
    assert found["strong.cache_ttl_s"] == (300.0, "scenario")
    assert found["users.gap_s"] == (5.0, "scenario")
