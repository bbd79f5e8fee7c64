"""One small task (`data/`) in every format gives the same steps, as far as the format can carry them."""

from __future__ import annotations

from pathlib import Path

import pytest

from costmodel.trajectory import Effect
from hwprofiles.errors import InputError
from simulator.traces import read_trace
from simulator.traces.detect import format_names

DATA = Path(__file__).parent / "data"
EFFECTS = {"get_*": "read", "cancel_*": "write"}
SPANS = {"times", "tool_times", "names", "tokens", "cache", "thinking"}
FILES = {
    "tau2.json": ("tau2", SPANS | {"domain", "outcome"}),
    "tau_bench.json": ("tau_bench", {"names", "outcome"}),
    "claude_code.jsonl": ("claude_code", SPANS - {"thinking"}),
    "codex.jsonl": ("codex", SPANS),
    "openinference.json": ("openinference", SPANS | {"domain"}),
    "phoenix_api.json": ("openinference", SPANS | {"domain"}),
    "phoenix_table.jsonl": ("openinference", SPANS | {"domain"}),
    "otlp_genai.json": ("otlp", SPANS | {"domain"}),
    "otel_sdk.jsonl": ("otlp", SPANS | {"domain"}),
    "langfuse.json": ("langfuse", SPANS | {"domain"}),
    "langfuse_batch.jsonl": ("langfuse", SPANS | {"domain"}),
    "langsmith.jsonl": ("langsmith", SPANS),
    "langsmith_tree.json": ("langsmith", SPANS),
    "litellm.jsonl": ("litellm", SPANS - {"tool_times"}),
    "openai_agents.jsonl": ("openai_agents", SPANS - {"model"} | {"domain"}),
    "inspect_ai.json": ("inspect_ai", SPANS | {"domain", "outcome"}),
    "weka.json": ("weka", {"times", "tool_times", "tokens"}),
    "aiperf_sessions.jsonl": ("requests", {"tokens"}),
    "bailian.jsonl": ("requests", {"tokens"}),
}
KEYS = ("d0fc4e47ea.d4b24c", "f6ea63962f.780a23")


@pytest.mark.parametrize("file", FILES)
def test_the_same_task_gives_the_same_steps(file):
    format_, carries = FILES[file]
    found = read_trace(DATA / file, effects=EFFECTS)
    first = found.workload.trajectories[0]
    steps = first.steps
    assert (found.format, len(steps)) == (format_, 3)
    if "tokens" in carries:
        assert [(s.prompt_tokens, s.output_tokens) for s in steps] == [(1000, 40), (1100, 30), (1200, 50)]
    if "cache" in carries:
        assert [s.cached_prompt_tokens for s in steps] == [600, 1000, 1100]
    if "thinking" in carries:
        assert [s.visible_tokens for s in steps] == [30, 30, 45]
        assert [s.observation_tokens for s in steps] == [70, 70, 0]
    if "times" in carries:
        times = [(0, 2), (2.5, 4), (4.25, 6)]
        assert [(s.start_s, s.end_s) for s in steps] == [pytest.approx(t, abs=1e-6) for t in times]
        assert [s.user_gap_s for s in steps] == [None, 0.0, 0.0]
    if "tool_times" in carries:
        assert [s.tool_s for s in steps] == [pytest.approx(t, abs=1e-6) for t in (0.5, 0.25, 0)]
    if "names" in carries:
        assert [s.effect for s in steps] == [Effect.READ, Effect.WRITE, Effect.REPLY]
        assert [[c.name for c in s.tools] for s in steps] == [["get_order"], ["cancel_order"], []]
        assert tuple(s.tools[0].arguments for s in steps[:2]) == KEYS
    assert first.domain in ({"shop", "desk"} if "domain" in carries else {None})
    assert first.outcome == (1.0 if "outcome" in carries else None)


def test_every_format_has_a_file_here():
    others = {"neutral", "swe_agent", "medagentbench"}
    assert {f for f, _ in FILES.values()} | others == set(format_names())


def test_models_are_named_where_the_format_does():
    for file, (_, carries) in FILES.items():
        if "names" in carries and file not in ("openai_agents.jsonl", "tau_bench.json"):
            steps = read_trace(DATA / file).workload.trajectories[0].steps
            assert {s.model for s in steps} == {"m-1"}, file


def test_what_a_format_lacks_is_said():
    lacking = {file: set(read_trace(DATA / file).missing) for file in FILES}
    assert lacking["inspect_ai.json"] == set()
    assert lacking["codex.jsonl"] == {"outcome"}
    assert lacking["claude_code.jsonl"] == {"outcome", "thinking"}
    assert lacking["litellm.jsonl"] == {"outcome", "tool_times"}
    assert lacking["openai_agents.jsonl"] == {"content", "outcome"}
    assert lacking["weka.json"] == {"cache", "outcome", "thinking", "tools"}
    assert lacking["aiperf_sessions.jsonl"] == {"cache", "content", "outcome", "thinking", "times", "tools"}


def test_requests_without_a_session_are_trajectories_of_one_step():
    for file in ("mooncake.jsonl", "azure.csv"):
        found = read_trace(DATA / file)
        assert [[s.prompt_tokens for s in t.steps] for t in found.workload.trajectories] == [[1000], [1100], [1200]]
        assert "session" in found.missing


def test_weka_subagents_are_trajectories_of_their_own():
    found = read_trace(DATA / "weka.json")
    assert [(t.id, t.domain, len(t.steps)) for t in found.workload.trajectories] == [
        ("talk-1", None, 3),
        ("talk-1/agent_001", "Explore", 1),
    ]


def test_swe_agents_judge_their_shell():
    steps = read_trace(DATA / "swe_agent.traj").workload.trajectories[0].steps
    assert [s.effect for s in steps] == [Effect.READ, Effect.UNKNOWN, Effect.REPLY]
    assert [s.tool_s for s in steps] == [0.5, 0.25, 0.1]
    mini = read_trace(DATA / "mini_swe_agent.json").workload.trajectories[0]
    assert (mini.id, [s.effect for s in mini.steps]) == ("org__repo-1", [Effect.READ, Effect.WRITE, Effect.UNKNOWN])
    assert [s.prompt_tokens for s in mini.steps] == [1000, 1100, 1200]


def test_medagentbench_verbs():
    (trajectory,) = read_trace(DATA / "medagentbench.json").workload.trajectories
    assert [s.effect for s in trajectory.steps] == [Effect.READ, Effect.WRITE, Effect.REPLY]
    assert [s.end_s for s in trajectory.steps] == [2.0, 3.5, 5.25]


@pytest.mark.parametrize("wanted", format_names())
def test_a_wrong_format_is_a_result_or_one_clear_error(wanted):
    for file in (*FILES, "mooncake.jsonl", "azure.csv", "swe_agent.traj", "medagentbench.json"):
        try:
            assert read_trace(DATA / file, format=wanted).workload.trajectories
        except InputError as error:
            assert "\n" not in str(error)  # noqa: PT017
