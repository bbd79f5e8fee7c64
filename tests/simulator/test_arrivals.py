"""Serving traces as recorded requests: both layouts, strict errors, nothing but requests or an error from any bytes."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hwprofiles.errors import InputError
from simulator.arrivals import TraceRequest, arrival_times, read_requests

SHARED = Path(__file__).parents[3] / "shared" / "traces" / "serving"
LINE = {"timestamp": 500, "input_length": 600, "output_length": 3, "hash_ids": [7, 9]}
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "trace.txt"
    path.write_text(text, encoding="utf-8", newline="")
    return path


def test_mooncake_lines_count_from_the_first_request(tmp_path: Path) -> None:
    other = {"timestamp": 2000.5, "input_length": 1, "output_length": 1, "session_id": "a"}
    path = write(tmp_path, json.dumps(LINE) + "\n\n" + json.dumps(other))
    assert list(read_requests(path)) == [TraceRequest(0.0, 600, 3, (7, 9)), TraceRequest(1.5005, 1, 1, (), "a")]
    assert arrival_times(path) == (0.0, 1.5005)


@pytest.mark.parametrize("zone", ["", "+00:00", "Z"])
def test_azure_times_with_and_without_a_zone(tmp_path: Path, zone: str) -> None:
    rows = f"2023-11-16 18:17:03.9799600{zone},4808,10\r\n2023-11-16T18:17:04.0319600{zone},3180,8\r\n"
    assert list(read_requests(write(tmp_path, HEADER + rows))) == [
        TraceRequest(0.0, 4808, 10),
        TraceRequest(0.052, 3180, 8),
    ]


def test_a_zone_moves_the_time(tmp_path: Path) -> None:
    rows = "2024-05-12 02:00:00+02:00,1,1\n2024-05-12 00:00:01,1,1\n"
    assert arrival_times(write(tmp_path, HEADER + rows)) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"timestamp": None}, "line 1, timestamp: expected a number"),
        ({"input_length": 0}, "input_length: expected at least 1 token"),
        ({"output_length": 1.5}, "output_length: expected a whole number"),
        ({"hash_ids": [1]}, "1 ids; a prompt of 600 tokens has 2 blocks of 512"),
        ({"hash_ids": [1, -1]}, "hash_ids: expected whole numbers"),
        ({"delay": 5}, "no arrival time of its own"),
        ({"hash_id": [1, 2]}, "did you mean 'hash_ids'"),
        ({"session_id": 5}, "session_id: expected text"),
    ],
)
def test_a_wrong_mooncake_value_is_named(tmp_path: Path, change: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        arrival_times(write(tmp_path, json.dumps({**LINE, **change})))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "holds no request"),
        (HEADER, "holds no request"),
        ("a,b,c\n1,2,3\n", "neither Mooncake"),
        (HEADER + "2024-05-12 00:00:00,1\n", "line 2: 2 cells"),
        (HEADER + "yesterday,1,1\n", "TIMESTAMP: expected an ISO 8601 time"),
        (HEADER + "2024-13-12 00:00:00,1,1\n", "TIMESTAMP: expected an ISO 8601 time"),
        (HEADER + "2024-05-12 00:00:00,1,-1\n", "GeneratedTokens: expected a"),
        (HEADER + "2024-05-12 00:00:01,1,1\n2024-05-12 00:00:00,1,1\n", "line 3: came 1 s before"),
        ('{"timestamp": NaN}', "NaN is not a number"),
        ("{" * 100_000, "trace.txt, line 1"),
        (json.dumps(LINE) + '\n{"timestamp": 1', "line 2: not valid JSON"),
        (json.dumps({**LINE, "input_length": None}), "input_length: expected"),
        ('{"timestamp": 1, "input_length": 5}', "output_length is missing"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        arrival_times(write(tmp_path, text))


def test_a_missing_file_and_other_bytes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        arrival_times(tmp_path / "none.jsonl")
    path = tmp_path / "bytes"
    path.write_bytes(b"\xff\xfe{")
    with pytest.raises(InputError, match="not UTF-8"):
        arrival_times(path)


PIECES = st.sampled_from(
    [
        HEADER,
        json.dumps(LINE),
        "\n",
        "2024-05-12 00:00:00,1,1\n",
        ",",
        '"',
        "{",
        "}",
        "[",
        "1e400",
        "\x00",
        "-1",
        "null",
    ]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.one_of(st.binary(max_size=200), st.lists(PIECES, max_size=6).map(lambda p: "".join(p).encode())))
def test_any_bytes_give_requests_in_order_or_one_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "fuzz"
    path.write_bytes(data)
    try:
        found = list(read_requests(path))
    except InputError:
        return
    assert found[0].arrival_s == 0.0
    assert all(a.arrival_s <= b.arrival_s for a, b in pairwise(found))
    assert all(r.prompt_tokens >= 1 and r.output_tokens >= 1 for r in found)


@pytest.mark.skipif(not SHARED.exists(), reason="the shared traces are not here")
def test_the_shared_traces_have_their_published_counts() -> None:
    mooncake = list(read_requests(SHARED / "mooncake_conversation_trace.jsonl"))
    assert (len(mooncake), round(mooncake[-1].arrival_s)) == (12_031, 3_537)
    assert sum(r.prompt_tokens for r in mooncake) / len(mooncake) == pytest.approx(12_035, abs=1)
    azure = arrival_times(SHARED / "AzureLLMInferenceTrace_code.csv")
    assert (len(azure), round(azure[-1])) == (8_819, 3_436)
