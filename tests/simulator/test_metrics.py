"""Serving metrics by hand; the glossary in docs/metrics.md is what the tables render to (run this file to write it)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwprofiles.errors import InputError
from simulator.metrics import METRICS, serving_metrics
from simulator.result_schema import SCHEMA

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
HEAD = """# Metrics and frames

<!-- Rendered from simulator/metrics.py and simulator/result_schema.py by tests/simulator/test_metrics.py. -->

## Serving metrics

`RunResult.serving()` gives them for the requests of each role, `simulator.metrics.serving_metrics` for any arrays of
times. Names, definitions and units are those of AIPerf 0.14, so that a simulated and a measured export compare line by
line. Times are the engine's own: from the request's arrival, host time included, to its tokens; client and link come on
top. A metric of each request is reported with its mean (`avg`), `min`, `max`, `std` and percentiles.
"""
FRAMES = """
## Frames

What a run keeps: one parquet file per frame in the folder of `specroof simulate -o`, `RunResult.frames` in Python.
`summary()` adds `wasted_per_step`: output tokens, tool calls, joules, engine seconds and dollars of discarded drafts,
over the steps committed.
"""


def render():
    lines = [HEAD, "| Metric | Unit | Of | Definition | |", "|---|---|---|---|---|"]
    for name, m in METRICS.items():
        of = "each request" if m.per_request else "the run"
        lines.append(f"| `{name}` | {m.unit} | {of} | `{m.formula}` | {m.meaning} |")
    lines.append(FRAMES)
    for frame, columns in SCHEMA.items():
        lines += [f"### {frame}", "", "| Column | Type | Unit | |", "|---|---|---|---|"]
        lines += [f"| `{name}` | {c.dtype} | {c.unit} | {c.meaning} |" for name, c in columns.items()]
        lines.append("")
    return "\n".join(lines).replace("\n\n\n", "\n\n")


def test_the_page_is_what_the_tables_say():
    assert PAGE.read_text(encoding="utf-8") == render()


def arrays(*columns):
    return [np.array(c, dtype=float) for c in columns]


def test_by_hand():
    """Two requests: 0 to 3 s with the first of 5 tokens at 1 s; 1 to 2 s with its only token at the end."""
    times = arrays([0.0, 1.0], [1.0, 2.0], [3.0, 2.0])
    found = serving_metrics(
        *times, np.array([100, 50]), np.array([5, 1]), {"time_to_first_token": 1000.0, "inter_token_latency": 400.0}
    )
    assert {name: m["unit"] for name, m in found.items()} == {name: m.unit for name, m in METRICS.items()}
    assert found["time_to_first_token"]["avg"] == 1000.0
    assert found["inter_token_latency"]["avg"] == found["inter_token_latency"]["max"] == 500.0
    assert found["request_latency"]["avg"] == 2000.0
    assert found["output_token_throughput_per_user"]["avg"] == 2.0
    assert found["prefill_throughput_per_user"]["avg"] == 75.0
    assert found["benchmark_duration"]["avg"] == 3.0
    assert found["request_throughput"]["avg"] == pytest.approx(2 / 3)
    assert found["output_token_throughput"]["avg"] == 2.0
    assert found["total_token_throughput"]["avg"] == 52.0
    assert found["goodput"]["avg"] == pytest.approx(1 / 3)


@given(st.lists(st.tuples(*[st.floats(0.001, 50)] * 3, st.integers(1, 900)), min_size=1, max_size=20))
def test_parts_add_up(drawn):
    submit, first, rest, output = (np.array(x) for x in zip(*drawn, strict=True))
    found = serving_metrics(submit, submit + first, submit + first + rest, output, output)
    total = found["time_to_first_token"]["avg"] + found["decode_duration"]["avg"]
    assert found["request_latency"]["avg"] == pytest.approx(total)
    assert found["total_token_throughput"]["avg"] == pytest.approx(2 * found["output_token_throughput"]["avg"])


def test_no_request_and_wrong_objectives():
    none = arrays([], [], [])
    found = serving_metrics(*none, np.array([]), np.array([]))
    assert found["request_count"]["avg"] == 0
    assert found["request_latency"]["avg"] is None
    one = (*arrays([0.0], [1.0], [2.0]), np.array([5]), np.array([5]))
    with pytest.raises(InputError, match="did you mean 'request_latency'"):
        serving_metrics(*one, {"request_latencies": 5.0})
    with pytest.raises(InputError, match="above 0 ms"):
        serving_metrics(*one, {"request_latency": -1.0})


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
