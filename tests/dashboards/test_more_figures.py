"""The figures of engines, latencies, fronts, spreads, fleets and sweeps, by their traces."""

import math

import numpy as np
import pandas as pd
import pytest

from dashboards import figures
from dashboards.engine import MOST_POINTS, thinned
from dashboards.sizing import fleet_rows
from hwprofiles.errors import InputError


def traces(figure, **match):
    return [t for t in figure.data if all(getattr(t, k) == v for k, v in match.items())]


def rounded(values):
    return [round(float(v), 3) for v in values]


def engine_frame(n=3):
    return pd.DataFrame(
        {
            "role": ["strong"] * n + ["weak"],
            "replica": [0] * n + [1],
            "start_s": [float(i) for i in range(n)] + [0.5],
            "time_s": [1.0] * n + [0.25],
            "n_decode": [i % 5 for i in range(n)] + [7],
            "kv_used_tokens": [100 * i for i in range(n)] + [9],
            "n_waiting": [0] * n + [2],
        }
    )


def test_an_engine_shows_batch_cache_and_queue_per_replica():
    figure = figures.engine_load(engine_frame())
    strong = traces(figure, name="strong 0")
    assert [rounded(t.y) for t in strong] == [[0, 1, 2], [0, 100, 200], [0, 0, 0]]
    assert rounded(strong[0].x) == [0, 1, 2]
    assert [t.showlegend for t in strong] == [True, False, False]
    assert figure.layout.xaxis3.title.text == "time on the run's clock (s)"
    assert figure.layout.yaxis2.title.text == "KV cache (tokens)"
    assert traces(figure, name="weak 1")[0].line.dash == "dash"


def test_thinning_keeps_the_ends_and_the_peak():
    values = np.sin(np.arange(100_000) / 50.0)
    values[77_777] = 9.0
    kept = thinned(values, MOST_POINTS)
    assert len(kept) <= MOST_POINTS + 2
    assert {0, 77_777, 99_999} <= set(kept.tolist())
    assert kept.tolist() == sorted(kept.tolist())


def test_missing_columns_are_named():
    with pytest.raises(InputError, match="n_waiting"):
        figures.engine_load(engine_frame().drop(columns="n_waiting"))
    with pytest.raises(InputError, match="ratio_time"):
        figures.swept(pd.DataFrame({"strategy": [], "window": []}), "window", "ratio_time")


def test_latencies_are_the_empirical_distribution():
    figure = figures.latencies([{"strategy": "spec_agent", "label": "a", "time_s": [4.0, 1.0, 3.0, 2.0, math.nan]}])
    curve, marks = figure.data
    assert rounded(curve.x) == [1, 1, 2, 3, 4]
    assert rounded(curve.y) == [0, 25, 50, 75, 100]
    assert rounded(marks.x) == [2, 4, 4]
    assert curve.name == "a (1 unfinished)"
    assert figure.layout.xaxis.title.text == "time per task (s)"


def test_two_runs_of_one_strategy_differ_by_dash():
    runs = [{"strategy": "spec_agent", "label": str(i), "time_s": [1.0, 2.0]} for i in range(2)]
    curves = [t for t in figures.latencies(runs).data if t.mode == "lines"]
    assert [c.line.dash for c in curves] == ["solid", "dash"]
    assert len({c.line.color for c in curves}) == 1


def test_the_front_holds_what_nothing_beats(plan_document):
    for s in plan_document["strategies"]:
        usd = {"strong_only": 4.0, "weak_only": 1.0, "step_verification": 3.0, "spec_agent": 2.0}[s["name"]]
        s["usd"] = {"value": usd, "low": usd * 0.9, "high": usd * 1.2}
    figure = figures.pareto(plan_document)
    front = figure.data[0]
    assert rounded(front.x) == [1.0, 2.0, 4.0]
    assert rounded(front.y) == [19.2, 31.9, 34.5]
    beaten = [t.name for t in figure.data if t.name.endswith("(beaten)")]
    assert beaten == ["Step verification (beaten)"]
    assert figure.layout.xaxis.title.text == "money per task ($)"
    spec = traces(figure, name="SpecAgent")[0]
    assert rounded(spec.error_x.array) == [0.4]
    assert list(spec.text) == ["76.5\u00a0%"]


def test_without_prices_energy_stands_for_cost(plan_document):
    assert figures.pareto(plan_document).layout.xaxis.title.text.startswith("energy per task (kJ)")


def sensitivity_document():
    sources = [
        {"name": "acceptance", "first": 0.6, "total": 0.7, "settles": 0.2, "measure": "judge steps"},
        {"name": "h200 factors", "first": 0.1, "total": 0.9, "settles": 0.1, "measure": "time steps"},
    ]
    return {"objectives": {"time": {"sources": sources, "ratio": 0.9, "log_ratio_sd": 0.1, "advice": ""}}}


def test_the_tornado_puts_the_largest_total_on_top():
    total, first = figures.tornado(sensitivity_document(), "time").data
    assert rounded(total.x) == [90, 70]
    assert rounded(first.x) == [10, 60]
    with pytest.raises(InputError, match="traffic"):
        figures.tornado(sensitivity_document(), "traffic")


def size_document():
    def fleet(strategy, weak, strong, usd, p95, meets):
        return {
            "strategy": strategy, "settings": {}, "weak_replicas": weak, "strong_replicas": strong, "usd_per_h": usd,
            "meets": meets, "p95_s": p95, "low": None if p95 is None else p95 * 0.9,
            "high": None if p95 is None else p95 * 1.1, "slos": [], "runs": 8, "reason": None,
        }  # fmt: skip

    a, b = fleet("strong_only", 0, 2, 40.0, 50.0, True), fleet("spec_agent", 1, 1, 25.0, 55.0, True)
    return {
        "slos": ["p95 trajectory_s <= 60"],
        "fleets": [a, b, fleet("spec_agent", 1, 1, 24.0, None, False)],
        "strategies": [
            {"strategy": "strong_only", "settings": {}, "best": a, "reason": None},
            {"strategy": "spec_agent", "settings": {}, "best": b, "reason": None},
            {"strategy": "weak_only", "settings": {}, "best": None, "reason": "loses success"},
        ],
        "recommended": b,
    }


def test_fleets_show_cost_against_the_slowest_tasks():
    figure = figures.fleets(size_document())
    spec = traces(figure, name="SpecAgent")[0]
    assert rounded(spec.x) == [25.0]
    assert rounded(spec.error_y.array) == [5.5]
    assert list(spec.marker.symbol) == ["circle"]
    assert figure.layout.shapes[0].y0 == 60.0
    assert "1 fleets overloaded" in figure.layout.xaxis.title.text


def test_the_table_of_fleets_marks_the_recommended_one():
    rows = fleet_rows(size_document())
    assert [r["note"] for r in rows] == ["", "recommended", "loses success"]
    assert rows[1]["fleet"] == "1 weak + 1 strong"
    assert rows[1]["p95 (s)"] == "55.0 (49.5 – 60.5)"


def test_a_sweep_is_a_line_per_strategy_with_its_range():
    frame = pd.DataFrame(
        {
            "strategy": ["strong_only", "spec_agent", "spec_agent", "spec_agent"],
            "window": [1, 1, 1, 4],
            "ratio_time": [1.0, 0.9, 0.7, 0.6],
            "time_s": [30.0, 27.0, 21.0, math.nan],
        }
    )
    (line,) = figures.swept(frame, "window", "ratio_time").data
    assert rounded(line.y) == [0.8, 0.6]
    assert rounded(line.error_y.array) == [0.1, 0.0]
    assert figures.swept(frame, "window", "time_s").layout.yaxis.title.text == "time per task (s)"
