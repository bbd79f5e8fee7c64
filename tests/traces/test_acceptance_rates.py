"""Acceptance: the published pair, small pairs counted by hand, judgements, the command."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace

import pytest

from costmodel.trajectory import Effect, Step, ToolCall, Trajectory, Workload
from hwprofiles.errors import InputError
from simulator.agreement import agreement
from simulator.judgements import from_judgements
from simulator.rates import wilson
from simulator.traces.raw import argument_key, loose_key
from simulator.workloads import workload


def run(calls, task="1", outcome=1.0):
    tools = tuple(ToolCall(name=name, effect=Effect(effect), arguments=args) for name, effect, args in calls)
    return Trajectory(
        id=f"t{task}",
        source_format="x",
        task=task,
        outcome=outcome,
        steps=(Step(index=0, effect=Effect.READ, tools=tools),),
    )


def work(*runs, name="w"):
    return Workload(name=name, trajectories=tuple(runs))


A, B, C = ("a", "read", "1"), ("b", "read", "2"), ("c", "write", "3")


def test_the_bundled_retail_pair_gives_the_published_rates():
    """89 solved tasks; literal 0.85 (reads 0.86, writes 0.76); in any order 0.90, covering 0.71 of the strong run."""
    found = agreement(workload("retail-gpt-4.1-mini"), workload("retail-gemini-3-flash"))
    assert (found.tasks, found.mean.n) == (89, 429)
    assert found.mean.value == pytest.approx(0.851, abs=5e-4)
    assert found.by_effect["read"].value == pytest.approx(0.863, abs=5e-4)
    assert found.by_effect["write"].value == pytest.approx(0.760, abs=5e-4)
    assert found.any_order.value == pytest.approx(0.902, abs=5e-4)
    assert found.leading_share == pytest.approx(0.709, abs=5e-4)
    assert [round(p.rate.value, 2) for p in found.by_position[:4]] == [0.90, 0.75, 0.93, 0.91]
    for rate in (found.mean, found.any_order, *found.by_effect.values(), *(p.rate for p in found.by_position)):
        assert 0 <= rate.low <= rate.value <= rate.high <= 1


def test_a_model_agrees_with_its_own_trace():
    found = agreement(workload("airline"), workload("airline"))
    assert (found.mean.value, found.any_order.value, found.leading_share) == (1, 1, 1)
    assert found.mean.low < 1  # a handful of tasks proves nothing


def test_comparison_stops_at_the_first_difference():
    found = agreement(work(run([A, B, C])), work(run([A, C, B])))
    assert [(p.position, p.rate.value, p.rate.n) for p in found.by_position] == [(0, 1.0, 1), (1, 0.0, 1)]
    assert {k: (v.value, v.n) for k, v in found.by_effect.items()} == {"read": (1.0, 1), "write": (0.0, 1)}
    assert (found.any_order.value, found.leading_share) == (1.0, 1.0)


def test_any_order_uses_each_call_once():
    found = agreement(work(run([A, A, B])), work(run([A, B])))
    assert (found.any_order.value, found.any_order.n, found.leading_share) == (0.5, 2, 0.5)


def test_only_tasks_that_the_strong_model_solved():
    weak = work(run([A]), run([B], "2"), run([C], "3"))
    strong = work(run([A]), run([A], "2", outcome=0.0))
    assert (agreement(weak, strong).tasks, agreement(weak, strong).mean.value) == (1, 1.0)
    with pytest.raises(InputError, match="solved none"):
        agreement(weak, work(run([A], outcome=0.0)))
    with pytest.raises(InputError, match="no task occurs in both"):
        agreement(weak, work(run([A], "9")))
    assert agreement(weak, work(run([A], outcome=None))).tasks == 1


def test_pure_calls_replies_and_handovers_are_left_out():
    extra = [("calc", "pure", "x"), ("say", "reply", "y"), ("transfer_to_human_agents", "write", "z")]
    assert agreement(work(run([*extra, A])), work(run([A]))).mean.n == 1
    with pytest.raises(InputError, match="no call to compare"):
        agreement(work(run(extra)), work(run(extra)))
    assert agreement(work(run([A, B])), work(run([A, C])), ignore=("b", "c")).mean.value == 1


def test_tools_behind_mcp_are_compared_by_their_own_name():
    other = ("mcp__shop__a", "read", "1")
    assert agreement(work(run([other])), work(run([A]))).mean.value == 1


def test_arguments_are_compared_after_canonical_form():
    loose, exact = argument_key({"n": 2.0, "zip": " AB "}), argument_key({"zip": "ab", "n": "2", "note": None})
    assert loose_key(loose) == exact
    assert loose != exact  # letter by letter they differ
    assert loose_key(argument_key("/Patient?b=2&a=X Y")) != loose_key(argument_key("/Patient?a=X&b=2"))
    assert loose_key(argument_key("/Patient?b=2&a=x")) == loose_key(argument_key("/patient?a=X&b=2"))
    assert argument_key({"a": True}) == argument_key({"a": "true"})
    assert argument_key({"a": [1, 2]}) != argument_key({"a": [2, 1]})
    assert argument_key(None) == argument_key({})


def test_wilson_by_hand():
    """8 of 10 at 90 %: z = 1.6449; centre (0.8 + 0.13528)/(1.27055), half-width 1.29460 * sqrt(0.022764)."""
    assert wilson(8, 10) == pytest.approx((0.54079, 0.93144), abs=1e-5)
    assert wilson(0, 0) == (0.0, 1.0)


def test_tasks_are_resampled_not_calls():
    """Ten tasks of forty equal calls each tell less than four hundred independent calls would."""
    tasks = [str(i) for i in range(10)]
    strong = work(*(run([("r", "read", str(j)) for j in range(40)], t) for t in tasks))
    weak = work(*(run([("r", "read", str(j) if i < 5 else "no") for j in range(40)], t) for i, t in enumerate(tasks)))
    found = agreement(weak, strong).mean
    low, high = wilson(200, 205)
    assert found.n == 205
    assert found.low < low - 0.01
    assert found.high >= high


def test_scenario_lines_are_toml():
    tasks = [run([A] * 7, str(i)) for i in range(3)]
    found = agreement(work(*tasks, name='we"ak\\\n'), work(*tasks, name="strong"))
    line = found.toml()
    assert line.count("\n") == 1  # one line, so that it fits under a [protocol] that is there already
    table = tomllib.loads(f"[protocol]\nwindow = 4\n{line}")["protocol"]["acceptance"]
    assert table == found.band()
    assert (table["value"], table["tier"]) == (1, "measured")
    assert table["low"] <= table["value"] <= table["high"]
    assert table["source"].startswith("trace pair: literal agreement, a lower bound")
    assert all(words in table["source"] for words in ("weak we'ak", "strong strong", "replies are not compared"))


@pytest.mark.parametrize(("tasks", "calls"), [(1, 40), (2, 20), (19, 1), (3, 6)])
def test_too_few_comparisons_give_no_line(tasks, calls):
    trace = work(*(run([A] * calls, str(i)) for i in range(tasks)))
    found = agreement(trace, trace)
    with pytest.raises(InputError, match=f"{tasks * calls} calls compared in {tasks} task"):
        found.toml()


def test_replies_of_the_strong_model_are_counted_as_not_compared():
    reply = Step(index=1, effect=Effect.REPLY)
    strong = run([A])
    strong = replace(strong, steps=(*strong.steps, reply, replace(reply, index=2)))
    assert agreement(work(run([A])), work(strong)).not_compared == 2


CSV = "task,step,position,effect,accepted\nt1,0,0,read,1\nt1,1,1,write,no\nt2,0,0,read,TRUE\n\nt2,4,0,reply,0\n"


def test_judgements(tmp_path):
    path = tmp_path / "j.csv"
    path.write_text(CSV, encoding="utf-8")
    found = from_judgements(path)
    assert (found.tasks, found.mean.value, found.mean.n, found.any_order) == (2, 0.5, 4, None)
    assert [(p.position, p.rate.n) for p in found.by_position] == [(0, 3), (1, 1)]
    assert list(found.by_effect) == ["read", "write", "reply"]
    assert found.band()["source"].startswith("judgements: j.csv")
    assert found.not_compared is None
    with pytest.raises(InputError, match="4 steps judged in 2 tasks"):
        found.toml()


BAD = {
    "the file is empty": "",
    "holds no judgement": "task,step,position,effect,accepted\n",
    "column 'accepted' is missing": "task,step,position,effect\n",
    "did you mean 'accepted'": CSV.replace("accepted", "acepted"),
    "j.csv:2: 4 values for 5 columns": CSV.replace("t1,0,0,read,1", "t1,0,0,read"),
    "j.csv:2: step": CSV.replace("t1,0,0,read,1", "t1,-1,0,read,1"),
    "did you mean 'read'": CSV.replace("t1,0,0,read,1", "t1,0,0,raed,1"),
    "accepted: expected": CSV.replace("t1,0,0,read,1", "t1,0,0,read,maybe"),
    "task is empty": CSV.replace("t1,0,0,read,1", ",0,0,read,1"),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_judgements(tmp_path, message):
    path = tmp_path / "j.csv"
    path.write_text(BAD[message], encoding="utf-8")
    with pytest.raises(InputError) as caught:
        from_judgements(path)
    assert message in str(caught.value)


def test_the_command_gives_the_contracts_keys(run_cli):
    done = run_cli("acceptance", "--weak", "retail-gpt-4.1-mini", "--strong", "retail-gemini-3-flash", "--json")
    found = json.loads(done.out)
    assert done.code == 0
    assert set(found["mean"]) == {"value", "low", "high", "n"}
    assert {"by_position", "by_effect", "any_order", "toml"} <= set(found)
    assert found["toml_refused"] is None
    shown = run_cli("acceptance", "--weak", "retail-gpt-4.1-mini", "--strong", "retail-gemini-3-flash").out
    assert f"put this line under [protocol]:\n{found['toml']}" in shown
    assert f"{found['steps_not_compared']} steps of the strong model" in shown
    assert run_cli("acceptance", "--weak", "retail", "--strong", "retail-gemini-3-flash", "--json").out == done.out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "give --weak TRACE and --strong TRACE"),
        (("--weak", "retail"), "give --weak TRACE and --strong TRACE"),
        (("--weak", "retial", "--strong", "retail"), "did you mean 'retail'"),
        (("--judgements", "none.csv"), "cannot be read"),
        (("--judgements", "none.csv", "--weak", "retail"), "stands alone"),
    ],
)
def test_the_command_refuses_with_one_line(run_cli, args, message):
    done = run_cli("acceptance", *args)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.count("\n") == 1


def test_traces_of_other_domains_are_named():
    weak = work(replace(run([A]), domain="shop"))
    strong = work(replace(run([A]), domain="bank"))
    assert any("different domains" in n for n in agreement(weak, strong).notes)


def test_literal_agreement_is_never_above_the_normalised_one():
    strong = work(run([("r", "read", argument_key({"zip": "ab"})), ("w", "write", argument_key({"q": "x"}))]))
    weak = work(run([("r", "read", argument_key({"zip": " AB"})), ("w", "write", argument_key({"q": "x"}))]))
    found = agreement(weak, strong)
    assert (found.mean.value, found.mean.n) == (1.0, 2)
    assert (found.literal.value, found.literal.n) == (0.0, 1)


def test_rejections_say_how_far_the_draft_came():
    """Task 1: two calls kept, one dropped; task 2 agrees; task 3: none kept, two dropped."""
    strong = work(*(run([("r", "read", "a"), ("r", "read", "b"), ("r", "read", "c")], str(i)) for i in (1, 2, 3)))
    weak = work(
        run([("r", "read", "a"), ("r", "read", "b"), ("r", "read", "no")], "1"),
        run([("r", "read", "a"), ("r", "read", "b"), ("r", "read", "c")], "2"),
        run([("r", "read", "no"), ("r", "read", "b")], "3"),
    )
    found = agreement(weak, strong).rejections
    assert (found.tasks, found.rejected) == (3, 2)
    assert (found.kept_calls.mean, found.kept_calls.p90) == (1.0, 2)
    assert (found.dropped_calls.mean, found.dropped_calls.n) == (1.5, 2)
