"""A run that is cut anywhere goes on to the same end and nothing runs twice: each event of a task is a place to die."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hwprofiles.errors import InputError
from validate.engine import EngineError
from validate.faults import FaultyJournal, Killed
from validate.journal import Journal, JournalError
from validate.tools import ToolServerGone, ToolTimeout

SPEC = ("spec_agent", 3)
FAULTS = {"killed_before": Killed, "killed_after": Killed, "full": JournalError}


def lines(stage: Any) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """A task with everything in it: reads kept and thrown away, writes accepted, rejected, repaired, a double step."""
    call = stage.call
    weak = {
        ("draft", 0): call("look", a=0),
        ("draft", 1): call("change", a=1),  # accepted
        ("draft", 2): call("count", a=2),  # rejected with the write behind it
        ("draft", 3): call("change", a=3),
        ("draft", 4): call("unclear", "change", a=4),  # two writes in one step, accepted
        ("draft", 5): call("change", a=5),  # rejected; its verdict comes garbled
        ("draft", 6): stage.Says("", (), "length"),  # nobody could run it
        ("draft", 7): "Done.",
    }
    strong = {
        ("verify", 0): "2",
        ("verify", 2): "0",
        ("repair", 2): call("look", "change", a=22),
        ("verify", 3): "1",
        ("verify", 4): "1",
        ("verify", 5): "what?",
        ("repair", 5): call("look", a=55),
        ("verify", 6): "1",
        ("verify", 7): "1",
    }
    return weak, strong


RIGHT = [
    ("look", 0), ("change", 1), ("count", 2), ("look", 22), ("change", 22), ("change", 3), ("unclear", 4),
    ("change", 4), ("look", 55),
]  # fmt: skip


def world(stage: Any) -> list[tuple[str, int]]:
    return [(name, arguments["a"]) for name, arguments, _ in stage.tools.calls]


def story(stage: Any) -> list[Any]:
    """The committed steps, times apart."""
    return stage.committed


@pytest.fixture
def whole(stages: Callable[[], Any]) -> tuple[list[Any], int]:
    """The uninterrupted run: its committed steps, and how many events it writes."""
    stage = stages()
    assert stage.run(SPEC, *lines(stage)) == "finished"
    assert world(stage) == RIGHT
    assert stage.proof.clean
    return story(stage), len(stage.events())


def test_a_run_cut_at_any_event_ends_as_if_it_had_not_been(stages: Callable[[], Any], whole: Any) -> None:
    committed, n = whole
    assert n > 80
    for fault, at in itertools.product(FAULTS, range(1, n + 1)):
        stage = stages()
        stage.kind = partial(FaultyJournal, fault=fault, at=at)
        with pytest.raises(FAULTS[fault]):
            stage.run(SPEC, *lines(stage))
        stage.kind = Journal
        assert stage.run(SPEC, *lines(stage)) == "finished", (fault, at)
        assert story(stage) == committed, (fault, at)
        assert world(stage) == RIGHT, (fault, at)
        assert stage.proof.clean, (fault, at)
        assert stage.proof.unresolved == 0
        begun, ended = at > 1 or fault == "killed_after", at == n and fault == "killed_after"
        assert len(stage.events("resumed")) == (begun and not ended)


def test_cuts_on_the_way_through_a_resumption_do_not_add_up(stages: Callable[[], Any], whole: Any) -> None:
    committed, _ = whole
    stage = stages()
    cuts = 0
    for at in itertools.count(2):
        fault = ("killed_before", "killed_after", "full")[at % 3]
        stage.kind = partial(FaultyJournal, fault=fault, at=at)
        try:
            status = stage.run(SPEC, *lines(stage))
            break
        except (Killed, JournalError):
            cuts += 1
    assert status == "finished"
    assert cuts >= 5
    assert story(stage) == committed
    assert world(stage) == RIGHT
    assert stage.proof.clean


class Disk(Journal):
    """A journal on a disk that has room for `pages` more pages."""

    def __init__(self, path: Path, *, pages: int) -> None:
        super().__init__(path)
        used = self._db.execute("pragma page_count").fetchone()[0]
        self._db.execute(f"pragma max_page_count = {used + pages}")


def test_a_disk_that_is_really_full_stops_the_run_and_room_lets_it_go_on(stages: Callable[[], Any], whole: Any) -> None:
    committed, _ = whole
    stopped = 0
    for pages in range(40):
        stage = stages()
        stage.kind = partial(Disk, pages=pages)
        try:
            stage.run(SPEC, *lines(stage))
        except JournalError as error:
            stopped += "disk is full" in str(error)
            stage.kind = Journal
            assert stage.run(SPEC, *lines(stage)) == "finished"
        assert story(stage) == committed
        assert world(stage) == RIGHT
        assert stage.proof.clean
    assert stopped >= 4


def test_a_disk_with_no_room_for_the_first_event_runs_nothing(stage: Any) -> None:
    stage.kind = partial(FaultyJournal, fault="full", at=1)
    with pytest.raises(JournalError):
        stage.run(SPEC, *lines(stage))
    assert world(stage) == []
    assert stage.clock.now_s() == 0.0  # not even asked


# -- tools without answers ------------------------------------------------------------------------------------------


def trouble(kind: type[Any]) -> Any:
    return kind("no answer", connection=1)


@pytest.mark.parametrize("kind", [ToolTimeout, ToolServerGone])
@pytest.mark.parametrize("happened", [False, True])
def test_with_keys_a_call_without_an_answer_is_sent_again(stage: Any, kind: Any, happened: bool) -> None:
    stage.tools.trouble = {2: (happened, trouble(kind)), 5: (happened, trouble(kind))}
    assert stage.run(SPEC, *lines(stage)) == "finished"
    assert world(stage) == RIGHT
    assert stage.tools.sent == len(RIGHT) + 2
    assert stage.tools.restarts == (2 if kind is ToolServerGone else 0)
    assert stage.proof.clean
    assert [e["keys_honoured"] for e in stage.events("attempt")] == [True] * (len(RIGHT) + 2)
    replayed = [e["slot"] for e in stage.events("effect") if e["replayed"]]
    assert len(replayed) == (2 if happened else 0)


@pytest.mark.parametrize("kind", [ToolTimeout, ToolServerGone])
@pytest.mark.parametrize("happened", [False, True])
def test_without_keys_a_held_call_without_an_answer_is_never_sent_again(stage: Any, kind: Any, happened: bool) -> None:
    stage.tools.supports_keys = False
    stage.tools.trouble = {2: (happened, trouble(kind))}
    for _ in range(3):  # the first run and two resumptions
        assert stage.run(SPEC, *lines(stage)) == "unresolved"
        assert stage.tools.sent == 2
    assert world(stage) == RIGHT[: 1 + happened]
    (event,) = stage.events("unresolved")
    assert "change: no answer" in event["why"]
    assert stage.events("finished")[0]["status"] == "unresolved"
    assert stage.proof.clean  # not lost: reported
    assert (stage.proof.unresolved, stage.proof.executed, stage.proof.stopped) == (1, 0, 0)


def test_the_actions_behind_an_unresolved_one_are_stopped_not_lost(stage: Any) -> None:
    stage.tools.supports_keys = False
    stage.tools.trouble = {1: (True, trouble(ToolTimeout))}
    assert stage.run(SPEC, [stage.call("change", "change", "look")], ["1"]) == "unresolved"
    assert stage.tools.sent == 1
    assert (stage.proof.unresolved, stage.proof.stopped, stage.proof.lost) == (1, 2, 0)
    assert stage.proof.clean


@pytest.mark.parametrize("kind", [ToolTimeout, ToolServerGone])
def test_without_keys_a_read_is_tried_again(stage: Any, kind: Any) -> None:
    stage.tools.supports_keys = False
    stage.tools.trouble = {1: (True, trouble(kind)), 2: (False, trouble(kind))}
    assert stage.run(SPEC, [stage.call("look"), "Done."], ["2"]) == "finished"
    assert stage.tools.sent == 3
    assert stage.proof.clean
    assert stage.proof.run_twice == 0  # reads may run as often as they like


def test_a_read_that_never_answers_is_an_error_the_model_sees(stage: Any) -> None:
    stage.tools.trouble = {n: (False, trouble(ToolTimeout)) for n in (1, 2, 3)}
    assert stage.run(SPEC, [stage.call("look"), "Done."], ["2"]) == "finished"
    assert stage.tools.sent == 3
    assert stage.weak.asks[1].messages[-1].text == "tool error: no answer"
    (effect,) = (e for e in stage.events("effect") if e["text"])
    assert effect["is_error"]
    assert "start_s" in effect


def test_with_keys_a_write_that_never_answers_is_unresolved(stage: Any) -> None:
    stage.tools.trouble = {n: (True, trouble(ToolTimeout)) for n in (1, 2, 3)}
    assert stage.run(SPEC, [stage.call("change", a=1)], ["1"]) == "unresolved"
    assert world(stage) == [("change", 1)]
    assert stage.proof.unresolved == 1
    assert stage.proof.clean


def test_without_keys_a_kill_between_sending_and_answer_leaves_the_action_unresolved(stages: Any, whole: Any) -> None:
    _, n = whole
    found: dict[str, int] = {}
    for fault, at in itertools.product(("killed_before", "killed_after"), range(1, n + 1)):
        stage = stages()
        stage.tools.supports_keys = False
        stage.kind = partial(FaultyJournal, fault=fault, at=at)
        with pytest.raises(Killed):
            stage.run(SPEC, *lines(stage))
        stage.kind = Journal
        status = stage.run(SPEC, *lines(stage))
        found[status] = found.get(status, 0) + 1
        held = [key for name, _, key in stage.tools.calls if name in ("change", "unclear")]
        assert len(held) == len(set(held)), (fault, at)
        assert stage.proof.clean, (fault, at)
        assert (status == "unresolved") == (stage.proof.unresolved == 1), (fault, at)
        if status == "finished":
            assert [w for w in world(stage) if w[0] in ("change", "unclear")] == [
                w for w in RIGHT if w[0] in ("change", "unclear")
            ]
        sent = stage.tools.sent
        assert stage.run(SPEC, *lines(stage)) == status
        assert stage.tools.sent == sent
    assert found["finished"] > 100
    assert found["unresolved"] >= 5


def test_a_tool_server_that_does_not_come_back_stops_a_run_that_can_go_on(stage: Any) -> None:
    class Dead(type(stage.tools)):
        async def restart(self, after: Any = None) -> None:
            raise ToolServerGone("it does not come back", connection=2)

    alive = stage.tools
    stage.tools = Dead(trouble={2: (True, trouble(ToolServerGone))})
    with pytest.raises(ToolServerGone, match="does not come back"):
        stage.run(SPEC, *lines(stage))
    assert stage.events("finished") == []
    alive.calls, alive.answered = stage.tools.calls, stage.tools.answered  # the server's own memory
    stage.tools = alive
    assert stage.run(SPEC, *lines(stage)) == "finished"
    assert world(stage) == RIGHT
    assert stage.proof.clean


# -- engines that fail ----------------------------------------------------------------------------------------------


def test_an_engine_that_fails_is_asked_again(stage: Any) -> None:
    down = EngineError("restarted")
    weak = [down, stage.call("look"), down, down, stage.call("change"), "Done."]
    assert stage.run(SPEC, weak, [down, "2", "1"]) == "finished"
    assert len(stage.weak.asks) == 6
    assert stage.weak.asks[0] == stage.weak.asks[1]
    assert stage.done == ["look", "change"]
    assert len(stage.events("asked")) == 5  # answers only


def test_after_its_tries_the_run_stops_and_can_go_on(stage: Any) -> None:
    down = EngineError("gone for good")
    with pytest.raises(EngineError, match="gone for good"):
        stage.run(SPEC, [stage.call("look"), stage.call("change"), down, down, down], ["2"])
    assert len(stage.weak.asks) == 5
    assert stage.done == ["look", "change"]
    assert stage.events("finished") == []
    assert stage.run(SPEC, ["Done."], ["1"]) == "finished"  # nothing is asked again that was answered
    assert stage.done == ["look", "change"]
    assert stage.proof.clean


def test_on_resumption_known_answers_are_not_asked_for_again(stage: Any) -> None:
    stage.kind = partial(FaultyJournal, fault="killed_after", at=21)
    with pytest.raises(Killed):
        stage.run(SPEC, *lines(stage))
    known = {(e["ask"], e["step"]) for e in stage.events("asked")}
    assert known
    weak, strong = ({k: v for k, v in part.items() if k not in known} for part in lines(stage))
    stage.kind = Journal
    assert stage.run(SPEC, weak, strong) == "finished"  # a `Book` fails on questions it has no line for
    assert world(stage) == RIGHT


def test_an_effect_map_that_grew_laxer_meanwhile_does_not_loosen_what_was_held(stage: Any) -> None:
    stage.kind = partial(FaultyJournal, fault="killed_after", at=9)
    with pytest.raises(Killed):
        stage.run(SPEC, *lines(stage))
    assert [e["effect"] for e in stage.events("intent")] == ["read", "write"]
    assert stage.events("verdict") == []
    stage.tools.effects["change"] = stage.tools.effects["look"]
    stage.kind = Journal
    stage.run(SPEC, {**lines(stage)[0], ("draft", 3): "Done."}, lines(stage)[1])
    verdict = stage.events("verdict")[0]["id"]
    (run,) = (e for e in stage.events("executing") if e["slot"] == "run:t:0:d1.0")
    assert run["id"] > verdict
    assert stage.proof.executed_before_verdict == 0


def test_another_scenarios_journal_is_refused(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.db", {"strategy": "spec_agent", "protocol.window": 3}):
        pass
    with pytest.raises(InputError, match=r"journal of another run: protocol\.window is 3, not 4"):
        Journal(tmp_path / "j.db", {"strategy": "spec_agent", "protocol.window": 4})
    with pytest.raises(InputError, match=r"protocol\.extra is None, not 1"):
        Journal(tmp_path / "j.db", {"strategy": "spec_agent", "protocol.window": 3, "protocol.extra": 1})
