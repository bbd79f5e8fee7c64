"""Acceptance as reviews show it, with an exact interval."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validate.verdicts import acceptance_interval


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_holds_the_share(pair):
    found = acceptance_interval(*pair)
    assert 0.0 <= found["low"] <= found["acceptance"] <= found["high"] <= 1.0


def test_all_kept_of_ten_is_at_least_0_74():
    assert acceptance_interval(10, 10)["low"] == pytest.approx(0.05 ** (1 / 10))


def test_a_run_says_where_its_time_went_and_how_its_reviews_went(run_cli, tmp_path):
    page = tmp_path / "page.html"
    args = ("validate", "llama-a100", "--weak", "fake:", "--strong", "fake:", "--runs", "4", "--strategy", "spec_agent")
    done = run_cli(*args, "--report", page, "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    phases = document["phases"]["spec_agent"]
    assert {"first_token", "draft_decode"} <= set(phases)
    assert phases["draft_decode"]["measured_s"] == pytest.approx(phases["draft_decode"]["predicted_s"], rel=0.05)
    v = document["verdicts"]["spec_agent"]
    assert v["low"] <= v["acceptance"] <= v["high"]
    assert v["reviews"] > 0
    assert page.stat().st_size > 10_000
