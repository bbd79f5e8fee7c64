"""A calibration of a server whose factors are known: they lie in its intervals; what it cannot tell it names."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np
import pytest

from costmodel.deployment import deploy, factor_values
from hwprofiles.errors import InputError
from validate.calibrate import Evidence, felt, fit
from validate.calibrate_missing import missing
from validate.calibrate_model import Point, Pricer
from validate.calibrate_prior import prior
from validate.calibrate_run import calibrate_target
from validate.calibrate_targets import VirtualTarget
from validate.design import Limits, candidates, choose, slopes
from validate.serve_fake import FakeService

ROOM = Limits(max_model_tokens=40_000, kv_tokens=400_000)
NOISE = 0.02


@pytest.fixture(scope="module")
def dep():
    return deploy("Qwen/Qwen3-8B", "h200")


@dataclass(frozen=True)
class Trial:
    """What a seed gave: per identified factor, whether its 90 % interval holds the truth; whether all joint ones do."""

    marginal: dict[str, bool]
    joint: bool


def trial(dep, seed) -> Trial:
    """Draw a server from the prior, calibrate it, look."""
    known = felt(prior(dep), [Pricer(dep, candidates(ROOM)).seconds])
    rng = np.random.default_rng(seed)
    z = known.mean + np.linalg.cholesky(known.covariance) @ rng.standard_normal(len(known.names))
    truth = known.values(z)
    service = FakeService(dep, {**factor_values(dep), **truth})
    found = asyncio.run(calibrate_target(dep, VirtualTarget(service, NOISE, seed), 900.0, seed=seed))
    told = {n for n in found.fitted.prior.names if n not in found.missing}
    inside = {n: e.low <= truth[n] <= e.high for n, e in found.fitted.estimates().items() if n in told}
    wide = found.fitted.estimates(1.0 - 0.01 / len(told))
    return Trial(inside, all(wide[n].low <= truth[n] <= wide[n].high for n in told))


def test_known_factors_are_recovered(dep):
    trials = [trial(dep, seed) for seed in range(3)]
    assert all(t.joint for t in trials)
    for t in trials:
        assert {"request_s", "request_token_s", "gemm_compute", "attention_decode_memory"} <= set(t.marginal)


@pytest.mark.slow
def test_known_factors_are_recovered_in_19_of_20_seeds(dep):
    """Two counts: all factors of a seed at once in joint 99 % intervals; each factor in its own 90 % interval."""
    trials = [trial(dep, seed) for seed in range(20)]
    assert sum(t.joint for t in trials) >= 19
    single = [hit for t in trials for hit in t.marginal.values()]
    assert np.mean(single) >= 0.86


def exact(dep, points, known):
    """Evidence without noise of the bundled factors."""
    pricer = Pricer(dep, points)
    return Evidence(
        seconds=pricer.seconds,
        measured_s=pricer.seconds(known.values(known.mean)),
        sigma=np.full(len(points), 0.04),
        labels=tuple(p.label for p in points),
    )


def test_decode_alone_says_nothing_of_prefill_and_the_answer_says_so(dep):
    everything = candidates(ROOM)
    known = felt(prior(dep), [Pricer(dep, everything).seconds])
    decodes = [p for p in everything if p.kind == "decode"]
    fitted = fit(known, [exact(dep, decodes, known)])
    lacking = missing(dep, fitted, ROOM)
    assert "prefill" in lacking["gemm_compute"]
    assert "prefill" in lacking["request_s"]
    assert "attention_decode_memory" not in lacking
    assert fitted.estimates()["gemm_compute"].left > 0.9


def test_a_design_takes_the_kinds_of_points_that_tell_the_factors_apart(dep):
    known = felt(prior(dep), [Pricer(dep, candidates(ROOM)).seconds])
    chosen = choose(dep, known, ROOM, 900.0)
    assert {p.kind for p in chosen} == {"prefill", "warm", "decode"}
    assert len({p.batch for p in chosen if p.kind == "decode"}) >= 3
    shorter = choose(dep, known, ROOM, 5.0)
    assert 0 < len(shorter) < len(chosen)
    assert choose(dep, known, ROOM, 1e-6) == ()


def test_a_chosen_design_knows_more_than_random_points(dep):
    known = felt(prior(dep), [Pricer(dep, candidates(ROOM)).seconds])
    everything = candidates(ROOM)
    chosen = choose(dep, known, ROOM, 1e9)[:8]

    def bits(points: list[Point] | tuple[Point, ...]) -> float:
        grad = slopes(Pricer(dep, points), known, known.mean)[1]
        inner = np.eye(len(points)) + grad @ known.covariance @ grad.T / 0.04**2
        return float(np.linalg.slogdet(inner)[1])

    rng = np.random.default_rng(0)
    drawn = [bits([everything[i] for i in rng.choice(len(everything), 8, replace=False)]) for _ in range(20)]
    assert bits(chosen) > float(np.median(drawn))


def test_a_server_that_is_ten_times_slower_is_noticed(dep):
    known = felt(prior(dep), [Pricer(dep, candidates(ROOM)).seconds])
    points = candidates(ROOM)[:12]
    one = exact(dep, points, known)
    wrong = Evidence(
        seconds=one.seconds, measured_s=one.measured_s * np.array([10.0, 1.0] * 6), sigma=one.sigma, labels=one.labels
    )
    assert fit(known, [wrong]).misfit > 2.0 > fit(known, [one]).misfit


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_a_time_that_is_none_is_refused(dep, value):
    known = felt(prior(dep), [Pricer(dep, candidates(ROOM)).seconds])
    one = exact(dep, candidates(ROOM)[:1], known)
    with pytest.raises(InputError, match="finite number of seconds above 0"):
        fit(known, [Evidence(seconds=one.seconds, measured_s=np.array([value]), sigma=one.sigma, labels=one.labels)])


def test_no_budget_is_one_line(dep):
    with pytest.raises(InputError, match="longer --budget"):
        asyncio.run(calibrate_target(dep, VirtualTarget(FakeService(dep)), 1e-6))
