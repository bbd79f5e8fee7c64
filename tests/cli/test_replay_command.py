"""`specroof replay`: the document, its text, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

LINES = [{"timestamp": 100 * i, "input_length": 600, "output_length": 20, "hash_ids": [1, i]} for i in range(30)]
DEPLOYMENT = ("--model", "llama-3.1-8b", "--hardware", "h200")


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "requests.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in LINES), encoding="utf-8")
    return str(path)


def test_the_document_has_latencies_throughput_and_shares(run_cli, trace):
    outcome = run_cli("replay", trace, *DEPLOYMENT, "--replicas", "2", "--json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert found["requests"] == 30
    assert sum(found["requests_by_replica"]) == 30
    assert set(found["ttft_s"]) == {"mean", "p50", "p90", "p95", "p99"}
    assert 0 < found["ttft_s"]["p50"] < found["e2e_s"]["p50"]
    assert 0.5 < found["cached_share"] < 512 / 600
    assert found["output_tokens_per_s"] == pytest.approx(20 * found["requests_per_s"])


def test_a_closed_loop_and_a_rate_replace_the_recorded_times(run_cli, trace):
    alone = json.loads(run_cli("replay", trace, *DEPLOYMENT, "--concurrency", "1", "--json").out)
    assert alone["utilisation"][0] == pytest.approx(1.0, abs=0.15)  # the rest is host time
    drawn = [run_cli("replay", trace, *DEPLOYMENT, "--rate", "5", "--seed", s, "--json").out for s in ("1", "1", "2")]
    assert drawn[0] == drawn[1] != drawn[2]


def test_the_text_names_what_was_measured(run_cli, trace):
    outcome = run_cli("replay", trace, *DEPLOYMENT)
    assert outcome.code == 0
    for word in ("first token", "requests/s", "found in the cache"):
        assert word in outcome.out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--concurrency", "2", "--rate", "1"), "either --concurrency or --rate"),
        (("--seed", "1"), "without it nothing is random"),
        (("--router", "random"), "unknown router"),
        (("--replicas", "0"), "replicas"),
        (("--rate", "-1"), "rate must be finite"),
    ],
)
def test_options_that_cannot_be_are_refused(run_cli, trace, options, told):
    outcome = run_cli("replay", trace, *DEPLOYMENT, *options)
    assert outcome.code == 2
    assert told in outcome.err


def test_a_file_that_is_no_trace_is_refused(run_cli, tmp_path):
    path = tmp_path / "other.txt"
    path.write_text("hello\n", encoding="utf-8")
    outcome = run_cli("replay", str(path), *DEPLOYMENT)
    assert outcome.code == 2
    assert "neither Mooncake" in outcome.err
