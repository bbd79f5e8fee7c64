"""Traces that the libraries themselves wrote (`written`, the version in the name), counted by hand.

The Agents SDK ran against a scripted client, Inspect with its mock model; the usage was scripted too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from costmodel.trajectory import Effect
from hwprofiles.errors import InputError
from simulator.traces import read_trace

WRITTEN = Path(__file__).parent / "written"


def read(file):
    return read_trace(WRITTEN / file, effects={"get_*": "read", "cancel_*": "write", "submit": "reply"}).workload


def counts(trajectory):
    return [(s.prompt_tokens, s.cached_prompt_tokens, s.output_tokens) for s in trajectory.steps]


def tools(trajectory):
    return [[t.name for t in s.tools] for s in trajectory.steps]


def test_agents_sdk_spans_of_both_apis():
    """Two runs of one conversation over chat completions, one run over responses; turns repeat their usage."""
    chat, responses = read("openai_agents-0.24.jsonl").trajectories
    assert counts(chat) == [(100, 64, 10), (150, 64, 11), (200, 64, 12), (250, 64, 13)]
    assert counts(responses) == [(300, 64, 14), (350, 64, 15), (400, 64, 16)]
    assert tools(chat) == [["get_order"], ["cancel_order"], [], []]
    assert tools(responses) == [["get_order"], ["cancel_order"], []]
    assert [s.effect for s in responses.steps] == [Effect.READ, Effect.WRITE, Effect.REPLY]
    assert [s.visible_tokens for s in responses.steps] == [11, 12, 13]


def test_agents_sdk_handoffs_are_calls_and_agents_as_tools_are_their_own():
    desk, checker = read("openai_agents-0.24_handoff.jsonl").trajectories
    assert tools(desk) == [["transfer_to_refunds"], ["get_order"], ["ask_checker"], []]
    assert [s.effect for s in desk.steps] == [Effect.UNKNOWN, Effect.READ, Effect.UNKNOWN, Effect.REPLY]
    assert [s.user_gap_s for s in desk.steps] == [None, 0.0, 0.0, 0.0]
    assert counts(desk) == [(100, 64, 10), (150, 64, 11), (200, 64, 12), (300, 64, 14)]
    assert counts(checker) == [(250, 64, 13)]


def test_inspect_archives_packed_with_zstd():
    """Input excludes what the cache gave: 100 + 0, 160 + 16, 220 + 32 tokens."""
    found = read("inspect_ai-0.3.285.eval").trajectories
    assert [t.task for t in found] == ["a", "b"]
    for trajectory in found:
        assert counts(trajectory) == [(100, 0, 12), (176, 16, 13), (252, 32, 14)]
        assert tools(trajectory) == [["get_order"], ["cancel_order"], ["submit"]]
        assert [s.visible_tokens for s in trajectory.steps] == [10, 11, 12]
        assert trajectory.outcome == 1.0


@pytest.mark.parametrize("at", [2500, 6500])
def test_a_damaged_archive_is_one_line(tmp_path, at):
    raw = bytearray((WRITTEN / "inspect_ai-0.3.285.eval").read_bytes())
    raw[at : at + 300] = b"\xff" * 300
    path = tmp_path / "x.eval"
    path.write_bytes(raw)
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert "\n" not in str(caught.value)
