"""Drafts beside a strong-only run: what they tell, and that nothing of them acts."""

from __future__ import annotations

import json

import pytest

ARGS = ("validate", "llama-a100", "--weak", "fake:", "--strong", "fake:", "--runs", "6")


def run(run_cli, *more):
    done = run_cli(*ARGS, "--strategy", "strong_only", *more, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_a_weak_model_without_faults_is_always_accepted(run_cli):
    perfect = ("quality.weak_hazard=0", "quality.strong_hazard=0", "quality.false_reject=0", "quality.detection=1")
    document = run(run_cli, "--shadow", "4", *(part for s in perfect for part in ("--set", s)))
    found = document["shadow"]
    assert found["acceptance"] == found["same_call"] == 1.0
    assert found["verdict_tokens"] == 1.0
    assert found["garbled"] == 0
    assert found["verbosity"] == pytest.approx(1.0, abs=0.3)


def test_faults_that_are_noticed_are_rejected(run_cli):
    worse = ("quality.weak_hazard=0.5", "quality.strong_hazard=0", "quality.false_reject=0", "quality.detection=1")
    found = run(run_cli, "--shadow", "6", *(part for s in worse for part in ("--set", s)))["shadow"]
    assert 0.2 < found["acceptance"] < 0.9
    assert found["low"] < found["acceptance"] < found["high"]
    assert found["acceptance"] == pytest.approx(found["same_call"], abs=0.1)


def test_nothing_of_the_shadow_reaches_the_run(run_cli):
    plain, beside = run(run_cli), run(run_cli, "--shadow", "6")
    assert plain["shadow"] is None
    for key in ("measured", "predicted", "held", "strategies"):
        assert plain[key] == beside[key]


def test_a_shadow_needs_strong_only(run_cli):
    done = run_cli(*ARGS, "--strategy", "spec_agent", "--shadow", "2")
    assert done.code == 2
    assert "strong_only" in done.err
