"""The engine against queueing theory (batch size one, one iteration a job), and the closed forms against each other."""

from __future__ import annotations

import math
from itertools import islice

import numpy as np
import pytest
import simpy

from costmodel.cost import QUANTITIES
from costmodel.request import CacheRule
from hwprofiles.errors import InputError
from simulator.engine import Engine
from simulator.jobs import EngineJob
from simulator.load import poisson_gaps, streams
from simulator.theory import md1_wait_s, mg1_wait_s, mm1_wait_s, mmc_wait_s

N_SEEDS, N_JOBS, N_WARM = 10, 12_000, 2_000
RATE, SERVICE_S = 0.7, 1.0


class DrawnService:
    """One job at a time; each takes the next number of a list."""

    rule = CacheRule(block_tokens=16, chunk_tokens=16)
    kv_tokens = 1 << 12
    max_seqs = 1

    def __init__(self, services):
        self.services = iter(services)

    slopes = ()

    def decode_fixed(self, n_seqs):
        return (0.0,) * len(QUANTITIES)

    def prefill_added(self, passes, n_decode):
        return [(*(0.0,) * (len(QUANTITIES) - 1), next(self.services))]

    def request_s(self, prompt_tokens):
        return 0.0


def mean_wait_s(seed, draw):
    rng = streams(seed, "arrivals", "service")
    env = simpy.Environment()
    engine = Engine(env, DrawnService(draw(rng["service"]).tolist()))
    waits = []

    def source():
        for gap in islice(poisson_gaps(RATE, rng["arrivals"]), N_JOBS):
            yield env.timeout(gap)
            engine.submit(EngineJob(0, 1, 0, 1)).callbacks.append(lambda e: waits.append(e.value.queued_s))

    env.process(source())
    env.run()
    assert len(waits) == N_JOBS
    return float(np.mean(waits[N_WARM:]))


@pytest.mark.parametrize(
    ("draw", "expected_s"),
    [
        (lambda rng: rng.exponential(SERVICE_S, N_JOBS), mm1_wait_s(RATE, SERVICE_S)),
        (lambda rng: np.full(N_JOBS, SERVICE_S), md1_wait_s(RATE, SERVICE_S)),
    ],
    ids=["M/M/1", "M/D/1"],
)
def test_waits_match_theory(draw, expected_s):
    waits = [mean_wait_s(seed, draw) for seed in range(N_SEEDS)]
    error_s = np.std(waits, ddof=1) / math.sqrt(N_SEEDS)
    assert error_s < 0.05 * expected_s  # precise enough to notice a missing half service time
    assert abs(np.mean(waits) - expected_s) < 4 * error_s


def test_known_values():
    assert mm1_wait_s(0.7, 1.0) == pytest.approx(0.7 / 0.3)
    assert md1_wait_s(0.7, 1.0) == pytest.approx(0.7 / 0.6)
    assert mg1_wait_s(0.5, 1.0, 3.0) == pytest.approx(2.0)
    assert mm1_wait_s(0.0, 1.0) == 0
    # Erlang C for c = 2, a = 1: C = 1/3, so W = 1/3
    assert mmc_wait_s(1.0, 1.0, 2) == pytest.approx(1 / 3)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_special_cases_agree(rate):
    assert mmc_wait_s(rate, 1.0, 1) == pytest.approx(mm1_wait_s(rate, 1.0))
    assert md1_wait_s(rate, 1.0) == pytest.approx(mm1_wait_s(rate, 1.0) / 2)
    assert mmc_wait_s(2 * rate, 1.0, 2) < mm1_wait_s(rate, 1.0)


@pytest.mark.parametrize("call", [lambda: mm1_wait_s(1.0, 1.0), lambda: mmc_wait_s(2.0, 1.0, 2)])
def test_an_unstable_queue_has_no_mean_wait(call):
    with pytest.raises(InputError, match="must be below"):
        call()


@pytest.mark.parametrize("bad", [(-1.0, 1.0, 1), (math.nan, 1.0, 1), (1.0, math.inf, 1), (0.1, 1.0, 0)])
def test_nonsense_is_refused(bad):
    with pytest.raises(InputError):
        mmc_wait_s(*bad)
