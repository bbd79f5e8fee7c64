"""Sobol indices of the verdict's inputs: they add up, follow the bands, and the advice names the largest."""

from __future__ import annotations

import numpy as np
import pytest

from hwprofiles.errors import InputError
from simulator.case import prepare
from simulator.sampling import inputs
from simulator.scenario_file import load_scenario
from simulator.sensitivity import _settles, _two_draws, sensitivity
from simulator.uncertain import Z95


@pytest.fixture(scope="module")
def found():  # type: ignore[no-untyped-def]  # a fixture
    return sensitivity("llama-a100", n_samples=128)


def test_shares_add_up_to_about_one(found) -> None:  # type: ignore[no-untyped-def]
    """First-order indices add up to at most 1, total ones to at least 1, both but for sampling noise."""
    for objective, sources in found.sources.items():
        if sources:
            assert sum(s.first for s in sources) < 1.15, objective
            assert sum(s.total for s in sources) > 0.85, objective
            assert all(s.total > -0.01 for s in sources), objective


def test_an_exact_input_has_no_share(found) -> None:  # type: ignore[no-untyped-def]
    exact = sensitivity(found.scenario.with_(acceptance=0.9), n_samples=64)
    assert "acceptance" in {s.name for s in found.sources["flops"]}
    assert "acceptance" not in {s.name for s in exact.sources["flops"]}


def test_device_factors_do_not_move_counted_work(found) -> None:  # type: ignore[no-untyped-def]
    """FLOPs are counted, not timed."""
    for source in found.sources["flops"]:
        if source.name.endswith("factors"):
            assert abs(source.total) < 0.01


def test_the_advice_names_the_largest_input(found) -> None:  # type: ignore[no-untyped-def]
    top = max(found.sources["time"], key=lambda s: s.first)
    assert top.measure in found.advice("time")
    with pytest.raises(InputError, match="beauty"):
        found.advice("beauty")


def test_same_seed_same_indices() -> None:
    one, two = (sensitivity("llama-a100", n_samples=64).document() for _ in range(2))
    assert one == two


def test_the_two_base_samples_are_independent() -> None:
    case = prepare(load_scenario("llama-a100"))
    known = tuple(i for i in inputs(case) if not i.band.is_exact)
    a, b = _two_draws(known, 512, 0)
    assert a.keys() == b.keys()
    for name, values in a.items():
        if np.ptp(values) > 0:
            assert abs(np.corrcoef(values, b[name])[0, 1]) < 0.15, name


def test_the_chance_to_decide_is_that_of_the_normal_model() -> None:
    """Nothing known: decided only if it is already; all known: always; between: Monte Carlo agrees."""
    assert _settles(0.5, 0.1, 0.0) == 1.0
    assert _settles(0.1, 0.1, 0.0) == 0.0
    assert _settles(0.1, 0.1, 1.0) == pytest.approx(1.0)
    rng = np.random.default_rng(0)
    share, centre, sd = 0.6, 0.1, 0.2
    means = rng.normal(centre, np.sqrt(share) * sd, 200_000)
    decided = np.abs(means) > Z95 * np.sqrt(1 - share) * sd
    assert _settles(centre, sd, share) == pytest.approx(decided.mean(), abs=0.005)
