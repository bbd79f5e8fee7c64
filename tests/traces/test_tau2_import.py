"""tau2 results: what is a step, what counts as an effect, and the traps that real files hold."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from costmodel.trajectory import Effect
from hwprofiles.errors import InputError
from simulator.traces import read_trace


def usage(prompt, output, **more):
    return {"prompt_tokens": prompt, "completion_tokens": output, **more}


def message(role, at, **fields):
    return {"role": role, "timestamp": f"2026-01-01T00:00:{at:09.6f}", **fields}


def call(name, call_id, requestor="assistant", **arguments):
    return {"id": call_id, "name": name, "arguments": arguments, "requestor": requestor}


def simulation(messages, **fields):
    return {"task_id": "7", "trial": 0, "reward_info": {"reward": 1.0}, "messages": messages, **fields}


def results(*simulations, domain="retail"):
    info = {"environment_info": {"domain_name": domain}, "agent_info": {"llm": "some-model"}}
    return {"info": info, "tasks": [], "simulations": list(simulations)}


def conversation():
    """Greeting, question, lookup of two orders, answer, consent, write, goodbye."""
    return [
        message("assistant", 0, content="Hello!", usage=None),
        message("user", 2, content="my order", usage=usage(50, 5)),
        message(
            "assistant",
            3,
            usage=usage(1000, 30, cache_read_tokens=900, reasoning_tokens=10),
            tool_calls=[call("get_order_details", "a", order_id="#1"), call("get_user_details", "b", user_id="u")],
        ),
        message("tool", 3.1, id="a", error=False),
        message("tool", 3.4, id="b", error=True),
        message("assistant", 5, content="Shall I?", usage=usage(1220, 40, cache_read_tokens=1024, reasoning_tokens=0)),
        message("user", 9, content="yes"),
        message(
            "assistant",
            10,
            usage=usage(1270, 20, cache_read_tokens=0, reasoning_tokens=0),
            tool_calls=[call("cancel_pending_order", "c", order_id="#1")],
        ),
        message("tool", 10.5, id="c", error=False),
        message("assistant", 11, content="Done.", usage=usage(1350, 8, cache_read_tokens=0, reasoning_tokens=0)),
    ]


@pytest.fixture
def load(tmp_path: Path):
    def read(document, **options):
        path = tmp_path / "results.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        return read_trace(path, **options)

    return read


def only(found):
    (trajectory,) = found.workload.trajectories
    return trajectory


def test_greeting_is_no_step_and_effects_follow_the_benchmark(load):
    found = load(results(simulation(conversation())))
    trajectory = only(found)
    assert found.format == "tau2"
    assert [s.effect for s in trajectory.steps] == [Effect.READ, Effect.REPLY, Effect.WRITE, Effect.REPLY]
    assert (trajectory.task, trajectory.domain, trajectory.outcome) == ("7", "retail", 1.0)
    assert found.missing == ()
    assert found.warnings == ("tool times are gaps between messages (median 0.3 s) and may be overhead of the harness",)


def test_tokens_obey_the_context_equation(load):
    steps = only(load(results(simulation(conversation())))).steps
    first = steps[0]
    assert (first.output_tokens, first.visible_tokens, first.cached_prompt_tokens) == (30, 20, 900)
    for now, after in pairwise(steps):
        assert after.prompt_tokens == now.prompt_tokens + now.visible_tokens + now.observation_tokens
    assert steps[-1].observation_tokens == 0


def test_times_start_at_the_first_step_and_leave_the_user_out(load):
    steps = only(load(results(simulation(conversation())))).steps
    assert [(s.start_s, s.end_s) for s in steps[:2]] == [(0.0, 1.0), pytest.approx((1.4, 3.0))]
    assert [s.user_gap_s for s in steps] == [None, 0.0, pytest.approx(4.0), 0.0]
    assert [s.tool_s for s in steps] == [pytest.approx(0.4), 0.0, pytest.approx(0.5), 0.0]
    assert [c.error for c in steps[0].tools] == [False, True]


def test_generation_time_beats_the_gap_between_messages(load):
    messages = conversation()
    messages[2]["generation_time_seconds"] = 0.25
    assert only(load(results(simulation(messages)))).steps[0].end_s == pytest.approx(0.25)


def test_text_beside_a_read_is_a_reply_and_beside_a_write_stays_a_write(load):
    messages = conversation()
    messages[2]["content"] = messages[7]["content"] = "One moment."
    effects = [s.effect for s in only(load(results(simulation(messages)))).steps]
    assert effects == [Effect.REPLY, Effect.REPLY, Effect.WRITE, Effect.REPLY]


def test_a_step_takes_its_strictest_call(load):
    messages = conversation()
    messages[2]["tool_calls"][1]["name"] = "modify_user_address"
    assert only(load(results(simulation(messages)))).steps[0].effect is Effect.WRITE


def test_tools_of_another_domain_are_unknown_until_a_map_names_them(load):
    found = load(results(simulation(conversation()), domain="bank"))
    assert only(found).steps[0].effect is Effect.UNKNOWN
    assert any("not declared" in w for w in found.warnings)
    named = load(results(simulation(conversation()), domain="bank"), effects={"get_*": "read", "*": "write"})
    assert [s.effect for s in only(named).steps] == [Effect.READ, Effect.REPLY, Effect.WRITE, Effect.REPLY]


def test_customer_tools_are_not_the_agents(load):
    messages = conversation()
    messages[6:7] = [
        message("user", 6, content=None, tool_calls=[call("reboot_device", "x", requestor="user")]),
        message("tool", 6.5, id="x", requestor="user", error=False),
        message("user", 9, content="rebooted"),
    ]
    steps = only(load(results(simulation(messages)))).steps
    assert [c.name for s in steps for c in s.tools] == ["get_order_details", "get_user_details", "cancel_pending_order"]
    assert steps[2].user_gap_s == pytest.approx(4.0)


def test_transfer_to_a_human_is_held(load):
    messages = conversation()
    messages[7]["tool_calls"][0]["name"] = "transfer_to_human_agents"
    assert only(load(results(simulation(messages)))).steps[2].effect is Effect.WRITE


def test_thinking_outside_the_completion_is_added_to_the_output(load):
    messages = conversation()
    messages[2]["usage"] = usage(1000, 30, reasoning_tokens=100, total_tokens=1130)
    step = only(load(results(simulation(messages)))).steps[0]
    assert (step.output_tokens, step.visible_tokens) == (130, 30)


def test_a_text_part_that_is_the_whole_means_no_cache_and_no_thinking(load):
    messages = conversation()
    messages[2]["usage"] = usage(
        1000, 30, prompt_tokens_details={"text_tokens": 1000}, completion_tokens_details={"text_tokens": 30}
    )
    step = only(load(results(simulation(messages)))).steps[0]
    assert (step.cached_prompt_tokens, step.visible_tokens) == (0, 30)


def test_unknown_cache_is_none_never_zero(load):
    messages = conversation()
    messages[2]["usage"] = usage(1000, 30)
    found = load(results(simulation(messages)))
    assert only(found).steps[0].cached_prompt_tokens is None
    assert found.missing == ("cache", "thinking")


def test_without_usage_the_steps_are_there_and_usage_is_missing(load):
    messages = conversation()
    for m in messages:
        m.pop("usage", None)
    found = load(results(simulation(messages)))
    assert [s.effect for s in only(found).steps] == [Effect.READ, Effect.REPLY, Effect.WRITE, Effect.REPLY]
    assert "usage" in found.missing
    assert any("no step has token counts" in w for w in found.warnings)


def test_scripted_replies_beside_real_ones_are_no_steps(load):
    messages = conversation()
    messages.append(message("assistant", 12, content="Bye.", usage=None))
    found = load(results(simulation(messages)))
    assert len(only(found).steps) == 4
    assert any("scripted" in w for w in found.warnings)


def test_compaction_never_gives_a_negative_observation(load):
    messages = conversation()
    messages[5]["usage"]["prompt_tokens"] = 400
    found = load(results(simulation(messages)))
    assert only(found).steps[0].observation_tokens == 0
    assert any("shorter" in w for w in found.warnings)


def test_growth_below_the_visible_output_cuts_the_visible_output(load):
    messages = conversation()
    messages[5]["usage"]["prompt_tokens"] = 1015
    found = load(results(simulation(messages)))
    assert (only(found).steps[0].visible_tokens, only(found).steps[0].observation_tokens) == (15, 0)
    assert any("cut to the growth" in w for w in found.warnings)


def test_equal_durations_everywhere_are_placeholders(load):
    sims = [simulation(conversation(), task_id=str(i), duration=60.0) for i in range(3)]
    found = load(results(*sims))
    assert all(s.start_s is None for t in found.workload.trajectories for s in t.steps)
    assert "times" in found.missing
    assert any("placeholders" in w for w in found.warnings)


def test_mixed_time_zones_drop_the_times(load):
    messages = conversation()
    messages[3]["timestamp"] += "Z"
    found = load(results(simulation(messages)))
    assert only(found).steps[0].start_s is None
    assert any("zone" in w for w in found.warnings)


def test_time_running_backwards_drops_that_steps_times(load):
    messages = conversation()
    messages[5]["timestamp"] = "2025-01-01T00:00:00"
    found = load(results(simulation(messages)))
    assert only(found).steps[1].start_s is None
    assert any("ends before it starts" in w for w in found.warnings)


def test_long_pauses_are_kept_and_named(load):
    messages = conversation()
    messages[9]["timestamp"] = "2026-01-01T00:13:00"
    assert any("rate-limit" in w for w in load(results(simulation(messages))).warnings)


def test_results_without_calls_and_calls_without_results_are_named(load):
    messages = conversation()
    messages[3]["id"] = "other"
    found = load(results(simulation(messages)))
    assert any("answers no call" in w for w in found.warnings)
    assert any("has no result" in w for w in found.warnings)
    assert only(found).steps[0].tools[0].latency_s is None
    assert "tool_times" in found.missing


def test_trials_are_trajectories_of_their_own(load):
    found = load(results(simulation(conversation()), simulation(conversation(), trial=1)))
    assert [(t.id, t.trial) for t in found.workload.trajectories] == [("retail-7", 0), ("retail-7-trial1", 1)]


def test_the_same_task_from_two_runs_is_numbered(load):
    found = load(results(simulation(conversation(), id="x"), simulation(conversation(), id="y")))
    assert [t.id for t in found.workload.trajectories] == ["retail-7", "retail-7~2"]


def test_the_same_simulation_twice_is_refused(load):
    with pytest.raises(InputError, match="occurs twice"):
        load(results(simulation(conversation(), id="x"), simulation(conversation(), id="x")))


@pytest.mark.parametrize("value", [-1, 1.5, "many", True, 1e999, 10**12])
def test_counts_out_of_range_are_refused_with_their_place(load, value):
    messages = conversation()
    messages[2]["usage"]["prompt_tokens"] = value
    with pytest.raises(InputError, match=r"results\.json.*(prompt_tokens|NaN|Infinity)"):
        load(results(simulation(messages)))


def test_one_simulation_alone_is_read(load):
    assert len(load(simulation(conversation())).workload.trajectories) == 1
