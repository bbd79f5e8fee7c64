"""Both models at work at once, for real: who is first, what is cancelled, what is carried on, and what never runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from costmodel.protocol import Role
from costmodel.strategies import Settings, strategy
from hwprofiles.errors import InputError
from validate.runner import TaskRunner

PIPE = ("spec_agent_pipelined", 2)
TURNS = 60


class Late:
    """An engine that lets the event loop turn many times before it answers (reviews only, if so told)."""

    def __init__(self, engine: Any, kinds: tuple[str, ...]) -> None:
        self.engine, self.kinds = engine, kinds
        self.cancelled: list[str] = []

    async def ask(self, ask: Any) -> Any:
        if ask.kind in self.kinds:
            try:
                for _ in range(TURNS):
                    await asyncio.sleep(0)
            except asyncio.CancelledError:
                self.cancelled.append(ask.kind)
                raise
        return await self.engine.ask(ask)


def late(role: Role, *kinds: str) -> type[TaskRunner]:
    """A runner whose `role` is late with requests of these kinds."""

    class Slow(TaskRunner):
        def __init__(self, task: Any, how: Any, engines: Any, *rest: Any, **options: Any) -> None:
            super().__init__(task, how, {**engines, role: Late(engines[role], kinds)}, *rest, **options)

    return Slow


def test_drafting_goes_on_under_review_and_is_carried_on(stage: Any) -> None:
    weak = [stage.call("look", i=i) for i in range(4)] + ["Done."]
    assert stage.run(PIPE, weak, ["2", "2", "1"], runner=late(Role.STRONG, "verify")) == "finished"
    assert stage.done == ["look"] * 4  # each read once, though two of them ran under review
    assert [len(e["steps"]) for e in stage.events("committed")] == [2, 2, 1]
    verdicts = [e["id"] for e in stage.events("verdict")]
    effects = [e["id"] for e in stage.events("effect")]
    assert effects[3] < verdicts[0]  # the second pair of reads was there before the first verdict
    assert stage.proof.clean
    assert stage.proof.executed == 1  # the reply


def test_a_write_drafted_ahead_waits_for_its_own_verdict(stage: Any) -> None:
    weak = [stage.call("look"), stage.call("look"), stage.call("change", x=1), "Done."]
    assert stage.run(PIPE, weak, ["2", "1", "1"], runner=late(Role.STRONG, "verify")) == "finished"
    assert stage.done == ["look", "look", "change"]
    verdicts = stage.events("verdict")
    begun = next(e for e in stage.events("executing") if stage_tool(stage, e) == "change")
    assert verdicts[1]["id"] < begun["id"]
    announced = [e for e in stage.events("intent") if e["tool"] == "change"]
    assert [e["round"] for e in announced] == [0, 1]  # drafted in one round, judged in the next
    assert stage.proof.clean
    assert stage.proof.executed == 2


def stage_tool(stage: Any, event: Any) -> str:
    return next(e["tool"] for e in stage.events("intent") if e["slot"] == event["slot"])


def test_what_was_drafted_ahead_of_a_rejection_never_runs(stage: Any) -> None:
    weak = [stage.call("look"), stage.call("look"), stage.call("change", x=1), "Done."]
    strong = ["1", stage.call("look", fixed=1), "1"]
    assert stage.run(PIPE, weak, strong, runner=late(Role.STRONG, "verify")) == "finished"
    assert [(n, a) for n, a, _ in stage.tools.calls] == [("look", {}), ("look", {}), ("look", {"fixed": 1})]
    assert [s["author"] for s in stage.committed] == ["weak", "strong", "weak"]
    assert stage.proof.clean


def test_a_draft_under_way_is_cancelled_by_a_rejection(stage: Any) -> None:
    weak = {("draft", 0): stage.call("look"), ("draft", 1): stage.call("look"), ("draft", 2): "never said"}
    strong = ["0", "Done."]
    assert stage.run(PIPE, weak, strong, runner=late(Role.WEAK, "draft")) == "finished"
    assert [a["step"] for a in stage.events("asked") if a["ask"] == "draft"] == [0, 1]
    assert stage.proof.clean


def test_a_right_guess_has_its_observation_ready(stage: Any) -> None:
    weak, strong = [stage.call("look", i=1), "Done."], [stage.call("look", i=1), "Done."]
    runner = late(Role.STRONG, "write")
    assert stage.run(strategy("step_speculation"), weak, strong, runner=runner) == "finished"
    assert [(n, a) for n, a, _ in stage.tools.calls] == [("look", {"i": 1})]  # once, while the strong model wrote
    (reused,) = stage.events("reused")
    effect = next(e for e in stage.events("effect"))
    assert effect["id"] < next(a["id"] for a in stage.events("asked") if a["role"] == "strong")
    assert stage.committed[0]["observations"][0]["text"] == "look({'i': 1})"
    assert [s["author"] for s in stage.committed] == ["strong", "strong"]
    assert reused["by"] == effect["slot"]
    assert stage.proof.clean


def test_a_wrong_guess_costs_a_read_and_changes_nothing(stage: Any) -> None:
    weak, strong = [stage.call("look", i=1), "Done."], [stage.call("look", i=2), "Done."]
    stage.run(strategy("step_speculation"), weak, strong, runner=late(Role.STRONG, "write"))
    assert [a for _, a, _ in stage.tools.calls] == [{"i": 1}, {"i": 2}]
    assert stage.committed[0]["observations"][0]["text"] == "look({'i': 2})"
    assert not stage.events("reused")


def test_a_guessed_write_never_runs(stage: Any) -> None:
    weak, strong = [stage.call("change", x=1), "Done."], [stage.call("change", x=1), "Done."]
    stage.run(strategy("step_speculation"), weak, strong, runner=late(Role.STRONG, "write"))
    assert stage.done == ["change"]  # the strong model's own
    assert stage.proof.clean
    assert stage.proof.executed == 2


def test_a_late_guess_is_cancelled(stage: Any) -> None:
    weak, strong = ["never said", "never said"], [stage.call("look"), "Done."]
    stage.run(strategy("step_speculation"), weak, strong, runner=late(Role.WEAK, "draft"))
    assert [a["role"] for a in stage.events("asked")] == ["strong", "strong"]


def test_a_router_keeps_its_model_across_a_cut(stage: Any) -> None:
    how = strategy("task_router", settings=Settings(router_share=1.0))
    with pytest.raises(RuntimeError):
        stage.run(how, [stage.call("look"), RuntimeError("cut")], [])
    other = strategy("task_router", settings=Settings(router_share=0.0))  # the coin would now say strong
    assert stage.run(other, ["Done."], []) == "finished"
    assert [s["author"] for s in stage.committed] == ["weak", "weak"]


def test_a_step_router_looks_at_what_came_before(stage: Any) -> None:
    how = strategy("step_router", settings=Settings(router_shares={"start": 0.0, "read": 1.0}))
    stage.run(how, ["Done."], [stage.call("look")])
    assert [s["author"] for s in stage.committed] == ["strong", "weak"]


def test_a_router_by_length_needs_a_record(stage: Any) -> None:
    how = strategy("task_router", settings=Settings(router_most_steps=5))
    with pytest.raises(InputError, match="nobody knows how long"):
        stage.run(how, [], [])


def test_an_adaptive_window_follows_the_verdicts(stage: Any) -> None:
    how = strategy("spec_agent_adaptive", 2, Settings(adaptive_rule="counts"))
    weak = [stage.call("look", i=1), stage.call("look", i=2), stage.call("look", i=3), "Done."]
    strong = ["0", stage.call("look"), "0", stage.call("look"), "Done."]
    assert stage.run(how, weak, strong) == "finished"
    drafts = [sum(a["ask"] == "draft" and a["round"] == r for a in stage.events("asked")) for r in range(3)]
    assert drafts == [2, 1, 0]


@pytest.mark.parametrize("name", ["spec_agent_pipelined", "step_speculation"])
def test_a_cut_run_goes_on(stage: Any, name: str) -> None:
    """Killed while the strong model answers; what the weak one said is not asked again in the same round."""
    weak = [stage.call("look", i=1), stage.call("look", i=2), stage.call("look", i=3), stage.call("look", i=4)]
    with pytest.raises(RuntimeError):
        stage.run(strategy(name, 2), weak, [RuntimeError("cut")], runner=late(Role.STRONG, "verify", "write"))
    before = len(stage.events("asked"))
    assert before >= 1
    strong = ["1", "Done."] if name == "spec_agent_pipelined" else ["Done."]
    assert stage.run(strategy(name, 2), weak[2:], strong) == "finished"
    assert stage.proof.clean
