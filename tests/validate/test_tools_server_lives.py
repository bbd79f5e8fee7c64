"""The tool box over stdio: a real process that dies, hangs, fills its disk and comes back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from costmodel.trajectory import Effect
from hwprofiles.errors import InputError
from validate.chat import ToolUse
from validate.order_desk.desk import read_calls
from validate.order_desk.faults import Fault, Faults
from validate.order_desk.schema import connect, state
from validate.order_desk.server import desk_command
from validate.order_desk.tasks import TASKS, check, task_named
from validate.tools import ToolBox, ToolServerGone, ToolTimeout
from validate.wire import KEY

CANCEL = ToolUse(id="u", name="cancel_order", arguments={"order_id": "O-4003", "reason": "no_longer_needed"})
LOOK = ToolUse(id="u", name="get_order", arguments={"order_id": "O-4003"})


def run(work: Callable[[ToolBox], Awaitable[Any]], command: tuple[str, ...], timeout_s: float = 60.0) -> Any:
    async def go() -> Any:
        async with ToolBox.stdio(command, timeout_s=timeout_s) as box:
            return await work(box)

    return asyncio.run(go())


def world(database: Path) -> dict[str, Any]:
    db = connect(database)
    try:
        return state(db)
    finally:
        db.close()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "desk.sqlite"


def test_a_task_over_stdio(database: Path) -> None:
    task = task_named("cancel_and_move")

    async def work(box: ToolBox) -> None:
        assert box.supports_keys
        for i, action in enumerate(task.actions):
            result = await box.call(ToolUse(id="u", name=action.tool, arguments=action.arguments), key=f"k{i}")
            assert not result.is_error
            assert result.seconds > 0

    run(work, desk_command(database))
    assert check(database, task)
    assert not any(check(database, other) for other in TASKS if other.id != task.id)
    assert [c.tool for c in read_calls(database)] == [a.tool for a in task.actions]


def test_a_key_is_remembered_across_lives_of_the_server(database: Path) -> None:
    async def work(box: ToolBox) -> None:
        first = await box.call(CANCEL, key="k")
        await box.restart()
        second = await box.call(CANCEL, key="k")
        assert (first.replayed, second.replayed) == (False, True)
        assert first.text == second.text

    run(work, desk_command(database))
    assert [c.changed_state for c in read_calls(database)] == [True, False]


@pytest.mark.parametrize(("fault", "replayed"), [(Fault.CRASH_BEFORE, False), (Fault.CRASH_AFTER, True)])
def test_a_crash_beside_the_commit_then_the_same_key(database: Path, fault: Fault, replayed: bool) -> None:
    async def work(box: ToolBox) -> None:
        await box.call(LOOK, key="a")
        untouched = world(database)
        with pytest.raises(ToolServerGone, match="while cancel_order was running") as caught:
            await box.call(CANCEL, key="k")
        assert (world(database) == untouched) is (fault is Fault.CRASH_BEFORE)
        await box.restart(caught.value)
        again = await box.call(CANCEL, key="k")
        assert (again.is_error, again.replayed) == (False, replayed)

    run(work, desk_command(database, Faults(at={2: fault})))
    assert check(database, task_named("cancel_by_number"))
    assert sum(c.changed_state for c in read_calls(database)) == 1


def test_kill_minus_nine_from_outside(database: Path, tmp_path: Path) -> None:
    number = tmp_path / "pid"
    script = (
        "import os, runpy, sys; open(sys.argv.pop(1), 'w').write(str(os.getpid()));"
        " runpy.run_module('validate.order_desk', run_name='__main__')"
    )

    async def work(box: ToolBox) -> None:
        await box.call(CANCEL, key="k")
        os.kill(int(number.read_text()), signal.SIGKILL)
        with pytest.raises(ToolServerGone) as caught:
            await box.call(LOOK, key="l")
        await box.restart(caught.value)
        assert (await box.call(CANCEL, key="k")).replayed is True

    run(work, (sys.executable, "-c", script, str(number), "--database", str(database)))
    assert sum(c.changed_state for c in read_calls(database)) == 1


@pytest.mark.parametrize("fault", [Fault.HANG_BEFORE, Fault.HANG_AFTER])
def test_a_hang_is_a_timeout_and_the_server_lives(database: Path, fault: Fault) -> None:
    async def work(box: ToolBox) -> None:
        with pytest.raises(ToolTimeout) as caught:
            await box.call(CANCEL, key="k")
        assert caught.value.connection == 1
        await box.restart(caught.value)

    run(work, desk_command(database, Faults(at={1: fault})), timeout_s=1.0)

    changed = any(c.changed_state for c in read_calls(database))
    assert not (changed and fault is Fault.HANG_BEFORE)

    async def again(box: ToolBox) -> None:
        assert (await box.call(CANCEL, key="k")).replayed is changed

    run(again, desk_command(database))
    assert sum(c.changed_state for c in read_calls(database)) == 1


def test_a_full_disk_is_a_tool_error_that_changes_nothing(database: Path) -> None:
    def ticket(i: int) -> ToolUse:
        arguments = {"customer_id": "C-101", "category": "callback", "summary": f"{i} " + "x" * 190}
        return ToolUse(id="u", name="create_ticket", arguments=arguments)

    async def fill(box: ToolBox) -> int:
        for i in range(200):
            before = world(database)
            result = await box.call(ticket(i), key=f"k{i}")
            if result.is_error:
                assert "full" in result.text
                assert result.replayed is False
                assert world(database) == before
                return i
        raise AssertionError("the disk never filled up")

    stopped = run(fill, desk_command(database, Faults(max_pages=1)))
    assert len(world(database)["tickets"]) == stopped
    assert sum(c.changed_state for c in read_calls(database)) == stopped

    async def room_again(box: ToolBox) -> None:
        assert (await box.call(ticket(stopped), key=f"k{stopped}")).replayed is False

    run(room_again, desk_command(database))
    assert len(world(database)["tickets"]) == stopped + 1


def test_a_command_that_does_not_exist() -> None:
    async def work(_: ToolBox) -> None:
        raise AssertionError("must not connect")

    with pytest.raises(InputError, match="cannot start the tool server 'no-such-program-here"):
        run(work, ("no-such-program-here", "--x"))


def test_a_command_is_never_given_to_a_shell(tmp_path: Path) -> None:
    async def work(_: ToolBox) -> None:
        raise AssertionError("must not connect")

    mark = tmp_path / "mark"
    with pytest.raises(InputError, match="cannot start"):
        run(work, (f"touch {mark}; true",))
    assert not mark.exists()


def test_a_server_that_ends_at_once_gives_its_last_words() -> None:
    async def work(_: ToolBox) -> None:
        raise AssertionError("must not connect")

    script = "import sys; sys.stderr.write('noise\\nno licence found\\n'); sys.exit(3)"
    with pytest.raises(ToolServerGone, match="no licence found"):
        run(work, (sys.executable, "-c", script))


def test_the_desk_refuses_a_database_that_is_not_its_own(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.sqlite"
    with sqlite3.connect(foreign) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    text = tmp_path / "text.sqlite"
    text.write_text("not a database, but long enough to be looked at " * 20)

    async def work(_: ToolBox) -> None:
        raise AssertionError("must not connect")

    for path in (foreign, text):
        with pytest.raises(ToolServerGone, match=rf"last words: .*{path.name}.*order desk's database"):
            run(work, desk_command(path))


def test_nothing_of_this_process_environment_reaches_the_server(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_USER", "s3cret")
    seen = tmp_path / "environment"
    script = (
        "import os, runpy, sys; open(sys.argv.pop(1), 'w').write(repr(dict(os.environ)));"
        " runpy.run_module('validate.order_desk', run_name='__main__')"
    )

    async def go() -> None:
        command = (sys.executable, "-c", script, str(seen), "--database", str(database))
        async with ToolBox.stdio(command, env={"GIVEN": "yes"}) as box:
            assert not (await box.call(LOOK, key="k")).is_error

    asyncio.run(go())
    assert "s3cret" not in seen.read_text()
    assert "GIVEN" in seen.read_text()


OLD_SERVER = """
import json, sys
for line in sys.stdin:
    ask = json.loads(line)
    if "id" not in ask:
        continue
    answers = {
        "initialize": lambda p: {"protocolVersion": p["protocolVersion"], "capabilities": {"tools": {}},
                                 "serverInfo": {"name": "old", "version": "0"}},
        "tools/list": lambda p: {"tools": [{"name": "look", "inputSchema": {"type": "object"},
                                            "annotations": {"readOnlyHint": True}}]},
        "tools/call": lambda p: {"content": [{"type": "text", "text": json.dumps(p["_meta"], sort_keys=True)}]},
    }
    make = answers.get(ask["method"])
    out = {"result": make(ask.get("params"))} if make else {"error": {"code": -32601, "message": "no such method"}}
    print(json.dumps({"jsonrpc": "2.0", "id": ask["id"], **out}), flush=True)
"""


def test_a_server_that_knows_only_the_old_handshake_and_no_keys() -> None:
    async def work(box: ToolBox) -> None:
        assert box.supports_keys is False
        assert box.effect("look") is Effect.READ
        result = await box.call(ToolUse(id="u", name="look", arguments={}), key="k7")
        assert (result.is_error, result.replayed) == (False, None)
        assert json.loads(result.text)[KEY] == "k7"  # the key travels all the same

    run(work, (sys.executable, "-c", OLD_SERVER))
