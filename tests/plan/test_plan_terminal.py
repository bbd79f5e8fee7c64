"""A plan on a terminal of 80 columns: nothing cut, money in dollars."""

import io
import re

import pytest
from rich.console import Console

from simulator.plan import plan
from simulator.verdict import quantity, three_digits


@pytest.mark.parametrize("scenario", ["retail-h200", "edge-cloud"])
def test_nothing_is_cut_at_80_columns(scenario):
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(plan(scenario))
    text = console.export_text()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    for word in ("strong_only", "weak_only", "verification", "spec_agent", "memory traffic", "strong tokens"):
        assert word in text
    assert "USD" not in text
    assert re.search(r"money \(\$\) +\$0\.\d{3}", text)
    row = text[text.index("time (s)") : text.index("memory traffic")]
    assert len(re.findall(r"\[[\d.]+, [\d.]+\]", row)) == 4  # an interval stands whole under each value


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.0624, "0.0624"), (0.000611, "0.000611"), (0.9999, "1.00"), (48, "48.0"), (2809.2, "2809")],
)
def test_three_significant_digits_written_out(value, text):
    assert three_digits(value) == text
    assert quantity(value, "USD") == f"${text}"
