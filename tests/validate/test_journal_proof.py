"""The proof can fail: what breaks the hold, loses an action or runs one twice shows in the journal's own counters."""

from __future__ import annotations

import sqlite3
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import validate.round
from costmodel.guard import HoldViolation, RoundGuard
from costmodel.protocol import CallTool, Commit, Draft, Repair, Role, Verify, Write
from hwprofiles.errors import InputError
from validate import actions
from validate.journal import Journal, JournalError
from validate.proof import HELD, prove
from validate.runner import TaskRunner

SPEC = ("spec_agent", 3)


class Rogue:
    """A strategy written by a method of this file; the protocol is broken in one way each."""

    name = "rogue"

    def __init__(self, body: Any) -> None:
        self.round = body


def hasty(view: Any) -> Any:
    """Runs a held step while drafting."""
    step = yield Draft(Role.WEAK, ())
    yield CallTool(step)
    verdict = yield Verify(Role.STRONG, (step,))
    return Commit((step,) if verdict.accepted else ())


def unasked(view: Any) -> Any:
    """Commits what nobody reviewed."""
    step = yield Draft(Role.WEAK, ())
    return Commit((step,))


def deaf(view: Any) -> Any:
    """Commits what the review rejected."""
    step = yield Draft(Role.WEAK, ())
    yield Verify(Role.STRONG, (step,))
    return Commit((step,))


def beyond(view: Any) -> Any:
    """Drafts on behind a held step."""
    first = yield Draft(Role.WEAK, ())
    second = yield Draft(Role.WEAK, (first,))
    yield Verify(Role.STRONG, (first, second))
    return Commit((first, second))


def repairs_unasked(view: Any) -> Any:
    """Repairs without a review."""
    step = yield Draft(Role.WEAK, ())
    return Commit(((yield Repair(Role.STRONG, (step,), 0)),))


def writes_twice(view: Any) -> Any:
    """Has two steps written in one round."""
    yield Write(Role.STRONG)
    return Commit(((yield Write(Role.STRONG)),))


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (hasty, HoldViolation),
        (unasked, ValueError),
        (deaf, ValueError),
        (beyond, HoldViolation),
        (repairs_unasked, ValueError),
        (writes_twice, ValueError),
    ],
)
def test_a_strategy_that_breaks_the_protocol_is_stopped_and_nothing_runs(stage: Any, body: Any, error: Any) -> None:
    steps = [stage.call("change", a=1), stage.call("change", a=2)]
    with pytest.raises(error):
        stage.run(Rogue(body), steps, steps if body is writes_twice else ["0", stage.call("look")])
    assert stage.tools.sent == 0
    assert stage.events("executing") == []
    assert stage.proof.clean


class NoGuard(RoundGuard):
    """Lets everything pass."""

    def before_draft(self, offset: int) -> None: ...
    def before_call(self, offset: int) -> None:
        self.ran.add(offset)

    def before_review(self, n: int) -> None: ...

    def before_commit(self, offsets: Any) -> Any:
        return len(offsets), [o for o in offsets if o not in self.ran]


@pytest.mark.parametrize("body", [hasty, unasked, deaf])
def test_without_the_guard_the_gate_before_the_world_still_holds(stage: Any, body: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(validate.round, "RoundGuard", NoGuard)
    with pytest.raises(RuntimeError, match="held action has no verdict"):
        stage.run(Rogue(body), [stage.call("change")], ["0"])
    assert stage.tools.sent == 0
    assert stage.proof.clean


@pytest.mark.parametrize("body", [hasty, unasked, deaf])
def test_without_guard_and_gate_the_journal_tells(stage: Any, body: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(validate.round, "RoundGuard", NoGuard)
    monkeypatch.setattr(actions.Actions, "_must_be_allowed", lambda *_: None)
    stage.run(Rogue(body), [stage.call("change"), "Done."], ["1" if body is hasty else "0"] * 2)
    assert stage.done == ["change"]
    assert stage.proof.executed_before_verdict >= 1
    assert not stage.proof.clean


def test_a_runner_that_authorises_what_the_verdict_rejected_is_found_out(stage: Any, monkeypatch: Any) -> None:
    class Liar(NoGuard):
        def after_review(self, accepted: int) -> None: ...

    monkeypatch.setattr(validate.round, "RoundGuard", Liar)
    allow = validate.round.Round._allow

    def commit(self: Any, commit_: Any) -> Any:
        verdict = self.r.journal._rows("select id from events where kind = 'verdict' order by id desc", ())[0][0]
        for step in commit_.steps:
            allow(self, step, "verdict", verdict)
        return original(self, commit_)

    original = validate.round.Round._commit
    monkeypatch.setattr(validate.round.Round, "_commit", commit)
    stage.run(Rogue(deaf), [stage.call("change"), "Done."], ["0", "1"])
    assert stage.done == ["change"]
    assert stage.proof.executed_before_verdict == 1


def test_a_driver_that_forgets_what_it_ran_is_found_out(stage: Any, monkeypatch: Any) -> None:
    class Forgetful(TaskRunner):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.journal.find = lambda *a: None if a[2] in ("effect", "executing") else Journal.find(self.journal, *a)

    stage.tools.supports_keys = False
    monkeypatch.setattr(actions.Actions, "_once", again := _twice(actions.Actions._once))
    assert again
    stage.run(SPEC, [stage.call("change", a=1), "Done."], ["1", "1"], runner=Forgetful)
    assert len(stage.tools.calls) == 2
    assert stage.proof.run_twice == 1
    assert not stage.proof.clean


def _twice(once: Any) -> Any:
    async def run(self: Any, *args: Any) -> Any:
        await once(self, *args)
        return await once(self, *args)

    return run


# -- forged journals ------------------------------------------------------------------------------------------------


def events(**changes: Any) -> list[dict[str, Any]]:
    """A right little journal: a drafted write, accepted, run; a reply written, delivered. `changes` by event name."""

    def event(name: str, kind: str, slot: str = "", round_: int = 0, **data: Any) -> None:
        change = changes.get(name, {})
        if change is None:
            return
        found.append({"id": len(found) + 1, "task": "t", "round": round_, "kind": kind, "slot": slot, **data, **change})

    found: list[dict[str, Any]] = []
    said = {"ask": "verify", "text": "1", "finish": "stop"}
    event("task", "task")
    event("draft", "asked", "0", ask="draft", text="", finish="stop")
    event("intent", "intent", "k", effect="write", offset=0, origin="d", asked="0")
    event("review", "asked", "1", **said)
    event("verdict", "verdict", "1", accepted=1, reviewed=1, garbled=False, covers=["k"])
    event("authorised", "authorised", "k", why="verdict", by=5)
    event("executing", "executing", "k")
    event("attempt", "attempt", "k#0", keys_honoured=False)
    event("effect", "effect", "k")
    event("committed", "committed", steps=[])
    event("write", "asked", "0", 1, ask="write", text="", finish="stop")
    event("reply", "intent", "r", 1, effect="reply", offset=0, origin="w", asked="0")
    event("allowed", "authorised", "r", 1, why="written", by=11)
    event("delivering", "executing", "r", 1)
    event("delivered", "effect", "r", 1)
    event("finished", "finished", round_=1, status="finished")
    return found


def test_the_right_little_journal_is_clean() -> None:
    found = prove(events())
    assert found.clean
    assert asdict(found) == {
        "held": 2, "accepted": 2, "executed": 2, "executed_before_verdict": 0, "lost": 0, "run_twice": 0,
        "unresolved": 0, "stopped": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"authorised": {"by": 4}},  # names the request, not the verdict
        {"authorised": {"by": 11}},  # an event that came later
        {"authorised": {"by": 99}},  # no event at all
        {"authorised": {"by": 2, "why": "written"}},  # a draft is no repair
        {"authorised": {"why": "free"}},
        {"authorised": {"why": "because"}},
        {"verdict": {"covers": []}},
        {"verdict": {"covers": ["other"]}},
        {"verdict": {"accepted": 0}},  # covers what it rejected
        {"verdict": {"slot": "0"}},  # not what the reviewer was asked
        {"verdict": {"round": 7}},
        {"review": {"text": "0"}},  # the reviewer said something else
        {"review": {"finish": "length"}},  # cut
        {"review": {"ask": "draft"}},
        {"review": {"task": "other"}},
        {"intent": {"id": 4}, "review": {"id": 3}},  # a review of what was not drafted yet
        {"intent": {"offset": 1}},
        {"intent": {"origin": "w"}},
        {"intent": {"round": 3}},
        {"allowed": {"by": 2}},  # the request that wrote another step
        {"write": {"ask": "draft"}},
        {"reply": {"asked": "1"}},
    ],
)
def test_a_forged_authorisation_counts_as_none(changes: dict[str, Any]) -> None:
    found = prove(events(**changes))
    assert found.executed_before_verdict == 1
    assert found.accepted == 1
    assert not found.clean


def test_an_authorisation_written_after_the_call_comes_too_late() -> None:
    assert prove(events(authorised={"id": 7}, executing={"id": 6})).executed_before_verdict == 1


@pytest.mark.parametrize(
    "names", [("authorised",), ("authorised", "executing"), ("authorised", "executing", "attempt")]
)
def test_a_missing_authorisation_shows_whichever_trace_of_running_is_left(names: tuple[str, ...]) -> None:
    changes: dict[str, Any] = dict.fromkeys(names, None)
    changes["allowed"] = {"by": 11 - len(names)}
    assert prove(events(**changes)).executed_before_verdict == 1


@pytest.mark.parametrize("left", ["executing", "attempt", "effect"])
def test_an_action_that_was_never_announced_counts_as_held_and_early(left: str) -> None:
    changes: dict[str, Any] = {n: None for n in ("intent", "authorised", "executing", "attempt", "effect") if n != left}
    gone = len(changes)
    found = prove(events(**changes, allowed={"by": 11 - gone}))
    assert (found.held, found.executed_before_verdict) == (2, 1)
    assert not found.clean


def test_an_accepted_action_without_effect_in_a_finished_task_is_lost() -> None:
    gone: dict[str, Any] = {"executing": None, "attempt": None, "effect": None, "allowed": {"by": 8}}
    assert prove(events(**gone)).lost == 1
    assert prove(events(**gone, finished=None)).lost == 0  # it may still come
    assert prove(events(effect=None, allowed={"by": 10})).lost == 1  # begun, and no word of its end
    # accepted, and never even authorised
    assert prove(events(**gone | {"authorised": None, "allowed": {"by": 7}})).lost == 1


def test_an_unresolved_task_reports_what_was_begun_and_stops_the_rest() -> None:
    begun: dict[str, Any] = {"effect": None, "allowed": {"by": 10}, "finished": {"status": "unresolved"}}
    assert prove(events(**begun)).lost == 1  # begun and not reported
    never = begun | {"executing": None, "attempt": None, "allowed": {"by": 8}}
    assert (prove(events(**never)).lost, prove(events(**never)).stopped) == (0, 1)
    reported = [*events(**begun), {"id": 99, "task": "t", "round": 0, "kind": "unresolved", "slot": "k", "why": ""}]
    assert (prove(reported).lost, prove(reported).unresolved) == (0, 1)


def test_a_second_attempt_is_only_safe_where_keys_are_honoured() -> None:
    def with_second(honoured: bool, effect: str = "write") -> Any:
        more = {"id": 99, "task": "t", "round": 0, "kind": "attempt", "slot": "k#1", "keys_honoured": honoured}
        return prove([*events(intent={"effect": effect}), more])

    assert with_second(False).run_twice == 1
    assert with_second(True).run_twice == 0
    assert with_second(False, "read").run_twice == 0


def test_held_is_everything_that_does_not_run_freely() -> None:
    assert {"write", "reply", "unknown"} == HELD


# -- the file -------------------------------------------------------------------------------------------------------


def test_the_first_event_of_a_slot_stands(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.db") as journal:
        first = journal.record("t", 0, "effect", "k", text="one")
        assert journal.record("t", 0, "effect", "k", text="two") == first
        assert journal.find("t", 0, "effect", "k") == {"text": "one"}
        assert journal.find("t", 1, "effect", "k") is None


def test_attempts_are_numbered_for_keys_that_look_alike(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.db") as journal:
        for key in ("a_b", "a%b", "aXb", "a_b", "A_B", "a_b"):
            journal.attempt("t", 0, key, keys_honoured=True)
        found = [e["slot"] for e in journal.events("attempt")]
    assert found == ["a_b#0", "a%b#0", "aXb#0", "a_b#1", "A_B#0", "a_b#2"]


def test_only_one_run_at_a_time_has_the_journal(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("validate.journal._PATIENCE_S", 0.0)
    path = tmp_path / "j.db"
    with Journal(path) as journal:
        journal.record("t", 0, "task")
        with pytest.raises(InputError, match="another run has it open"):
            Journal(path)
        journal.record("t", 0, "resumed", "0")
    with Journal(path) as journal:
        assert [e["kind"] for e in journal.events()] == ["task", "resumed"]


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to be read as a header" * 4, None])
def test_what_is_no_journal_is_left_alone(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "j.db"
    if content is None:
        db = sqlite3.connect(path)
        db.execute("create table orders (id)")
        db.close()
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"not a (usable )?journal"):
        Journal(path)
    assert path.read_bytes() == before


def test_a_folder_that_is_not_there_and_a_folder_in_the_files_place(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere" / "j.db", tmp_path):
        with pytest.raises(InputError, match="cannot be opened as a journal"):
            Journal(path)


def test_an_empty_file_that_a_kill_left_is_a_new_journal(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    path.touch()
    with Journal(path, {"strategy": "x"}) as journal:
        assert list(journal.events()) == []


def test_a_closed_or_broken_file_is_a_journal_error(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    journal.close()
    with pytest.raises(JournalError, match="cannot be written or read"):
        journal.record("t", 0, "task")
    with pytest.raises(JournalError, match="cannot be written or read"):
        journal.find("t", 0, "task")


def test_the_last_time_is_the_latest_that_any_event_tells(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.db") as journal:
        assert journal.last_s() == 0.0
        journal.record("t", 0, "task", at_s=1.0)
        journal.record("t", 0, "effect", "k", start_s=4.0, end_s=5.0)
        journal.record("t", 0, "asked", "0", sent_s=2.0, done_s=3.0, first_token_s=None)
        assert journal.last_s() == 5.0


def test_a_long_journal_is_proved_in_one_pass(tmp_path: Path) -> None:
    n, small = 6_250, events()
    shifted = (
        {**e, "id": e["id"] + 16 * i, "task": f"t{i}", **({"by": e["by"] + 16 * i} if "by" in e else {})}
        for i in range(n)
        for e in small
    )
    found = prove(shifted)  # 100,000 events
    assert found.clean
    assert (found.held, found.accepted, found.executed) == (2 * n, 2 * n, 2 * n)


def test_arguments_come_back_in_the_order_they_were_written(tmp_path):
    # a resumed chat must render to the same tokens, or the engine's prefix cache is lost (seen on real vLLM)
    from validate.journal import Journal

    with Journal(tmp_path / "j.db") as journal:
        journal.record(
            "t", 0, "asked", "0", tool_uses=[{"name": "x", "arguments": {"zeta": 1, "alpha": {"q": 1, "b": 2}}}]
        )
    with Journal(tmp_path / "j.db") as journal:
        found = journal.find("t", 0, "asked", "0")
    arguments = found["tool_uses"][0]["arguments"]
    assert list(arguments) == ["zeta", "alpha"]
    assert list(arguments["alpha"]) == ["q", "b"]
