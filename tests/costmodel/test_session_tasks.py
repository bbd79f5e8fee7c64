"""Trajectories made ready: who decodes what, what enters the context, what is refused."""

from __future__ import annotations

import pytest

from costmodel.protocol import Role
from costmodel.task import Authoring, make_task, make_tasks
from costmodel.trajectory import Effect, Step, Trajectory
from hwprofiles import InputError


def trace(*steps):
    return Trajectory(id="t1", source_format="test", steps=steps)


def a_step(index=0, **changes):
    known = {"prompt_tokens": 1000, "output_tokens": 150, "visible_tokens": 50, "observation_tokens": 70, "tool_s": 0.5}
    return Step(index=index, effect=Effect.READ, **{**known, **changes})


def test_thinking_is_decoded_and_leaves_the_context():
    task = make_task(trace(a_step(), a_step(1)), Authoring())
    one = task.steps[0]
    assert (one.visible, one.observation, one.tool_s) == (50, 70, 0.5)
    assert one.decoded(Role.WEAK) == one.decoded(Role.STRONG) == 150
    assert task.contexts[Role.WEAK] == (1000, 1120, 1240)


@pytest.mark.parametrize(
    ("how", "weak", "strong"),
    [
        (Authoring(weak_thinks=False), 50, 150),
        (Authoring(strong_thinks=False), 150, 50),
        (Authoring(thinking_tokens=300), 350, 350),
        (Authoring(thinking_tokens=300, weak_thinks=False), 50, 350),
        (Authoring(verbosity=2.0), 300, 150),
        (Authoring(verbosity=0.1), 50, 150),  # never below what enters the context
    ],
)
def test_each_model_decodes_its_own_tokens(how, weak, strong):
    one = make_task(trace(a_step()), how).steps[0]
    assert (one.decoded(Role.WEAK), one.decoded(Role.STRONG)) == (weak, strong)


def test_each_model_may_have_its_own_prompt():
    task = make_task(trace(a_step()), Authoring(weak_prompt_tokens=300))
    assert dict(task.prompts) == {Role.WEAK: 300, Role.STRONG: 1000}


def test_an_observation_that_is_not_stated_is_the_growth_of_the_next_prompt():
    steps = (a_step(observation_tokens=None), a_step(1, prompt_tokens=1300, observation_tokens=None))
    found = make_task(trace(*steps), Authoring()).steps
    assert [s.observation for s in found] == [250, 0]  # 1300 - 1000 - 50; nobody pays for the last one


def test_steps_are_numbered_by_position():
    task = make_task(trace(a_step(4), a_step(9)), Authoring())
    assert [s.index for s in task.steps] == [0, 1]


def test_an_empty_output_still_takes_a_token():
    assert make_task(trace(a_step(output_tokens=0, visible_tokens=0)), Authoring()).steps[0].visible == 1


@pytest.mark.parametrize("missing", ["prompt_tokens", "output_tokens"])
def test_a_trace_without_usage_cannot_be_priced(missing):
    with pytest.raises(InputError, match="'t1' step 0: no token usage"):
        make_task(trace(a_step(**{missing: None})), Authoring())


def test_a_trajectory_without_steps_is_refused():
    with pytest.raises(InputError, match="has no steps"):
        make_tasks([trace(a_step()), trace()], Authoring())


def test_a_shared_prefix_lies_within_every_first_prompt():
    assert make_task(trace(a_step()), Authoring(shared_prefix_tokens=1000)).shared_tokens == 1000
    with pytest.raises(InputError, match="1001 is longer than the first weak prompt of trajectory 't1', 1000 tokens"):
        make_task(trace(a_step()), Authoring(shared_prefix_tokens=1001))
