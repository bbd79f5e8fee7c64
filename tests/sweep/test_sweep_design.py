"""Grids and Latin hypercubes: every cell once, every stratum once, and clear refusals."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwprofiles.errors import InputError
from simulator.scenario_file import load_scenario
from simulator.sweep_design import cells_of, parse_axis


@pytest.fixture(scope="module")
def scenario():
    return load_scenario("autonomous-h200")


def test_a_grid_crosses_its_axes(scenario):
    cells = cells_of(scenario, ["acceptance=0.1:0.5:5", "window=1,4", "strong.hardware=h200,h100"])
    assert [tuple(c.values()) for c in cells] == list(
        itertools.product([0.1, 0.2, 0.3, 0.4, 0.5], [1, 4], ["h200", "h100"])
    )


@given(st.integers(1, 40), st.integers(0, 5))
def test_a_latin_hypercube_has_one_sample_in_every_part(scenario, n, seed):
    cells = cells_of(scenario, ["acceptance=0.2:0.7", "tool_latency_s=1:9"], design="lhs", samples=n, seed=seed)
    for name, low, high in (("acceptance", 0.2, 0.7), ("tool_latency_s", 1, 9)):
        parts = sorted(int((c[name] - low) / (high - low) * n * (1 - 1e-12)) for c in cells)
        assert parts == list(range(n))


def test_a_latin_hypercube_gives_values_and_whole_numbers_equal_parts(scenario):
    cells = cells_of(scenario, ["window=1:8", "strong.hardware=h200,h100"], design="lhs", samples=80, seed=3)
    for name, values in (("window", range(1, 9)), ("strong.hardware", ["h200", "h100"])):
        assert [sum(c[name] == v for c in cells) for v in values] == [80 // len(values)] * len(values)


@pytest.mark.parametrize(
    ("vary", "options", "words"),
    [
        (["windw=1,2"], {}, "did you mean 'window'"),
        (["window"], {}, "expected NAME="),
        (["window="], {}, "expected NAME="),
        (["window=1,,2"], {}, "empty value"),
        (["window=1,2,1"], {}, "stands twice"),
        (["window=1:8:3"], {}, "whole numbers"),
        (["window=8:1:8"], {}, "must rise"),
        (["acceptance=0.1:0.9"], {}, "LO:HI:N"),
        (["acceptance=0:1:1"], {}, "N from 2"),
        (["acceptance=0:1:3"], {"design": "lhs", "samples": 4}, "--samples"),
        (["acceptance=0:1"], {"design": "lhs"}, "needs --samples"),
        (["acceptance=0:1:3"], {"samples": 4}, "no effect on a grid"),
        (["acceptance=0:1:3"], {"design": "lsh"}, "did you mean 'lhs'"),
        (["acceptance=0:1:3", "protocol.acceptance=0.5"], {}, "varied twice"),
        (["acceptance=0:1:1000", "tool_latency_s=0:1:1000"], {}, "100000 cells"),
        ([], {}, "at least one"),
    ],
)
def test_refusals(scenario, vary, options, words):
    with pytest.raises(InputError, match=words):
        cells_of(scenario, vary, **options)


@given(st.text(max_size=30))
def test_any_text_is_an_axis_or_one_clear_message(text):
    with contextlib.suppress(InputError):
        parse_axis(f"acceptance={text}", "grid")
