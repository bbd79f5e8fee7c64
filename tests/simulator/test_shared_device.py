"""Two engines on the same devices: iterations in turns, nothing lost, and no cost while the other one is idle."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from costmodel.deployment import deploy, kv_capacity_tokens, weights_per_device_bytes
from hwprofiles.errors import InputError
from simulator.case import prepare
from simulator.engine import Engine
from simulator.jobs import EngineJob
from simulator.outcome import Evaluator, terms_of
from simulator.run import simulate
from simulator.sampling import draw_samples, inputs
from simulator.scenario_file import load_scenario
from simulator.shared_device import share_devices

SHARED = [
    "weak.n_devices=8",
    "weak.memory_share=0.2",
    "strong.memory_share=0.7",
    "strong.share_devices_with=weak",
    "workload.n=4",
]


def run(linear_cost, jobs, *, shared=True, skip_ahead=True, limits=({}, {})):
    """Two engines with their own (time, job) lists: results of each, engines, iterations of both by start, end."""
    env = simpy.Environment()
    log = []
    engines = [
        Engine(env, linear_cost(**own), skip_ahead=skip_ahead, log=lambda e, i=i: log.append((e.start_s, e.time_s, i)))
        for i, own in enumerate(limits)
    ]
    if shared:
        share_devices([engines])
    results = [[], []]

    def client(i, at_s, job):
        yield env.timeout(at_s)
        results[i].append((yield engines[i].submit(job)))

    env.run(env.all_of([env.process(client(i, at_s, job)) for i in (0, 1) for at_s, job in jobs[i]]))
    return results, engines, sorted(log), env.now


def test_two_that_always_work_take_turns(linear_cost):
    # 40 decode iterations each of 11 ms and 5.5 ms or so: the pair of them lasts as long as both
    jobs = [[(0.0, EngineJob("a", 10, 0, 41))], [(0.0, EngineJob("b", 10, 0, 41))]]
    _, engines, log, end_s = run(linear_cost, jobs, limits=({}, {"fixed_s": 0.005}))
    assert [i for *_, i in log] == [0, 1] * 41
    assert end_s == pytest.approx(sum(e.busy_s for e in engines), rel=1e-12)
    for (start, time, _), (after, *_) in pairwise(log):
        assert after == pytest.approx(start + time, rel=1e-12)


def test_an_idle_neighbour_costs_nothing(linear_cost):
    jobs = [[(0.5 * i, EngineJob(i, 40 + i, 0, 30)) for i in range(5)], []]
    together, alone = (run(linear_cost, jobs, shared=s) for s in (True, False))
    assert [r.finish_s for r in together[0][0]] == [r.finish_s for r in alone[0][0]]
    assert together[1][0].busy_s == alone[1][0].busy_s


arrivals = st.lists(
    st.tuples(
        st.floats(0, 3), st.builds(EngineJob, st.integers(0, 2), st.integers(1, 90), st.just(0), st.integers(1, 50))
    ),
    max_size=6,
)


@given(arrivals, arrivals)
def test_work_is_conserved_and_iterations_never_overlap(linear_cost, a, b):
    if not a and not b:
        return
    small = {"kv_tokens": 320, "max_seqs": 3}
    results, engines, log, _ = run(linear_cost, [a, b], limits=(small, small))
    assert [len(r) for r in results] == [len(a), len(b)]
    for (start, time, _), (after, *_) in pairwise(log):
        assert after >= start + time - 1e-9
    for found, engine in zip(results, engines, strict=True):
        charged = sum(sum(s[-1] for _, s in r.prefill) + r.decode[-1] for r in found)
        assert charged == pytest.approx(engine.busy_s, rel=1e-9, abs=1e-12)
        assert engine.n_outstanding == 0
        for r in found:
            parts = r.host_s + r.queued_s + sum(r.pass_s) + r.decode_s + r.stalled_s
            assert r.finish_s - r.submit_s == pytest.approx(parts, abs=1e-9)


@given(arrivals, arrivals)
def test_skipping_ahead_changes_nothing(linear_cost, a, b):
    if not a and not b:
        return
    skipped, plain = (run(linear_cost, [a, b], skip_ahead=s)[0] for s in (True, False))
    for x, y in zip(skipped, plain, strict=True):
        np.testing.assert_allclose(sorted(r.finish_s for r in x), sorted(r.finish_s for r in y), rtol=1e-9)


def test_memory_is_split():
    whole, half = (deploy("Qwen/Qwen3.5-4B", "h200", memory_share=m) for m in (None, 0.2))
    assert kv_capacity_tokens(half) < 0.25 * kv_capacity_tokens(whole)
    assert weights_per_device_bytes(half) == weights_per_device_bytes(whole)
    with pytest.raises(InputError, match="memory_share"):
        deploy("Qwen/Qwen3.5-4B", "h200", memory_share=0.0)


def test_devices_are_paid_once():
    case = prepare(load_scenario("retail-h200", SHARED))
    ev = Evaluator(case, draw_samples(inputs(case), 16, 0))
    spec, weak = (
        terms_of(case, name, ev.outcome(name, 2).central, "money", None) for name in ("spec_agent", "weak_only")
    )
    assert set(spec) == {"strong devices"}
    assert set(weak) == {"weak devices"}


def test_company_on_the_same_devices_costs_time():
    apart, together = (
        simulate(load_scenario("retail-h200", [*keys, "load.concurrency=4", "load.n_trajectories=6"]), "spec_agent", 0)
        for keys in ([k for k in SHARED if "share_devices" not in k], SHARED)
    )
    mean = [r.trajectories["time_s"].mean() for r in (apart, together)]
    assert mean[1] > mean[0]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("weak.n_devices=4", "same n_devices"),
        ("weak.memory_share=", "needs weak.memory_share"),
        ("weak.memory_share=0.4", "at most 1 together"),
        ("weak.share_devices_with=weak", "names the model itself"),
        ("strong.replicas=2", "same replicas"),
    ],
)
def test_what_cannot_be_shared_is_refused(changed, message):
    with pytest.raises(InputError, match=message):
        load_scenario("retail-h200", [*SHARED, changed])
