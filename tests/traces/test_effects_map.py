"""Effects: who is believed first, and that nothing unknown ever runs freely."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.trajectory import RUNS_FREELY, Effect
from hwprofiles.errors import InputError
from simulator.effects import EffectMap, declared_sets, declared_tools, effect_map, propose
from simulator.effects_file import read_effects, tools_list_hints

READ, WRITE, UNKNOWN = Effect.READ, Effect.WRITE, Effect.UNKNOWN


def test_precedence_from_arguments_down_to_declarations():
    hints = tools_list_hints({"tools": [{"name": n, "annotations": {"readOnlyHint": True}} for n in ("run", "see")]})
    known = EffectMap(
        rules=effect_map({"run(mode=dry)": "pure", "run": "write", "r*": "reply", "calc*": "read"}).rules,
        hints=hints,
        declared=("tau2:retail",),
    )
    assert known.classify("run", {"mode": "dry"})[0] is Effect.PURE
    assert known.classify("run", {"mode": "wet"})[0] is WRITE
    assert known.classify("rest")[0] is Effect.REPLY
    assert known.classify("see")[0] is READ
    assert known.classify("calculate")[0] is READ  # the user's glob beats the declaration (pure)
    assert known.classify("cancel_pending_order")[0] is WRITE
    assert known.classify("never_heard_of")[0] is UNKNOWN


def test_the_more_literal_glob_wins_and_ties_are_strict():
    assert effect_map({"*": "write", "get_*": "read"}).classify("get_x")[0] is READ
    assert effect_map({"get_*": "read", "*": "write"}).classify("get_x")[0] is READ
    assert effect_map({"a*": "read", "*z": "write"}).classify("a_z")[0] is WRITE


def test_mcp_names_are_found_whole_and_bare():
    known = effect_map({"get_order": "read", "mcp__other__*": "write"})
    assert known.classify("mcp__shop__get_order")[0] is READ
    assert known.classify("mcp__other__get_order")[0] is READ  # exact before glob
    assert known.classify("mcp__other__peek")[0] is WRITE


@pytest.mark.parametrize(
    "command", ["git status; rm -r x", "git status && x", "git status $(x)", "git status\nx", "ls"]
)
def test_an_argument_glob_never_lets_a_second_command_through(command):
    known = effect_map({"Bash(command=git status*)": "read"})
    assert known.classify("Bash", {"command": command})[0] is UNKNOWN
    assert known.classify("Bash", {"command": "git status -s"})[0] is READ
    assert known.classify("Bash", None)[0] is UNKNOWN


@pytest.mark.parametrize(
    ("annotations", "effect"),
    [
        ({"readOnlyHint": True}, READ),
        ({"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True}, WRITE),
        ({"destructiveHint": False}, UNKNOWN),
        ({"readOnlyHint": "true"}, UNKNOWN),
        (None, UNKNOWN),
    ],
)
def test_mcp_hints_only_a_true_read_only_hint_is_a_read(annotations, effect):
    tools = [{"name": "t", "annotations": annotations}]
    for document in (tools, {"tools": tools}, {"jsonrpc": "2.0", "result": {"tools": tools}}):
        assert tools_list_hints(document)["t"][0] is effect


def test_declared_sets_agree_with_the_benchmark():
    """Counts of the decorators at the cited commit: retail 7 read / 7 write, airline 6 / 6, telecom's agent 6 / 6."""
    counts = {}
    for name in declared_sets():
        effects = list(declared_tools(name)[0].values())
        counts[name] = (effects.count(READ), effects.count(WRITE))
    # a transfer to a human is generic there and held here, so one write more
    assert counts["tau2:retail"] == (7, 8)
    assert counts["tau2:airline"] == (6, 7)
    assert counts["tau2:telecom"] == (6, 7)
    assert "Bash" not in declared_tools("claude-code")[0]


def test_map_files(tmp_path):
    path = tmp_path / "map.toml"
    (tmp_path / "tools.json").write_text(
        json.dumps({"tools": [{"name": "see", "annotations": {"readOnlyHint": True}}]})
    )
    path.write_text('declared = ["tau2:airline"]\ntools_list = ["tools.json"]\n"a*" = "read"\n[effects]\nb = "write"\n')
    known = read_effects(path)
    assert [known.classify(n)[0] for n in ("ab", "b", "see", "book_reservation")] == [READ, WRITE, READ, WRITE]
    assert read_effects(tmp_path / "tools.json").classify("see")[0] is READ
    (tmp_path / "flat.json").write_text('{"x": "read"}')
    assert read_effects(tmp_path / "flat.json").classify("x")[0] is READ


BAD = {
    "did you mean 'write'": 'x = "writ"',
    "expected one of": "x = 3",
    "not valid TOML": "x = ",
    "given twice": 'x = "read"\n[effects]\nx = "write"',
    "did you mean 'tau2:retail'": 'declared = ["tau2:retai"]',
    "NAME(ARGUMENT=GLOB)": '"Bash(ls" = "read"',
    "cannot be read": 'tools_list = ["nowhere.json"]',
}


@pytest.mark.parametrize("message", BAD)
def test_bad_maps_have_one_clear_message(tmp_path, message):
    path = tmp_path / "map.toml"
    path.write_text(BAD[message], encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_effects(path)
    assert message in str(caught.value)


def test_maps_that_are_no_text(tmp_path):
    path = tmp_path / "map.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not UTF-8"):
        read_effects(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_effects(tmp_path / "none.toml")


@given(st.text(max_size=30))
def test_an_empty_map_never_lets_anything_run(name):
    assert EffectMap().classify(name, {"a": name})[0] not in RUNS_FREELY


@given(st.text(max_size=30))
def test_proposals_never_raise_and_always_say_why(name):
    effect, why = propose(name)
    assert isinstance(effect, Effect)
    assert "confirm" in why or "held" in why


def test_proposals():
    names = ("get_order", "mcp__s__listThings", "updateOrder", "calculate", "returnOrder", "frobnicate", "")
    assert [propose(n)[0].value for n in names] == ["read", "read", "write", "pure", "write", "unknown", "unknown"]
