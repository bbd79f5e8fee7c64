"""Claude Code sessions: one step per message id, placeholder counts, interleaved results, subagents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from costmodel.trajectory import Effect
from hwprofiles.errors import InputError
from simulator.traces import read_trace


def line(kind, at, message, **fields):
    stamp = f"2026-01-01T00:00:{at:06.3f}Z"
    return {"type": kind, "timestamp": stamp, "sessionId": "s1", "entrypoint": "cli", "message": message, **fields}


def said(at, key, content, *, output=1, stop=None, fresh=10, made=0, read=0, **fields):
    counts = {
        "input_tokens": fresh,
        "cache_creation_input_tokens": made,
        "cache_read_input_tokens": read,
        "output_tokens": output,
    }
    message = {"id": key, "model": "m", "role": "assistant", "stop_reason": stop, "usage": counts, "content": [content]}
    return line("assistant", at, message, **fields)


def tool(name, call_id, **arguments):
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(at, call_id, *, failed=False, **fields):
    block = {"type": "tool_result", "tool_use_id": call_id, "content": "x"}
    if failed:
        block["is_error"] = True
    return line("user", at, {"role": "user", "content": [block]}, **fields)


def prompt(at, words="do it", **fields):
    return line("user", at, {"role": "user", "content": words}, **fields)


def text(words):
    return {"type": "text", "text": words}


def session():
    """A prompt; two reads in one message whose first result stands between its lines; an edit; a reply."""
    return [
        {"type": "queue-operation", "sessionId": "s1", "timestamp": "2026-01-01T00:00:00Z"},
        prompt(0),
        said(4, "m1", {"type": "thinking", "thinking": "t" * 300}, made=1000),
        said(5, "m1", tool("Read", "a", path="f"), made=1000),
        result(5.5, "a"),
        said(6, "m1", tool("Grep", "b", pattern="q"), made=1000, output=100, stop="tool_use"),
        result(6.2, "b", failed=True),
        said(8, "m2", tool("Edit", "c", path="f"), read=1010, made=400, output=60, stop="tool_use"),
        result(9, "c"),
        said(11, "m3", text("Done."), read=1420, made=100, output=20, stop="end_turn"),
    ]


@pytest.fixture
def load(tmp_path: Path):
    def read(lines, name="task_1.jsonl", **options):
        path = tmp_path / name
        path.write_text("\n".join(json.dumps(entry) for entry in lines) + "\n", encoding="utf-8")
        return read_trace(path, **options)

    return read


def only(found):
    (trajectory,) = found.workload.trajectories
    return trajectory


def test_lines_of_one_message_are_one_step_counted_once(load):
    found = load(session())
    trajectory = only(found)
    assert found.format == "claude_code"
    assert (trajectory.id, trajectory.task) == ("s1", "task_1")
    assert [s.prompt_tokens for s in trajectory.steps] == [1010, 1420, 1530]
    assert [s.cached_prompt_tokens for s in trajectory.steps] == [0, 1010, 1420]
    assert [s.output_tokens for s in trajectory.steps] == [100, 60, 20]
    assert found.missing == ("outcome", "thinking")


def test_builtin_tools_have_their_effects(load):
    assert [s.effect for s in only(load(session())).steps] == [Effect.READ, Effect.WRITE, Effect.REPLY]


def test_step_and_tool_times(load):
    steps = only(load(session())).steps
    assert [(s.start_s, s.end_s) for s in steps] == [(0, 6), pytest.approx((6.2, 8)), (9, 11)]
    assert [c.latency_s for c in steps[0].tools] == [pytest.approx(0.5), pytest.approx(0.2)]
    assert steps[0].tool_s == pytest.approx(0.7)
    assert [c.error for c in steps[0].tools] == [False, True]


def test_overlapping_tools_count_their_union(load):
    lines = session()
    lines[4], lines[5] = lines[5], result(6.1, "a")
    assert only(load(lines)).steps[0].tool_s == pytest.approx(1.2)  # a: 5 to 6.1, b: 6 to 6.2


def test_a_message_without_a_final_count_is_estimated_from_the_others(load):
    lines = session()
    lines[7]["message"]["stop_reason"], lines[7]["message"]["usage"]["output_tokens"] = None, 2
    lines[7]["message"]["content"][0]["input_chars"] = 330
    found = load(lines)
    rate = (300 + len(json.dumps({"path": "f"})) + len(json.dumps({"pattern": "q"})) + len("Done.")) / 120
    assert only(found).steps[1].output_tokens == round(330 / rate)
    assert any("without a final output count" in w for w in found.warnings)


def test_text_beside_a_call_is_a_reply_where_a_user_watches(load):
    lines = session()
    lines.insert(3, said(4.5, "m1", text("Let me look."), made=1000))
    assert only(load(lines)).steps[0].effect is Effect.REPLY
    for entry in lines:
        entry["entrypoint"] = "sdk-cli"
    found = load(lines)
    assert only(found).steps[0].effect is Effect.READ
    assert any("headless" in w for w in found.warnings)


def test_shell_commands_are_held_unless_they_plainly_read_or_the_map_says_so(load):
    lines = session()

    def effect(command, **map_):
        lines[3]["message"]["content"] = [tool("Bash", "a", command=command)]
        return only(load(lines, effects={k.replace("__", " "): v for k, v in map_.items()})).steps[0].effect

    assert effect("git status --short") is Effect.READ
    assert effect("make test") is Effect.UNKNOWN
    assert effect("make test", **{"Bash(command=make*)": "read"}) is Effect.READ
    assert effect("make test; rm -r x", **{"Bash(command=make*)": "read"}) is Effect.UNKNOWN
    assert effect("git status --short", **{"Bash": "write"}) is Effect.WRITE  # the user's word counts


def test_sessions_of_one_file_are_trajectories_of_their_own(load):
    def other(entry, i):
        entry = json.loads(json.dumps({**entry, "sessionId": f"s{i}"}))
        if entry["type"] == "assistant":
            entry["message"]["id"] += f"-{i}"
        return entry

    both = [other(entry, i) for entry in session() for i in (1, 2)]  # interleaved
    found = load(both).workload
    assert [(t.id, len(t.steps)) for t in found.trajectories] == [("s1", 3), ("s2", 3)]
    assert found.trajectories[0].steps == found.trajectories[1].steps == only(load(session())).steps


def test_outcomes_beside_the_sessions_are_used(tmp_path):
    for n in (1, 2):
        lines = [json.loads(json.dumps(e).replace('"id": "m', f'"id": "n{n}')) for e in session()]
        text = "\n".join(json.dumps({**entry, "sessionId": f"s{n}"}) for entry in lines)
        (tmp_path / f"task_{n:03}.jsonl").write_text(text)
    (tmp_path / "outcomes.json").write_text('[{"task_id": "1", "db_match": true}, {"task_id": 2, "db_match": false}]')
    assert [t.outcome for t in read_trace(tmp_path).workload.trajectories] == [1.0, 0.0]
    (tmp_path / "outcomes.json").write_text('{"1": 7}')
    with pytest.raises(InputError, match=r"outcomes\.json: 1: expected a number from 0 to 1"):
        read_trace(tmp_path)


def test_harness_errors_are_no_steps(load):
    lines = session()
    broken = said(12, "m4", text("API error"))
    broken["message"]["model"] = "<synthetic>"
    found = load([*lines, broken])
    assert len(only(found).steps) == 3
    assert any("harness made up" in w for w in found.warnings)


def test_a_session_of_errors_only_holds_no_call(load):
    broken = said(12, "m4", text("API error"), isApiErrorMessage=True)
    with pytest.raises(InputError, match="no LLM call"):
        load([prompt(0), broken])


def test_a_second_prompt_is_the_users_time(load):
    lines = [*session(), prompt(31), said(33, "m4", text("Sure."), read=1530, made=30, output=5, stop="end_turn")]
    assert only(load(lines)).steps[3].user_gap_s == pytest.approx(20)


def test_bookkeeping_lines_of_the_user_are_not_the_user(load):
    extra = [prompt(31, isMeta=True), said(33, "m4", text("Sure."), read=1530, made=30, output=5, stop="end_turn")]
    assert only(load([*session(), *extra])).steps[3].user_gap_s == 0.0


def test_subagents_are_trajectories_of_their_own(load):
    side = [
        prompt(7, isSidechain=True, uuid="u1", parentUuid=None),
        said(7.5, "n1", text("found"), output=9, stop="end_turn", isSidechain=True, uuid="u2", parentUuid="u1"),
    ]
    lines = session()
    found = load([*lines[:7], *side, *lines[7:]])
    assert [(t.id, len(t.steps)) for t in found.workload.trajectories] == [("s1", 3), ("s1/u1", 1)]
    assert found.workload.trajectories[1].domain == "subagent"
    assert only(load(lines)).steps == found.workload.trajectories[0].steps


def test_a_resumed_session_counts_its_messages_once(tmp_path):
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text("\n".join(json.dumps(entry) for entry in session()), encoding="utf-8")
    found = read_trace(tmp_path)
    assert [len(t.steps) for t in found.workload.trajectories] == [3]
    assert any("resumed" in w for w in found.warnings)


def test_a_broken_line_is_named(tmp_path):
    path = tmp_path / "cut.jsonl"
    path.write_text(json.dumps(prompt(0)) + '\n{"type": "assis', encoding="utf-8")
    with pytest.raises(InputError, match=r"cut\.jsonl:2: not valid JSON"):
        read_trace(path)


def test_a_folder_of_sessions_is_named_by_the_folder(tmp_path):
    folder = tmp_path / "my-project"
    folder.mkdir()
    for name in ("a", "b"):
        lines = [line("user", 0, {"role": "user", "content": "x"}), said(1, f"m{name}", tool("Ls", "c1"))]
        text = "\n".join(json.dumps({**one, "sessionId": name}) for one in lines)
        (folder / f"{name}.jsonl").write_text(text + "\n", encoding="utf-8")
    found = read_trace(folder).workload
    assert (found.name, len(found.trajectories)) == ("my-project", 2)
    assert read_trace(folder / "a.jsonl").workload.name == "a"


def test_the_agent_sdks_stream_of_messages(load):
    def streamed(entry):
        entry = {k: v for k, v in entry.items() if k not in ("sessionId", "timestamp")}
        return {**entry, "session_id": "s1", "uuid": "u", "parent_tool_use_id": None}

    lines = [{"type": "system", "subtype": "init", "session_id": "s1"}, *(streamed(e) for e in session()[1:])]
    found = load([*lines, {"type": "result", "subtype": "success", "session_id": "s1"}])
    assert [s.prompt_tokens for s in only(found).steps] == [1010, 1420, 1530]
    assert "times" in found.missing
