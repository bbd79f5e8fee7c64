import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.units import Unit, compact, digits, interval, is_number, shown, unit_for, with_unit


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1, "1.00"),
        (0.98432, "0.984"),
        (999.6, "1\u2009000"),  # rounds up to four digits
        (1234.5, "1\u2009230"),
        (-2.5, "−2.50"),
        (3.2e-7, "3.2×10⁻⁷"),
        (9.999e-5, "0.000100"),  # rounds up across the limit of plain notation
        (1e7, "1×10⁷"),
        (10, "10.0"),
    ],
)
def test_three_significant_digits(value, text):
    assert digits(value) == text


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_digits_never_move_a_number_by_more_than_its_last_digit(value):
    text = digits(value).replace("\u2009", "")
    if "×10" in text:
        mantissa, power = text.split("×10")
        exponent = int(power.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")))
        back = float(f"{mantissa}e{exponent}")
    else:
        back = float(text)
    assert math.isclose(back, value, rel_tol=0.0051)


@pytest.mark.parametrize(
    ("column", "values", "symbol", "text"),
    [
        ("time_s", [31.9, 34_500.0], "s", "34\u2009500"),  # seconds stay seconds from 1 s up
        ("time_s", [0.0021], "ms", "2.10"),
        ("traffic_bytes", [3.1e13], "TB", "31.0"),
        ("flops", [9.9e14], "TFLOP", "990"),
        ("energy_j", [91_000.0], "kJ", "91.0"),
        ("success", [0.765], "%", "76.5"),
        ("usd", [0.0123], "$", "0.0123"),
        ("strong_output_tokens", [2430.0], "tokens", "2\u2009430"),
    ],
)
def test_columns_are_shown_in_the_unit_of_their_largest_value(column, values, symbol, text):
    unit = unit_for(column, [None, float("nan"), *values])
    assert unit.symbol == symbol
    assert shown(values[-1], unit) == text


def test_units_stand_where_their_language_puts_them():
    assert with_unit(1.2, Unit(factor=1.0, symbol="$")) == "$1.20"
    assert with_unit(0.621, Unit(factor=100.0, symbol="%")) == "62.1\u00a0%"
    assert with_unit(None, Unit(factor=1.0, symbol="s")) == "–"


def test_interval_needs_both_ends():
    unit = Unit(factor=1.0, symbol="s")
    assert interval({"value": 1, "low": 0.5, "high": 2}, unit) == "0.500 – 2.00"
    assert interval({"value": 1, "low": None, "high": 2}, unit) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "not known"),
        (True, "yes"),
        (89, "89"),
        (118.4, "118.4"),
        (140_000, "140\u2009000"),
        (4.8e12, "4.8×10¹²"),
        ({"value": 0.85, "low": 0.81, "high": 0.88}, "0.85 (0.81 – 0.88)"),
        ({"read": 0.9, "write": None}, "read 0.9, write not known"),
        ([1, "a"], "1, a"),
    ],
)
def test_any_value_on_one_line(value, text):
    assert compact(value) == text


def test_numbers_are_finite_and_not_booleans():
    assert [is_number(v) for v in (1, np.int64(2), np.float32(0.5))] == [True] * 3
    assert [is_number(v) for v in (None, True, np.bool_(True), "1", math.nan, math.inf)] == [False] * 6
