"""Runs on several cores are those of one, in order; an error comes out as itself."""

from __future__ import annotations

import signal

import pytest

from hwprofiles.errors import InputError
from simulator.case import prepare
from simulator.forked import in_order
from simulator.replication import replicate
from simulator.run import simulate
from simulator.scenario_file import load_scenario


def test_answers_come_in_the_order_of_the_jobs():
    offset = 10
    assert list(in_order(lambda x: x + offset, range(7), 2)) == [x + offset for x in range(7)]
    assert list(in_order(lambda x: x + offset, range(3), 1)) == [10, 11, 12]


def test_an_error_is_the_first_failing_job_s_own():
    def work(x):
        if x == 1:
            raise InputError("job 1 is wrong")
        return x

    answers = in_order(work, range(3), 2)
    assert next(answers) == 0
    with pytest.raises(InputError, match="job 1 is wrong"):
        list(answers)


def test_an_interrupt_is_left_to_the_parent():
    """The terminal sends Ctrl-C to the children too; raised there it prints a traceback for each of them."""
    ignored = in_order(lambda _: signal.getsignal(signal.SIGINT) == signal.SIG_IGN, range(2), 2)
    assert list(ignored) == [True, True]


def test_a_run_of_another_process_is_the_same_run(tmp_path):
    case = prepare(load_scenario("speed", ["load.n_trajectories=60"]))
    told = []
    runs = replicate(case, ["spec_agent"], out=tmp_path, before=lambda name, seed: told.append(seed))["spec_agent"]
    assert told == [0, 1]
    for run in runs:
        own = simulate(case, "spec_agent", run.meta["seed"])
        assert run.summary() == own.summary()
        for name, frame in own.frames.items():
            assert run.frames[name].equals(frame), name
