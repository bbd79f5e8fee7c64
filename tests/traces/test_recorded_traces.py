"""Counts of recorded traces, where those files are at hand (they are not part of the repository)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from simulator.agreement import agreement
from simulator.effects import EffectMap
from simulator.traces import neutral, read_trace
from simulator.traces.stats import statistics
from simulator.workloads import workload

TRACES = Path(__file__).resolve().parents[2].parent / "shared" / "traces"

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason="the recorded traces are not here")

# Published beside the files: trajectories, mean reward, mean steps, tool calls per trajectory, read % and write % of
# calls (handovers counted apart), failed %, first and last prompt (median), median latency.
TAU2 = {
    "airline__gemini-2.5-flash": (20, 0.60, 8.6, 4.0, 73, 9, 10.1, 3416, 4772, 1.45),
    "airline__gpt-4.1-mini": (11, 0.27, 9.6, 6.1, 82, 15, 6.0, 3319, 6072, 1.34),
    "retail__gemini-3-flash": (110, 0.81, 10.4, 7.9, 78, 20, 3.6, 4737, 9073, 1.99),
    "retail__gpt-4.1-mini": (114, 0.58, 12.7, 7.9, 77, 22, 8.0, 3554, 7092, 1.20),
    "retail__gpt-4.1__36tasks": (35, 0.37, 11.0, 8.6, 74, 25, 3.3, 3647, 8355, 2.10),
    "telecom__gpt-4.1-mini": (2, 0.50, 16.0, 7.0, 93, 0, 0.0, 6310, 8688, 1.34),
}
CLAUDE = {
    "claude-haiku-4-5": (57, 7.8, 78, 21, 25328, 29673, 3.68),
    "claude-sonnet-4-6": (53, 8.7, 65, 16, 12036, 17604, 5.51),
}


def numbers(work):
    paths = [t.steps for t in work.trajectories]
    calls = [c for p in paths for s in p for c in s.tools]
    acting = [c for c in calls if c.name != "transfer_to_human_agents"]
    return paths, {
        "calls": len(calls) / len(paths),
        "read": 100 * sum(c.effect == "read" for c in acting) / len(calls),
        "write": 100 * sum(c.effect == "write" for c in acting) / len(calls),
        "failed": 100 * sum(bool(c.error) for c in calls) / len(calls),
        "first": median(p[0].prompt_tokens for p in paths),
        "last": median(p[-1].prompt_tokens for p in paths),
        "latency": median(s.end_s - s.start_s for p in paths for s in p if s.end_s is not None),
    }


@pytest.mark.parametrize("name", TAU2)
def test_tau2_files_have_their_published_counts(name):
    trajectories, reward, steps, calls, read, write, failed, first, last, latency = TAU2[name]
    found = read_trace(TRACES / "tau2" / f"{name}.json")
    paths, got = numbers(found.workload)
    table = statistics(found.workload)
    assert (found.format, len(paths)) == ("tau2", trajectories)
    assert table["mean_outcome"] == pytest.approx(reward, abs=0.006)
    assert table["steps_per_trajectory"]["mean"] == pytest.approx(steps, abs=0.06)
    assert got["calls"] == pytest.approx(calls, abs=0.06)
    assert (got["read"], got["write"]) == (pytest.approx(read, abs=0.6), pytest.approx(write, abs=0.6))
    assert got["failed"] == pytest.approx(failed, abs=0.06)
    assert (got["first"], got["last"]) == (pytest.approx(first, abs=1), pytest.approx(last, abs=1))
    assert got["latency"] == pytest.approx(latency, abs=0.02)


@pytest.mark.parametrize("name", CLAUDE)
def test_claude_code_folders_have_their_published_counts(name):
    """Sonnet's table counts four sessions that hold API errors only; they are no trajectories here."""
    trajectories, calls, read, write, first, last, latency = CLAUDE[name]
    folder = TRACES / "claude_code" / f"retail_solo__{name}"
    found = read_trace(folder, effects=EffectMap(declared=("tau2:retail",)))
    paths, got = numbers(found.workload)
    reward = {"claude-haiku-4-5": 46 / 57, "claude-sonnet-4-6": 48 / 53}[name]  # outcomes.json; 0.84 of all 57
    assert statistics(found.workload)["mean_outcome"] == pytest.approx(reward, abs=1e-9)
    assert (found.format, len(paths)) == ("claude_code", trajectories)
    assert got["calls"] == pytest.approx(calls, abs=0.06)
    assert (got["read"], got["write"]) == (pytest.approx(read, abs=0.6), pytest.approx(write, abs=0.6))
    assert (got["first"], got["last"]) == (pytest.approx(first, abs=2), pytest.approx(last, abs=2))
    assert got["latency"] == pytest.approx(latency, rel=0.02)
    for line in ("without a final output count", "headless"):
        assert any(line in w for w in found.warnings)


def test_summing_over_lines_would_triple_the_prompts():
    """Usage is repeated on every line: a sum over lines gives 2.9 times the prompt tokens of the haiku run."""
    folder = TRACES / "claude_code" / "retail_solo__claude-haiku-4-5"
    total = sum(s.prompt_tokens for t in read_trace(folder).workload.trajectories for s in t.steps)
    naive = 0
    for file in folder.glob("*.jsonl"):
        for line in file.read_text().splitlines():
            entry = json.loads(line)
            if entry.get("type") == "assistant":
                usage = entry["message"]["usage"]
                naive += sum(usage[k] for k in usage if k.endswith("input_tokens"))
    assert naive / total == pytest.approx(2.9, abs=0.15)


# What each format can carry, and `formats/expected_neutral.json` is projected on: "thinking" and "cache" are token
# counts, "spans" times of steps to the microsecond, "lines" to the millisecond, "tools" names, latency and failure of
# every call, "names" their names only. Prompt and output tokens are in all of them.
CARRIES = {
    "otlp_genai.json": ("otlp", {"cache", "thinking", "spans", "tools"}, 5),
    "otlp_openinference.json": ("openinference", {"cache", "thinking", "spans", "tools"}, 5),
    "langfuse_observations.json": ("langfuse", {"cache", "thinking", "spans", "tools"}, 5),
    "langsmith_runs.jsonl": ("langsmith", {"cache", "thinking", "spans", "tools"}, 5),
    "litellm_standard_logging.jsonl": ("litellm", {"cache", "thinking", "spans", "names"}, 5),
    "codex_rollout.jsonl": ("codex", {"cache", "thinking", "lines", "names"}, 1),
    "mooncake_sessions.jsonl": ("requests", set(), 5),
}


@pytest.mark.parametrize("file", CARRIES)
def test_every_format_gives_the_expected_steps(file):
    format_, carries, n = CARRIES[file]
    found = read_trace(TRACES / "formats" / file)
    expected = json.loads((TRACES / "formats" / "expected_neutral.json").read_text())[:n]
    assert found.format == format_
    by_id = {t.id: t for t in found.workload.trajectories}
    assert set(by_id) == {e["trajectory_id"] for e in expected}
    for entry in expected:
        steps = by_id[entry["trajectory_id"]].steps
        assert len(steps) == len(entry["steps"])
        for step, wanted in zip(steps, entry["steps"], strict=True):
            _agrees(step, wanted, entry["steps"][0]["start"], carries)


def _agrees(step, wanted, zero, carries):
    assert step.prompt_tokens == wanted["prompt_tokens"]
    assert step.output_tokens == wanted["completion_tokens"]
    if "cache" in carries:
        assert step.cached_prompt_tokens == wanted["cached_prompt_tokens"]
    if "thinking" in carries:
        assert step.output_tokens - step.visible_tokens == wanted["thinking_tokens"]
    if carries & {"tools", "names"}:
        assert (step.effect == "reply") == (wanted["kind"] == "reply")
        assert step.model == wanted["model"]
        assert [c.name for c in step.tools] == [c["name"] for c in wanted["tools"]]
    if "tools" in carries:
        assert [c.error for c in step.tools] == [c["error"] for c in wanted["tools"]]
        latencies = [c["latency_s"] for c in wanted["tools"]]
        assert [c.latency_s for c in step.tools] == pytest.approx(latencies, abs=3e-6)
    exact = 3e-6 if "spans" in carries else 2e-3 if "lines" in carries else None
    if exact is not None:
        times = (wanted["start"] - zero, wanted["end"] - zero)
        assert (step.start_s, step.end_s) == pytest.approx(times, abs=exact)


def test_all_formats_compare_a_call_by_the_same_key():
    """Arguments are written as text here and as objects there: the keys are the same."""
    keys = {}
    for file, (_, carries, n) in CARRIES.items():
        if n == 5 and carries & {"tools", "names"}:
            found = read_trace(TRACES / "formats" / file).workload.trajectories
            keys[file] = {t.id: [[c.arguments for c in s.tools] for s in t.steps] for t in found}
    assert len(keys) == 5
    assert all(k == keys["otlp_genai.json"] for k in keys.values())


def test_medagentbench_has_its_published_counts():
    """Rounds, GET / POST / finish and latencies of the README; agreement 0.45 where addresses are equal."""
    for name, steps, effects, correct in (("haiku", 63, (30, 8, 24), 0.68), ("opus5", 65, (34, 6, 25), 0.72)):
        found = read_trace(TRACES / "medagentbench" / f"{name}.json").workload
        table = statistics(found)
        all_steps = [s for t in found.trajectories for s in t.steps]
        assert (len(found.trajectories), len(all_steps)) == (25, steps)
        assert tuple(sum(s.effect == e for s in all_steps) for e in ("read", "write", "reply")) == effects
        assert table["mean_outcome"] == pytest.approx(correct)
        assert table["step_s"]["p50"] == pytest.approx({"haiku": 1.406, "opus5": 3.035}[name], abs=2e-3)


def test_haiku_agrees_with_opus_on_medagentbench_as_published():
    weak, strong = (read_trace(TRACES / "medagentbench" / f"{n}.json").workload for n in ("haiku", "opus5"))
    strong = replace(strong, trajectories=tuple(replace(t, outcome=None) for t in strong.trajectories))
    found = agreement(weak, strong)
    assert found.tasks == 25
    assert found.literal.value == pytest.approx(0.45, abs=0.03)


def test_requests_of_serving_traces_are_trajectories_of_one_step():
    for file, n, prompt, output in (
        ("AzureLLMInferenceTrace_code.csv", 8819, 2048, 28),
        ("mooncake_conversation_trace.jsonl", 12031, 12035, 343),
    ):
        found = read_trace(TRACES / "serving" / file)
        steps = [s for t in found.workload.trajectories for s in t.steps]
        assert (found.format, len(found.workload.trajectories), len(steps)) == ("requests", n, n)
        assert sum(s.prompt_tokens for s in steps) / n == pytest.approx(prompt, abs=0.5)
        assert sum(s.output_tokens for s in steps) / n == pytest.approx(output, abs=0.5)
        assert {"session", "tools"} <= set(found.missing)


def test_swe_agent_replays_have_one_step_a_call():
    for file, calls in (("install-1", 11), ("replace_from_source", 13)):
        (path,) = (TRACES / "swe_agent").glob(f"*{file}.traj.json")
        (trajectory,) = read_trace(path).workload.trajectories
        assert len(trajectory.steps) == calls
        assert all(0.1 < s.tool_s < 2 for s in trajectory.steps)
        assert trajectory.steps[-1].effect == "reply"


@pytest.mark.parametrize(
    ("bundled", "file"),
    [
        ("retail-gpt-4.1-mini", "retail__gpt-4.1-mini"),
        ("retail-gemini-3-flash", "retail__gemini-3-flash"),
        ("airline", "airline__gpt-4.1-mini"),
    ],
)
def test_bundled_workloads_are_what_the_importer_makes_of_their_files(bundled, file):
    ours = workload(bundled).trajectories
    theirs = read_trace(TRACES / "tau2" / f"{file}.json").workload.trajectories
    assert [t.id for t in ours] == [t.id for t in theirs]
    for a, b in zip(ours, theirs, strict=True):
        assert (a.outcome, a.task, a.missing) == (b.outcome, b.task, b.missing)
        for s, t in zip(a.steps, b.steps, strict=True):
            one, other = neutral._step_document(s), neutral._step_document(t)
            exact = ("effect", "prompt_tokens", "cached_prompt_tokens", "output_tokens", "visible_tokens", "model")
            assert {k: one.get(k) for k in exact} == {k: other.get(k) for k in exact}
            assert [(c.name, c.arguments, c.error) for c in s.tools] == [
                (c.name, c.arguments, c.error) for c in t.tools
            ]
            assert s.end_s == pytest.approx(t.end_s, abs=1e-3)


def test_haiku_agrees_with_sonnet_as_published():
    """Reads 0.95, writes about 0.83 of the calls; 0.93 overall, over the tasks that sonnet solved."""
    effects = EffectMap(declared=("tau2:retail",))
    pair = [
        read_trace(TRACES / "claude_code" / f"retail_solo__{m}", effects=effects).workload
        for m in ("claude-haiku-4-5", "claude-sonnet-4-6")
    ]
    found = agreement(*pair, ignore=("transfer_to_human_agents", "Agent"))  # only reads and writes, as published
    assert found.tasks == 48
    assert found.mean.value == pytest.approx(0.93, abs=0.006)
    assert found.any_order.value == pytest.approx(0.95, abs=0.006)
    assert found.by_effect["read"].value == pytest.approx(0.95, abs=0.01)
    assert found.by_effect["write"].value == pytest.approx(0.83, abs=0.02)


@pytest.mark.parametrize("file", ["latency/ttft_sweep.json", "tau2/tool_types.json", "formats/expected_neutral.json"])
def test_files_that_are_no_traces_are_refused_in_one_line(file, run_cli):
    done = run_cli("trace", "import", TRACES / file)
    assert (done.code, done.out) == (2, "")
    assert "format not recognised" in done.err
    assert done.err.count("\n") == 1
