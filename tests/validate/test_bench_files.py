"""Result files of three benchmark clients give the same rows; what they lack is named.

`data/bench` holds files that the clients themselves wrote, measuring `specroof serve-fake` (Qwen3-32B on an H200 with
host_step_s = 4 ms), cut down to what is read: the version is in the name.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from costmodel.deployment import deploy, factor_values
from hwprofiles.errors import InputError, ProfileError
from validate.bench_files import read_bench
from validate.calibrate_tables import evidence_of

DATA = Path(__file__).parent / "data" / "bench"
SERVED = "Qwen/Qwen3-32B"

VLLM = {
    "endpoint_type": "vllm",
    "model_id": "Qwen/Qwen3-8B",
    "request_rate": "inf",
    "max_concurrency": 1,
    "completed": 100,
    "total_input_tokens": 102400,
    "total_output_tokens": 12800,
    "mean_ttft_ms": 50.0,
    "median_ttft_ms": 40.0,
    "median_tpot_ms": 6.0,
}


def stats(value, unit="ms"):
    return {"unit": unit, "avg": value * 1.1, "p50": value}


AIPERF = {
    "input_config": {"endpoint": {"model_names": ["Qwen/Qwen3-8B"]}, "loadgen": {"concurrency": 1}},
    "input_sequence_length": {"unit": "tokens", "avg": 1024.0},
    "output_sequence_length": {"unit": "tokens", "avg": 128.0},
    "time_to_first_token": stats(40.0),
    "inter_token_latency": stats(0.006, "s"),
}
GUIDELLM = {
    "benchmarks": [
        {
            "config": {"strategy": {"type_": "concurrent", "streams": 1}, "backend": {"model": "Qwen/Qwen3-8B"}},
            "metrics": {
                "prompt_token_count": {"successful": {"mean": 1024.0}},
                "output_token_count": {"successful": {"mean": 128.0}},
                "time_to_first_token_ms": {"successful": {"mean": 44.0, "median": 40.0}},
                "inter_token_latency_ms": {"successful": {"mean": 6.6, "median": 6.0}},
            },
        }
    ]
}
AIPERF_CSV = """Metric,avg,min,max,p50,std
Time to First Token (ms),44.0,30.0,60.0,40.0,5.0
Inter Token Latency (ms),6.6,5.0,8.0,6.0,0.5
Request Latency (ms),"1,000.0",900.0,1100.0,1000.0,10.0
Input Sequence Length (tokens),1024,1024,1024,1024,0
Output Sequence Length (tokens),128,128,128,128,0

Metric,Value
Request Throughput (requests/sec),8.0
"""


def rows(tmp_path, content, **more):
    path = tmp_path / "result"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return read_bench(path, **{"hardware": "h200", "n_devices": 1, "model": None, "weight_dtype": None, **more})


@pytest.mark.parametrize("content", [VLLM, AIPERF, GUIDELLM, "a log line\n" + json.dumps(AIPERF)])
def test_every_client_gives_the_same_rows(tmp_path, content):
    found = rows(tmp_path, content)
    assert [(r.metric, r.value) for r in found] == [("ttft_p50_ms", 40.0), ("tpot_p50_ms", pytest.approx(6.0))]
    assert {(r.batch, r.input_tokens, r.output_tokens, r.model) for r in found} == {(1, 1024, 128, "Qwen/Qwen3-8B")}


def test_a_csv_needs_the_model_and_has_its_concurrency_from_littles_law(tmp_path):
    with pytest.raises(ProfileError, match="--model"):
        rows(tmp_path, AIPERF_CSV)
    found = rows(tmp_path, AIPERF_CSV, model="Qwen/Qwen3-8B")
    assert [(r.metric, r.value, r.batch) for r in found] == [("e2e_mean_ms", 1000.0, 8.0)]


def many(content, clients):
    """The VLLM file with several clients."""
    return {**content, "max_concurrency": clients, "mean_tpot_ms": 5.0}


def test_several_clients_give_the_time_of_a_request(tmp_path):
    (row,) = rows(tmp_path, many(VLLM, 8))
    assert (row.metric, row.value, row.batch) == ("e2e_mean_ms", 50.0 + 127 * 5.0, 8.0)
    (row,) = rows(tmp_path, {**many(VLLM, 8), "mean_e2el_ms": 700.0})
    assert row.value == 700.0


def test_appended_results_are_read_one_after_another(tmp_path):
    text = "\n".join(json.dumps(many(VLLM, n)) for n in (2, 4))
    assert [(r.batch, r.line) for r in rows(tmp_path, text)] == [(2.0, 1), (4.0, 2)]


def test_of_a_sweep_the_closed_loops_are_read(tmp_path):
    closed = GUIDELLM["benchmarks"][0]
    open_ = {"config": {"strategy": {"type_": "constant", "rate": 3.0, "max_concurrency": 512}}, "metrics": {}}
    assert len(rows(tmp_path, {"benchmarks": [closed, open_]})) == 2


def test_guidellm_before_0_4_names_the_model_of_its_worker(tmp_path):
    one = GUIDELLM["benchmarks"][0]
    old = {
        "args": {"strategy": {"type_": "concurrent", "streams": 1}},
        "worker": {"backend_model": "Qwen/Qwen3-8B"},
        "metrics": one["metrics"],
    }
    assert {r.model for r in rows(tmp_path, {"benchmarks": [old]})} == {"Qwen/Qwen3-8B"}


@pytest.mark.parametrize(
    ("file", "clients", "sizes"),
    [
        ("vllm-0.32_1_detailed.json", 1, (800, 40)),
        ("vllm-0.32_8.json", 8, (768, 69)),
        ("vllm-0.32_8_equal_detailed.json", 8, (800, 40)),
        ("aiperf-0.13_1.json", 1, (800, 40)),
        ("aiperf-0.13_1.csv", 1, (800, 40)),
        ("aiperf-0.13_4.json", 4, (800, 40)),
        ("aiperf-0.13_4.csv", 4, (800, 40)),
        ("guidellm-0.8.1_synchronous.json", 1, (800, 40)),
        ("guidellm-0.8.1_throughput.json", 4, (800, 40)),
        ("guidellm-0.5.4_concurrent.json", 4, (800, 40)),
    ],
)
def test_what_the_clients_wrote_is_what_was_served(file, clients, sizes):
    """Units, keys and concurrency: the factors served give the file's times to what HTTP and the clients add (10 %)."""
    found = read_bench(DATA / file, "h200", 1, SERVED if file.endswith("csv") else None, None)
    assert {(r.model, r.engine, r.batch, (r.input_tokens, r.output_tokens)) for r in found} == {
        (SERVED, "vllm", clients, sizes)
    }
    dep = deploy(SERVED, "h200")
    evidence, left = evidence_of(found, dep)
    served = {**factor_values(dep), "host_step_s": 0.004}
    assert not left
    for part in evidence:
        assert part.measured_s == pytest.approx(part.seconds(served), rel=0.1)
    assert sum(len(part.measured_s) for part in evidence) == (2 if clients == 1 else 1)


@pytest.mark.parametrize("file", ["aiperf-0.13_rate.json", "aiperf-0.13_rate.csv", "guidellm-0.8.1_constant.json"])
def test_open_loops_that_the_clients_wrote_are_refused(file):
    with pytest.raises(ProfileError, match="open loop"):
        read_bench(DATA / file, "h200", 1, SERVED, None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({**VLLM, "max_concurrency": None, "request_rate": 4.0}, "open loop"),
        ({**VLLM, "request_rate": 4.0}, "open loop"),
        ({**VLLM, "ramp_up_strategy": "linear"}, "open loop"),
        ({**VLLM, "max_concurrency": None}, "all requests at once"),
        ({**VLLM, "max_concurrency": 8}, "no time of a request"),
        ({**AIPERF, "input_config": {"phases": [{"concurrency": 1}, {"concurrency": 2}]}}, "2 profiling phases"),
        ({**VLLM, "completed": 0}, "completed"),
        ({**VLLM, "median_ttft_ms": float("nan")}, "ttft"),
        ({**AIPERF, "input_config": {"loadgen": {"request_rate": 3}}}, "open loop"),
        ({**AIPERF, "input_sequence_length": {}}, "input tokens"),
        ({"benchmarks": []}, "no benchmark"),
        ({"benchmarks": [{"config": {"strategy": {"type_": "poisson", "rate": 3}}}]}, "open loop"),
        ({"something": 1}, "neither"),
        ("not,a,result\n", "neither"),
        ("", "neither"),
    ],
)
def test_what_is_no_closed_loop_result_is_refused(tmp_path, content, message):
    with pytest.raises(ProfileError, match=message):
        rows(tmp_path, content)


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_bench(tmp_path / "nowhere", "h200", 1, None, None)
