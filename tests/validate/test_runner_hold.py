"""Every way a held step can go, and what the models are shown on it."""

from __future__ import annotations

from typing import Any

import pytest

from costmodel.trajectory import Effect
from hwprofiles.errors import InputError
from validate.chat import Message
from validate.round import INSTRUCTION, REPAIR
from validate.runner import Limits
from validate.steps import MALFORMED

SPEC = ("spec_agent", 4)


def result(step: int, i: int, text: str) -> Message:
    return Message(role="tool", text=text, tool_call_id=f"call_{step}_{i}")


def test_an_accepted_write_runs_once_and_after_its_verdict(stage: Any) -> None:
    before = []
    stage.tools.watch = lambda name, key: before.append((name, len(stage.strong.asks)))
    assert stage.run(SPEC, [stage.call("look"), stage.call("change", x=1), "Done."], ["2", "1"]) == "finished"
    assert stage.done == ["look", "change"]
    assert before == [("look", 0), ("change", 1)]  # the read ran while drafting, the write when one review was back
    kinds = [e["kind"] for e in stage.events()]
    assert kinds.index("verdict") < kinds.index("committed")
    authorised = {e["slot"]: e for e in stage.events("authorised")}
    executing = {e["slot"]: e for e in stage.events("executing")}
    assert set(authorised) == set(executing)
    for slot, e in executing.items():
        assert authorised[slot]["id"] < e["id"]
    assert stage.proof.clean
    assert (stage.proof.held, stage.proof.accepted, stage.proof.executed) == (2, 2, 2)  # the write and the reply


def test_a_rejected_write_never_runs_and_the_repairs_runs(stage: Any) -> None:
    stage.run(SPEC, [stage.call("look"), stage.call("change", x=1), "Done."], ["1", stage.call("change", x=2), "1"])
    assert [(n, a) for n, a, _ in stage.tools.calls] == [("look", {}), ("change", {"x": 2})]
    assert [s["author"] for s in stage.committed] == ["weak", "strong", "weak"]
    assert (stage.proof.held, stage.proof.accepted, stage.proof.executed) == (3, 2, 2)
    assert stage.proof.clean


def test_a_step_of_several_writes_runs_in_order_after_one_verdict(stage: Any) -> None:
    stage.run(SPEC, [stage.call("change", "unclear", "change", x=1), "Done."], ["1", "1"])
    assert stage.done == ["change", "unclear", "change"]
    keys = [k for _, _, k in stage.tools.calls]
    assert len(set(keys)) == 3  # the same call twice in a step is two actions
    assert [m["tool_call_id"] for m in stage.committed[0]["observations"]] == ["call_0_0", "call_0_1", "call_0_2"]


def test_a_read_beside_a_write_waits_with_it(stage: Any) -> None:
    stage.run(SPEC, [stage.call("look", "change"), "Done."], ["0", stage.call("look"), "1"])
    assert stage.done == ["look"]  # the repair's; nothing of the rejected step
    assert stage.events("intent")[0]["effect"] == "write"


@pytest.mark.parametrize(
    ("step", "effect"),
    [
        ({"names": ("look",), "text": "I look it up."}, "reply"),  # words reach the user
        ({"names": ("nobody_knows",)}, "unknown"),
        ({"names": ("unclear",)}, "unknown"),
        ({"names": ("change",)}, "write"),
    ],
)
def test_what_is_held(stage: Any, step: dict[str, Any], effect: str) -> None:
    draft = stage.call(*step["names"], text=step.get("text", ""))
    stage.run(SPEC, [draft, "Done."], ["0", stage.call("look"), "1"])
    assert stage.events("intent")[0]["effect"] == effect
    assert stage.done == ["look"]  # the repair's only
    assert len(stage.weak.asks) == 2  # the held step ended its segment


@pytest.mark.parametrize("names", [("look",), ("count",), ("look", "count")])
def test_what_runs_freely(stage: Any, names: tuple[str, ...]) -> None:
    stage.run(SPEC, [stage.call(*names), "Done."], ["2"])
    assert stage.done == list(names)
    assert {e["why"] for e in stage.events("authorised") if e["slot"].endswith("d0.0")} == {"free"}


def test_a_malformed_step_is_held_runs_nothing_and_is_told_so_when_committed(stage: Any) -> None:
    cut = stage.Says("", (("change", {"x": 1}),), finish="length")
    stage.run(SPEC, [cut, "Done."], ["1", "1"])
    assert stage.done == []
    first = stage.committed[0]
    assert (first["malformed"], first["effect"], first["uses"]) == (True, "unknown", [])
    assert first["observations"] == [{"role": "user", "text": MALFORMED, "tool_call_id": None}]
    assert stage.weak.asks[1].messages[-1] == Message(role="user", text=MALFORMED)
    assert stage.proof.clean


@pytest.mark.parametrize("how", ["strong_only", "weak_only"])
def test_a_cut_step_of_a_lone_model_runs_nothing(stage: Any, how: str) -> None:
    cut = stage.Says("", (("change", {"x": 1}),), finish="length")
    lines = [cut, stage.Says("  "), "Done."]
    assert stage.run((how, 1), lines if how == "weak_only" else [], lines if how == "strong_only" else []) == "finished"
    assert stage.done == []
    assert [s["malformed"] for s in stage.committed] == [True, True, False]


@pytest.mark.parametrize(
    "verdict", ["", "?", "3", "99", "-1", "accept", "1 ", "１", ("1", "length"), "2.0", "01", "1\n2"]
)
def test_a_verdict_that_is_none_of_the_labels_rejects_everything(stage: Any, verdict: Any) -> None:
    said = stage.Says(verdict[0], finish=verdict[1]) if isinstance(verdict, tuple) else verdict
    stage.run(SPEC, [stage.call("look"), stage.call("change"), "Done."], [said, stage.call("count"), "1"])
    found = stage.events("verdict")[0]
    if verdict == "1 ":  # white space around a label is no other answer
        assert (found["accepted"], found["garbled"]) == (1, False)
    else:
        assert (found["accepted"], found["garbled"], found["covers"]) == (0, True, [])
        assert stage.done == ["look", "count"]
    assert stage.proof.clean


def test_at_most_nine_steps_can_be_reviewed(stage: Any) -> None:
    with pytest.raises(InputError, match="at most 9 steps"):
        stage.run(("spec_agent", 10), [stage.call("look")] * 10, [])
    assert stage.done == ["look"] * 10  # reads only


def test_nine_steps_can_be_reviewed(stage: Any) -> None:
    stage.run(("spec_agent", 9), [*[stage.call("look")] * 9, "Done."], ["9", "1"])
    assert stage.strong.asks[0].labels == tuple("0123456789")


def test_a_reply_without_calls_ends_the_task_and_the_segment(stage: Any) -> None:
    assert stage.run(SPEC, [stage.call("look"), "Done."], ["2"]) == "finished"
    assert [e["kind"] for e in stage.events()][-2:] == ["committed", "finished"]
    assert stage.events("finished")[0]["status"] == "finished"


def test_a_rejected_reply_does_not_end_the_task(stage: Any) -> None:
    lines = ["Done.", stage.call("change"), "Now."]
    assert stage.run(SPEC, lines, ["0", stage.call("look"), "1", "1"]) == "finished"
    assert stage.done == ["look", "change"]


@pytest.mark.parametrize("how", [("strong_only", 1), SPEC])
def test_the_step_limit_stops_the_task_after_whole_rounds(stage: Any, how: tuple[str, int]) -> None:
    looks = [stage.call("look")] * 4
    weak, strong = ([], looks) if how[0] == "strong_only" else (looks, ["3", stage.call("count")])
    assert stage.run(how, weak, strong, limits=Limits(max_steps=4)) == "step_limit"
    assert len(stage.committed) == 4
    assert stage.events("finished")[0]["status"] == "step_limit"


def test_a_segment_is_no_longer_than_the_steps_that_are_left(stage: Any) -> None:
    lines = [stage.call("look")] * 3
    assert stage.run(("spec_agent", 2), lines, ["2", "1"], limits=Limits(max_steps=3)) == "step_limit"
    assert [a.labels[-1] for a in stage.strong.asks] == ["2", "1"]
    assert len(stage.committed) == 3


@pytest.mark.parametrize("field", ["max_steps", "max_tokens", "tries"])
def test_limits_are_at_least_one(field: str) -> None:
    with pytest.raises(InputError, match=f"limits.{field} must be >= 1, got 0"):
        Limits(**{field: 0})


# -- what the models see --------------------------------------------------------------------------------------------


def test_prompts_message_by_message(stage: Any) -> None:
    stage.run(
        SPEC,
        [stage.call("look", a=1), stage.call("change", b=2), "Done."],
        ["2", "1"],
    )
    chat = stage.CHAT
    draft0, draft1, draft2 = (a.messages for a in stage.weak.asks)
    verify0, verify1 = (a.messages for a in stage.strong.asks)
    assert draft0 == chat
    assert len(draft1) == len(chat) + 2
    step0, seen0 = draft1[-2:]
    assert (step0.role, [(u.id, u.name, u.arguments) for u in step0.tool_uses]) == (
        "assistant",
        [("call_0_0", "look", {"a": 1})],
    )
    assert seen0 == result(0, 0, "look({'a': 1})")
    # the review: committed chat, the segment as it would be committed (a held step has no observation), instruction
    assert verify0[:-2] == draft1
    assert [(u.id, u.name) for u in verify0[-2].tool_uses] == [("call_1_0", "change")]
    assert verify0[-1] == Message(role="user", text=INSTRUCTION.format(n=2))
    # the next draft extends the committed chat exactly: the review's prompt without its instruction is its prefix
    assert draft2 == (*verify0[:-1], result(1, 0, "change({'b': 2})"))
    assert verify1 == (
        *draft2,
        Message(role="assistant", text="Done."),
        Message(role="user", text=INSTRUCTION.format(n=1)),
    )
    asks = [*stage.weak.asks, *stage.strong.asks]
    assert len({id(a.tools) for a in asks}) == 1  # the same tools in every request, the review included
    assert {a.conversation for a in asks} == {"t"}
    assert [a.step for a in stage.weak.asks] == [0, 1, 2]
    assert [a.step for a in stage.strong.asks] == [0, 2]


def test_a_fresh_repair_sees_the_accepted_steps_only(stage: Any) -> None:
    stage.run(
        SPEC, [stage.call("look"), stage.call("count"), stage.call("change"), "Done."], ["1", stage.call("look"), "1"]
    )
    repair = stage.strong.asks[1]
    assert (repair.kind, repair.step, repair.labels) == ("repair", 1, ())
    assert repair.messages == stage.weak.asks[1].messages
    assert stage.weak.asks[3].messages[: len(repair.messages)] == repair.messages


def test_a_continued_repair_follows_the_review(stage: Any) -> None:
    weak = [stage.call("look"), stage.call("change"), "Done."]
    stage.run(SPEC, weak, ["1", stage.call("look"), "1"], repair_mode="continue")
    review, repair, _ = stage.strong.asks
    assert repair.messages == (
        *review.messages,
        Message(role="assistant", text="1"),
        Message(role="user", text=REPAIR.format(m=2)),
    )
    # neither the review nor what was rejected stays in the chat
    assert stage.weak.asks[2].messages == (
        *stage.weak.asks[1].messages,
        *stage.weak.asks[2].messages[-2:],
    )
    assert [u.name for u in stage.weak.asks[2].messages[-2].tool_uses] == ["look"]


def test_verdicts_are_one_digit_with_a_short_budget(stage: Any) -> None:
    stage.run(SPEC, [stage.call("look"), "Done."], ["2"])
    review = stage.strong.asks[0]
    assert review.kind == "verify"
    assert review.labels == ("0", "1", "2")
    assert review.max_tokens <= 4
    assert stage.weak.asks[0].max_tokens == Limits().max_tokens


def test_the_models_own_call_ids_never_reach_the_chat(stage: Any) -> None:
    stage.run(SPEC, [stage.call("look"), stage.call("look"), "Done."], ["3"])
    ids = [u.id for m in stage.strong.asks[0].messages for u in m.tool_uses]
    assert ids == ["call_0_0", "call_1_0"]


def test_strange_texts_arguments_and_names_come_through(stage: Any) -> None:
    big = {"blob": "x" * 300_000, "deep": [[[{"é": "\u2028\x00 𝄞 \ud800"}]]], "n": 10**40}
    stage.tools.effects["ünï.code/tool:1#2"] = Effect.WRITE
    lines = [stage.call("ünï.code/tool:1#2", **big), "Done \U0001f600 \ud800"]
    assert stage.run(SPEC, lines, ["1", "1"], task="a/b:c#0%_d'é") == "finished"
    assert stage.tools.calls[0][1] == big
    assert stage.committed[0]["uses"][0]["arguments"] == big
    assert stage.proof.clean
    assert stage.proof.executed == 2


def test_tasks_whose_ids_look_like_keys_do_not_share_any(stage: Any) -> None:
    for task in ("a", "a:0", "a:0:d0.0", "a%", "a_", "aa", "a#0"):
        stage.run(SPEC, [stage.call("change"), "Done."], ["1", "1"], task=task)
    keys = [k for _, _, k in stage.tools.calls]
    assert len(set(keys)) == len(keys) == 7
    assert stage.proof.clean
    assert stage.proof.run_twice == 0


def test_the_same_task_again_is_not_played_again(stage: Any) -> None:
    for _ in range(2):
        assert stage.run(SPEC, [stage.call("change"), "Done."], ["1", "1"]) == "finished"
    assert stage.done == ["change"]
    assert stage.weak.asks == []
