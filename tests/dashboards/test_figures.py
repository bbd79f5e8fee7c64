import itertools
import math

import pandas as pd
import pytest

from costmodel.cost import PHASES
from dashboards import figures, template
from dashboards.names import COLUMN_LABELS, PHASE_LABELS, STRATEGY_LABELS
from hwprofiles.errors import InputError


def ratio_frame(**by_strategy):
    rows = [
        {"strategy": s, "objective": o, "value": v, "low": low, "high": high}
        for s, cells in by_strategy.items()
        for o, (v, low, high) in cells.items()
    ]
    return pd.DataFrame(rows)


def traces(figure):
    return {trace.name: trace for trace in figure.data}


def axis_titles(figure):
    axes = [*figure.select_xaxes(), *figure.select_yaxes()]
    return [axis.title.text for axis in axes if axis.title.text]


def notes(figure):
    return " ".join(axis_titles(figure))


# --- colours -----------------------------------------------------------------------------------------------------


def seen(colour, matrix):
    """Linear RGB of a hex colour after a colour-vision matrix."""
    linear = [(int(colour[i : i + 2], 16) / 255) ** 2.2 for i in (1, 3, 5)]
    return [sum(m * c for m, c in zip(row, linear, strict=True)) for row in matrix]


def lab(rgb):
    """CIE L*a*b* (D65) of linear RGB."""
    xyz = [
        (0.4124 * rgb[0] + 0.3576 * rgb[1] + 0.1805 * rgb[2]) / 0.9505,
        0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2],
        (0.0193 * rgb[0] + 0.1192 * rgb[1] + 0.9505 * rgb[2]) / 1.089,
    ]
    f = [max(t, 0) ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in xyz]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


# Full dichromacy after Machado, Oliveira and Fernandes 2009, doi:10.1109/TVCG.2009.113.
SIGHTS = {
    "normal": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}


@pytest.mark.parametrize("sight", SIGHTS)
def test_strategies_can_be_told_apart_by_colour_or_by_symbol(sight):
    assert len(set(template.STRATEGY_COLOURS.values())) == len(STRATEGY_LABELS) == 10
    assert set(template.STRATEGY_COLOURS) == set(template.STRATEGY_SYMBOLS) == set(STRATEGY_LABELS)
    assert len(set(template.STRATEGY_SYMBOLS.values())) == 10
    places = {name: lab(seen(colour, SIGHTS[sight])) for name, colour in template.STRATEGY_COLOURS.items()}
    first_four = ("strong_only", "weak_only", "step_verification", "spec_agent")
    assert min(math.dist(places[a], places[b]) for a, b in itertools.combinations(first_four, 2)) > 20
    assert min(math.dist(places[a], places[b]) for a, b in itertools.combinations(places, 2)) > 11


def test_every_phase_has_one_family_one_colour_and_a_name():
    listed = [phase for family in template.PHASE_FAMILIES.values() for phase in family]
    assert sorted(listed) == sorted(PHASES)
    assert len(set(template.PHASE_COLOURS.values())) == len(PHASES)
    assert set(PHASE_LABELS) == set(PHASES)


@pytest.mark.parametrize("theme", [template.LIGHT, template.DARK])
def test_text_contrasts_with_its_background(theme):
    ink, paper = (seen(c, SIGHTS["normal"]) for c in (theme.layout.font.color, theme.layout.paper_bgcolor))
    light = sorted(0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2] for c in (ink, paper))
    assert (light[1] + 0.05) / (light[0] + 0.05) > 7  # WCAG 2.2, level AAA


# --- ratios ------------------------------------------------------------------------------------------------------


def test_ratios_show_value_and_interval_of_each_strategy():
    frame = ratio_frame(
        strong_only={"time": (1.0, 1.0, 1.0)},
        weak_only={"time": (0.5, 0.4, 0.6), "traffic": (0.3, 0.25, 0.4)},
        spec_agent={"time": (0.9, 0.8, 1.2), "traffic": (0.6, 0.5, 0.7)},
    )
    drawn = traces(figures.ratios(frame))
    assert list(drawn) == ["Weak only", "SpecAgent"]  # strong only is the line at 1
    mine = drawn["SpecAgent"]
    assert list(mine.x) == pytest.approx([0.9, 0.6])
    assert list(mine.error_x.arrayminus) == pytest.approx([0.1, 0.1])
    assert list(mine.error_x.array) == pytest.approx([0.3, 0.1])
    assert mine.marker.color == template.STRATEGY_COLOURS["spec_agent"]


def test_ratios_axis_is_logarithmic_with_one_inside_and_both_sides_named():
    figure = figures.ratios(ratio_frame(spec_agent={"time": (0.5, 0.4, 0.6), "success": (0.98, 0.95, 0.99)}))
    for axis in figure.select_xaxes():
        assert axis.type == "log"
        assert axis.range[0] < 0 < axis.range[1]
        assert 1.0 in axis.tickvals
    words = [note.text for note in figure.layout.annotations]
    assert words == ["◀ wins", "loses ▶", "same as strong only", "◀ loses", "wins ▶", "same as strong only"]
    tints = [shape for shape in figure.layout.shapes if shape.type == "rect"]
    assert tints[0].x1 == pytest.approx(1.0)  # less is a win: the left side
    assert tints[1].x0 == pytest.approx(1.0)  # success: the right side


def test_ratios_of_any_size_stay_on_the_axis():
    frame = ratio_frame(
        weak_only={"time": (1e-6, 1e-7, 1e-5), "usd": (0.0, 0.0, 0.0)}, spec_agent={"time": (1e6, 1.0, 1e9)}
    )
    figure = figures.ratios(frame)
    low, high = next(figure.select_xaxes()).range
    for trace in figure.data:
        assert all(low <= math.log10(x) <= high for x in trace.x)
    zero = figure.data[0]
    assert math.log10(zero.x[1]) == pytest.approx(low)
    assert list(zero.marker.symbol) == ["triangle-up", "arrow-bar-left"]
    assert zero.customdata[1][1] == "0 (0 – 0)"
    assert len(next(figure.select_xaxes()).tickvals) <= 8


def test_missing_ratios_are_named():
    nothing = (None, None, None)
    frame = ratio_frame(
        weak_only={"time": (0.5, None, None), "usd": nothing, "energy": nothing},
        spec_agent={"time": (0.9, 0.8, 1.0), "usd": nothing, "energy": (0.9, 0.8, 1.0)},
    )
    figure = figures.ratios(frame)
    assert "not known: energy (Weak only), money" in notes(figure)
    assert list(figure.data[0].error_x.array) == [0.0]
    assert list(next(figure.select_yaxes()).ticktext) == ["Time", "Energy"]


def test_no_ratio_at_all_is_still_a_figure():
    assert len(figures.ratios(ratio_frame(spec_agent={"time": (None, None, None)})).data) == 0


# --- phases ------------------------------------------------------------------------------------------------------


def test_phases_stack_the_scaled_quantity_in_the_order_of_the_families(plan_document):
    figure = figures.phases(pd.DataFrame(plan_document["phases"]), "traffic_bytes")
    names = [trace.name for trace in figure.data]
    order = [PHASE_LABELS[p] for p in template.PHASE_COLOURS]
    assert names == sorted(names, key=order.index)
    assert "Tool" not in names  # a tool moves no bytes on the devices
    own = traces(figure)["Own decode"]
    assert [round(x, 6) if x is not None else None for x in own.x] == [44.0, 14.0, None, None]  # TB
    assert figure.layout.barmode == "stack"
    assert axis_titles(figure) == ["memory traffic (TB)"]


@pytest.mark.parametrize(("quantity", "unit"), [("time_s", "(s)"), ("traffic_bytes", "(TB)"), ("flops", "(PFLOP)")])
def test_phases_say_their_unit(plan_document, quantity, unit):
    titles = axis_titles(figures.phases(pd.DataFrame(plan_document["phases"]), quantity))
    assert titles[0].endswith(unit)
    assert titles[0].startswith(COLUMN_LABELS[quantity].lower())


def test_phases_name_strategies_whose_quantity_is_not_known():
    frame = pd.DataFrame(
        [
            {"strategy": "strong_only", "phase": "decode", "traffic_bytes": None},
            {"strategy": "spec_agent", "phase": "draft_decode", "traffic_bytes": 2e9},
        ]
    )
    said = figures.phases(frame, "traffic_bytes").layout.annotations
    assert [(a.text, a.y) for a in said] == [("not known", 0)]  # where strong only's bar would be


def test_wasted_work_is_hatched(plan_document):
    drawn = traces(figures.phases(pd.DataFrame(plan_document["phases"]), "time_s"))
    assert drawn["Discarded draft"].marker.pattern.shape == "/"
    assert drawn["Draft decode"].marker.pattern.shape is None


def test_unknown_quantity_names_the_nearest():
    with pytest.raises(InputError, match="time_s"):
        figures.phases(pd.DataFrame(columns=["strategy", "phase", "times"]), "times")


# --- windows -----------------------------------------------------------------------------------------------------


def test_windows_draw_one_line_per_objective_sorted_by_window():
    frame = pd.DataFrame([{"window": 4, "time": 0.9, "success": 0.98}, {"window": 1, "time": 1.1, "success": None}])
    figure = figures.windows(frame)
    drawn = traces(figure)
    assert list(drawn) == ["Time", "Success (more is better)", "same as strong only"]
    assert list(drawn["Time"].x) == [1, 4]
    assert list(drawn["Time"].y) == [1.1, 0.9]
    assert list(drawn["Success (more is better)"].y) == [None, 0.98]
    assert list(drawn["same as strong only"].y) == [1.0, 1.0]
    assert figure.layout.yaxis.type == "log"
    assert sorted(axis_titles(figure)) == ["ratio to strong only (log scale)", "window (steps)"]


# --- roofline ----------------------------------------------------------------------------------------------------


def roof_frames(**changes):
    devices = pd.DataFrame(
        [
            {"name": "h200", "role": "weak", "dtype": "bf16", "peak_flops_per_s": 1e15, "n_devices": 1},
            {"name": "h200", "role": "strong", "dtype": "fp8", "peak_flops_per_s": 2e15, "n_devices": 8},
        ]
    ).assign(bandwidth_bytes_per_s=5e12)
    point = {"label": "verify prefill", "role": "strong", "bound": "memory", "intensity_flops_per_byte": 60.0}
    return devices, pd.DataFrame([point | {"achieved_flops_per_s": 1.1e14} | changes])


def test_the_roof_is_the_lower_of_bandwidth_and_peak():
    figure = figures.roofline(*roof_frames())
    strong = traces(figure)["strong: 8 × h200, fp8"]
    left, ridge, right = strong.x
    assert ridge == pytest.approx(400.0)  # 2e15 / 5e12
    assert list(strong.y) == pytest.approx([5.0 * left, 2000.0, 2000.0])  # TFLOP/s
    assert left < 60 < ridge < right
    dot = traces(figure)["verify prefill (memory)"]
    assert (dot.x[0], dot.y[0]) == pytest.approx((60.0, 110.0))
    assert axis_titles(figure) == [
        "arithmetic intensity (FLOP per byte, log scale)",
        "speed per device (TFLOP/s, log scale)",
    ]


def test_points_without_numbers_are_named_under_the_roofline():
    figure = figures.roofline(*roof_frames(achieved_flops_per_s=None))
    assert "not drawn: verify prefill" in notes(figure)
    assert len(figure.data) == 2


# --- timeline ----------------------------------------------------------------------------------------------------


def span(**changes):
    row = {"strategy": "spec_agent", "start_s": 1.0, "end_s": 3.5, "lane": "weak", "phase": "draft_decode"}
    return row | {"step": 2, "label": "drafts"} | changes


def test_timeline_bars_begin_and_end_with_their_spans():
    frame = pd.DataFrame([span(), span(lane="tools", phase="tool", start_s=3.5, end_s=4.0), span(start_s=4.0, end_s=5)])
    figure = figures.timeline(frame)
    drafts = traces(figure)["Draft decode"]
    assert list(drafts.base) == [1.0, 4.0]
    assert list(drafts.x) == [2.5, 1.0]
    assert list(next(figure.select_yaxes()).ticktext) == ["weak", "tools"]
    assert axis_titles(figure) == ["time since the task began (s)"]


def test_timeline_counts_spans_it_cannot_draw():
    figure = figures.timeline(pd.DataFrame([span(), span(end_s=None), span(start_s=None)]))
    assert "2 spans without a start or an end not drawn" in notes(figure)
    assert sum(len(trace.x) for trace in figure.data) == 1


def test_strategies_share_one_clock_and_one_legend():
    figure = figures.timeline(pd.DataFrame([span(), span(strategy="strong_only"), span(strategy="weak_only")]))
    assert [trace.showlegend for trace in figure.data] == [True, False, False]
    assert [note.text for note in figure.layout.annotations] == [
        "<b>Strong only</b>",
        "<b>Weak only</b>",
        "<b>SpecAgent</b>",
    ]
    assert {axis.matches for axis in figure.select_xaxes()} <= {None, "x", "x2", "x3"}


# --- all ---------------------------------------------------------------------------------------------------------


def test_markup_in_names_is_text():
    evil = "<a href='https://example.org'>x</a>"
    figure = figures.timeline(pd.DataFrame([span(label=evil, lane=evil, strategy=evil)]))
    assert "<a" not in figure.to_json().replace("\\u003c", "<")


@pytest.mark.parametrize(
    "draw",
    [
        figures.ratios,
        figures.windows,
        figures.timeline,
        lambda frame: figures.phases(frame, "time_s"),
        lambda frame: figures.roofline(frame, frame),
    ],
)
def test_a_missing_column_is_named(draw):
    with pytest.raises(InputError, match="missing: "):
        draw(pd.DataFrame({"something_else": [1]}))
