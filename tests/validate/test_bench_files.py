"""Result files of three benchmark clients give the same rows; what they lack is named."""

from __future__ import annotations

import json

import pytest

from hwprofiles.errors import InputError, ProfileError
from validate.bench_files import read_bench

VLLM = {
    "endpoint_type": "vllm",
    "model_id": "Qwen/Qwen3-8B",
    "request_rate": "inf",
    "max_concurrency": 8,
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
    "input_config": {"endpoint": {"model_names": ["Qwen/Qwen3-8B"]}, "loadgen": {"concurrency": 8}},
    "input_sequence_length": {"unit": "tokens", "avg": 1024.0},
    "output_sequence_length": {"unit": "tokens", "avg": 128.0},
    "time_to_first_token": stats(40.0),
    "inter_token_latency": stats(0.006, "s"),
}
GUIDELLM = {
    "benchmarks": [
        {
            "config": {"strategy": {"type_": "concurrent", "streams": 8}, "backend": {"model": "Qwen/Qwen3-8B"}},
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
    assert {(r.batch, r.input_tokens, r.output_tokens, r.model) for r in found} == {(8, 1024, 128, "Qwen/Qwen3-8B")}


def test_a_csv_needs_the_model_and_has_its_concurrency_from_littles_law(tmp_path):
    with pytest.raises(ProfileError, match="--model"):
        rows(tmp_path, AIPERF_CSV)
    found = rows(tmp_path, AIPERF_CSV, model="Qwen/Qwen3-8B")
    assert [(r.value, r.batch) for r in found] == [(40.0, 8.0), (6.0, 8.0)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({**VLLM, "max_concurrency": None, "request_rate": 4.0}, "open loop"),
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
