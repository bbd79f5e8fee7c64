"""Intervals: they hold their value, they are paired, they have no width without uncertain inputs."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.outcome import OBJECTIVES
from simulator.plan import plan
from simulator.scenario_file import from_document, to_document

BUNDLED = ("autonomous-h200", "edge-cloud", "llama-a100", "retail-h200")


@pytest.mark.parametrize("name", BUNDLED)
def test_every_interval_holds_its_value_and_is_finite(name, planned):
    found = planned(name)
    every = [p for row in (*found.predictions.values(), *found.ratios.values()) for p in row.values() if p]
    assert len(every) > 20
    for p in every:
        assert p.low <= p.value <= p.high
        assert np.isfinite([p.low, p.high]).all()
        assert p.low >= 0


@pytest.mark.parametrize("name", BUNDLED)
def test_a_ratio_is_the_quotient_of_the_central_values(name, planned):
    found = planned(name)
    columns = dict(zip(OBJECTIVES, ("time_s", "traffic_bytes", "flops", "energy_j", "usd", "success"), strict=True))
    for strategy, row in found.ratios.items():
        for objective, r in row.items():
            mine, theirs = (found.predictions[s][columns[objective]] for s in (strategy, "strong_only"))
            assert (r is None) == (mine is None or theirs is None)
            if r is not None:
                assert r.value == pytest.approx(mine.value / theirs.value, rel=1e-12)


def test_ratios_are_paired_so_shared_factors_cancel(planned):
    """With the behaviour exact, what is left is shared: the ratio is much surer than either time."""
    settings = ("acceptance=0.9", "verdict_tokens=10")
    found = planned("llama-a100", *settings)

    def width(p):
        return np.log(p.high / p.low)

    times = [found.predictions[s]["time_s"] for s in ("strong_only", "spec_agent")]
    assert width(found.ratios["spec_agent"]["time"]) < 0.7 * min(width(t) for t in times)


def _exact(document):
    """All bands of a document at their central value."""
    if isinstance(document, dict) and {"value", "low", "high"} <= set(document):
        return document["value"]
    return {k: _exact(v) for k, v in document.items()} if isinstance(document, dict) else document


def test_exact_behaviour_leaves_counts_of_work_no_width(small):
    """Traffic and FLOPs of a dense pair follow from token counts alone, whatever the kernels' efficiency."""
    document = _exact(to_document(small("llama-a100", "acceptance=0.9")))
    found = plan(from_document(document, "exact"))
    for strategy, row in found.predictions.items():
        for column in ("traffic_bytes", "flops", "success", "strong_output_tokens"):
            p = row[column]
            assert p.high - p.low <= 1e-9 * max(p.value, 1.0), (strategy, column)
        assert row["time_s"].low < row["time_s"].value < row["time_s"].high


@pytest.mark.parametrize(
    ("key", "narrow", "wide", "column"),
    [
        ("acceptance", (0.9, 0.87, 0.92), (0.9, 0.75, 0.97), "traffic_bytes"),
        ("acceptance", (0.9, 0.87, 0.92), (0.9, 0.75, 0.97), "time_s"),
        ("verdict_tokens", (20, 18, 22), (20, 5, 60), "strong_output_tokens"),
        ("verbosity", (1.5, 1.4, 1.6), (1.5, 1.0, 3.0), "time_s"),
        ("quality.detection", (0.55, 0.5, 0.6), (0.55, 0.2, 0.8), "success"),
        ("tail", (100, 90, 110), (100, 20, 400), "flops"),
    ],
)
def test_a_wider_band_never_narrows_an_interval(key, narrow, wide, column, planned):
    name, key = ("retail-h200", "thinking_tokens") if key == "tail" else ("llama-a100", key)
    band = "{}={{value={}, low={}, high={}, tier='assumed', source='test'}}"
    both = [planned(name, band.format(key, *b)).predictions["spec_agent"][column] for b in (narrow, wide)]
    assert both[0].value == pytest.approx(both[1].value, rel=1e-12)
    assert both[1].high - both[1].low >= 0.97 * (both[0].high - both[0].low)


def test_a_one_sided_band_is_fine(planned):
    """A band may end at its value; no division by its missing side."""
    settings = ("verdict_tokens={value=10, low=10, high=60}", "verbosity={value=1.0, low=0.7, high=1.0}")
    found = planned("llama-a100", *settings)
    assert found.predictions["spec_agent"]["strong_output_tokens"].low > 0
