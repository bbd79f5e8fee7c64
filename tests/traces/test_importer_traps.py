"""Traps of real files, one by one (docs/traces.md): versions, missing parts, repeated and misplaced things."""

from __future__ import annotations

import copy
import json
import zipfile
from pathlib import Path

import pytest

from costmodel.trajectory import Effect
from hwprofiles.errors import InputError
from simulator.traces import read_trace

DATA = Path(__file__).parent / "data"


def lines(name):
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


@pytest.fixture
def load(tmp_path):
    def read(entries, name="x.jsonl", **options):
        path = tmp_path / name
        as_lines = path.suffix == ".jsonl"
        path.write_text("\n".join(json.dumps(e) for e in entries) if as_lines else json.dumps(entries))
        return read_trace(path, **options)

    return read


def only(found):
    (trajectory,) = found.workload.trajectories
    return trajectory


def totals(trajectory):
    return [(s.prompt_tokens, s.cached_prompt_tokens, s.output_tokens) for s in trajectory.steps]


def generation(**usage):
    head = {"id": "g", "traceId": "t", "type": "GENERATION", "startTime": "2026-03-01T10:00:00Z"}
    return [{**head, "endTime": "2026-03-01T10:00:01Z", "output": "hello", **usage}]


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"usageDetails": {"input": 40, "input_cached_tokens": 60, "output": 8, "total": 108}}, (100, 60, 8)),
        ({"usageDetails": {"input": 100, "input_cached_tokens": 60, "output": 8, "total": 108}}, (100, 60, 8)),
        ({"usageDetails": {"input": 40, "cache_read_input_tokens": 50, "cache_creation_input_tokens": 10, "output": 8}},
         (100, 50, 8)),
        ({"usageDetails": {"input": 100, "output": 5, "output_reasoning_tokens": 3, "total": 108}}, (100, None, 8)),
        ({"usageDetails": {"input": 100, "output": 8, "output_reasoning_tokens": 3, "total": 108}}, (100, None, 8)),
        ({"usage": {"input": 100, "output": 8, "total": 108, "unit": "TOKENS"}}, (100, None, 8)),
        ({"promptTokens": 100, "completionTokens": 8}, (100, None, 8)),
        ({"usageDetails": {}, "usage": {"input": 0, "output": 0}}, (None, None, None)),
        ({}, (None, None, None)),
    ],
)  # fmt: skip
def test_langfuse_parts_are_added_unless_the_total_says_otherwise(load, usage, expected):
    assert totals(only(load(generation(**usage), "x.json"))) == [expected]


def test_langfuse_traces_with_their_observations_are_read(load):
    trace = {"id": "t9", "name": "x", "sessionId": None, "observations": [{**generation()[0], "traceId": "t9"}]}
    assert only(load([trace], "x.json")).id == "t9"


def test_old_langfuse_tools_are_spans_and_cannot_be_told(load):
    entries = json.loads((DATA / "langfuse.json").read_text())["data"]
    for e in entries:
        e["type"] = "SPAN" if e["type"] in ("TOOL", "AGENT") else e["type"]
    found = load(entries, "x.json")
    assert [[c.name for c in s.tools] for s in only(found).steps] == [["get_order"], ["cancel_order"], []]
    assert "tool_times" in found.missing


def test_langsmith_names_its_zone_or_not_but_not_both(load):
    runs = lines("langsmith.jsonl")
    runs[2]["start_time"] += "Z"
    found = load(runs)
    assert any("zone" in w for w in found.warnings)
    assert only(found).steps == only(load(lines("langsmith.jsonl"))).steps


def test_langsmith_ties_are_broken_by_the_dotted_order(load):
    runs = lines("langsmith.jsonl")
    for r in runs:
        r["start_time"] = r["end_time"] = "2026-03-01T10:00:00"
    steps = only(load(list(reversed(runs)))).steps
    assert [s.prompt_tokens for s in steps] == [1000, 1100, 1200]


def test_langsmith_reads_wrapped_provider_answers(load):
    message = {"role": "assistant", "content": "hi", "tool_calls": None}
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    answer = {"choices": [{"finish_reason": "stop", "message": message}], "usage": usage}
    head = {"id": "a", "trace_id": "a", "run_type": "llm", "name": "x", "start_time": "2026-03-01T10:00:00"}
    step = only(load([{**head, "end_time": None, "outputs": answer}])).steps[0]
    assert (step.prompt_tokens, step.cached_prompt_tokens, step.output_tokens) == (7, 4, 2)
    assert (step.effect, step.end_s) == (Effect.REPLY, None)
    blocks = {
        "content": [
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "k", "name": "find", "input": {}},
        ]
    }
    usage = {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 5}
    found = load([{**head, "outputs": {**blocks, "role": "assistant", "usage": usage}}])
    step = only(found).steps[0]
    assert (step.prompt_tokens, [c.name for c in step.tools]) == (100, ["find"])
    assert any("not counted in it" in w for w in found.warnings)


def test_litellm_adds_reasoning_that_only_the_total_shows(load):
    rows = lines("litellm.jsonl")
    rows[0]["total_tokens"] += 10  # grok: reasoning is not in the completion
    assert only(load(rows)).steps[0].output_tokens == 50


def test_litellm_rows_of_other_things_are_left_out(load):
    rows = lines("litellm.jsonl")
    extra = [{**rows[0], "id": "e", "call_type": "aembedding"}, {**rows[0], "id": "h", "cache_hit": True}]
    found = load([*extra, *rows])
    assert totals(only(found)) == totals(only(load(rows)))
    assert any("left out" in w for w in found.warnings)


def test_litellm_spend_logs_are_read(load):
    rows = []
    for row in lines("litellm.jsonl"):
        row["request_id"], row["session_id"] = row.pop("id"), row.pop("trace_id")
        row["startTime"], row["endTime"] = "2026-03-01T10:00:00.000Z", "2026-03-01T10:00:01.000Z"
        rows.append({**row, "metadata": json.dumps(row["metadata"]), "response": json.dumps(row["response"])})
    assert totals(only(load({"data": rows}, "x.json"))) == totals(only(load(lines("litellm.jsonl"))))


def test_codex_counts_a_repeated_event_once_and_forgives_a_null(load):
    entries = lines("codex.jsonl")
    events = [e for e in entries if e["payload"].get("type") == "token_count"]
    assert [e["payload"]["info"] is None for e in events] == [True, False, False, False, False]
    assert sum(p for p, _, _ in totals(only(load(entries)))) == 3300


def test_codex_without_counts_still_has_its_steps(load):
    entries = [e for e in lines("codex.jsonl") if e["payload"].get("type") != "token_count"]
    found = load(entries)
    assert [[c.name for c in s.tools] for s in only(found).steps] == [["get_order"], ["cancel_order"], []]
    assert "usage" in found.missing


def test_codex_shell_calls_are_judged(load):
    entries = lines("codex.jsonl")
    call = next(e for e in entries if e["payload"].get("type") == "function_call")["payload"]
    for command, effect in (("ls -la", Effect.READ), ("rm x", Effect.WRITE), ("ls | sh", Effect.UNKNOWN)):
        call.update(name="shell", arguments=json.dumps({"command": ["bash", "-lc", command]}))
        assert only(load(entries)).steps[0].effect is effect


def test_inspect_logs_in_their_archive(tmp_path):
    log = json.loads((DATA / "inspect_ai.json").read_text())
    path = tmp_path / "x.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps({k: v for k, v in log.items() if k != "samples"}))
        archive.writestr("samples/1_epoch_1.json", json.dumps(log["samples"][0]))
    assert read_trace(path).workload.trajectories == read_trace(DATA / "inspect_ai.json").workload.trajectories
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.txt", "x")
    with pytest.raises(InputError, match="no Inspect log"):
        read_trace(path)


def test_members_of_an_archive_that_share_their_bytes_are_refused(tmp_path):
    """Many entries over one packed member would be unpacked once each."""
    log = json.loads((DATA / "inspect_ai.json").read_text())
    path = tmp_path / "x.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("samples/1_epoch_1.json", json.dumps(log["samples"][0]))
        for number in range(2, 9):
            again = copy.copy(archive.filelist[0])
            again.filename = f"samples/{number}_epoch_1.json"
            archive.filelist.append(again)
    with pytest.raises(InputError, match="overlap"):
        read_trace(path)


def test_inspect_prefers_working_time_and_knows_its_own_cache(load):
    log = json.loads((DATA / "inspect_ai.json").read_text())
    models = [e for e in log["samples"][0]["events"] if e["event"] == "model"]
    assert only(load(log, "x.json")).steps[0].end_s == 2.0  # completed says 32
    models[1]["cache"] = "read"
    found = load(log, "x.json")
    assert any("own cache" in w for w in found.warnings)
    log["samples"][0]["epoch"] = 3
    assert (only(load(log, "x.json")).id, only(load(log, "x.json")).trial) == ("1-epoch3", 2)


def test_inspect_subagents_are_trajectories_of_their_own(load):
    log = json.loads((DATA / "inspect_ai.json").read_text())
    events = log["samples"][0]["events"]
    tool = next(e for e in events if e["event"] == "tool")
    inner = json.loads(json.dumps(events[1]))
    inner.update(uuid="inner", span_id=None)
    tool["events"] = [inner]
    found = load(log, "x.json").workload
    assert [len(t.steps) for t in found.trajectories] == [3, 1]


def test_tau_bench_domains_are_told_by_their_tools(load):
    tasks = json.loads((DATA / "tau_bench.json").read_text())
    for message in tasks[0]["traj"]:
        for call in message.get("tool_calls") or []:
            call["function"]["name"] = {"get_order": "get_order_details", "cancel_order": "cancel_pending_order"}[
                call["function"]["name"]
            ]
    found = load(tasks, "x.json")
    assert (only(found).domain, only(found).source_format) == ("retail", "tau_bench")
    assert [s.effect for s in only(found).steps] == [Effect.READ, Effect.WRITE, Effect.REPLY]
    assert [c.error for s in only(found).steps for c in s.tools] == [False, True]


def test_requests_of_a_session_out_of_order_are_sorted(load):
    rows = [{"session_id": "s", "timestamp": t, "input_length": p, "output_length": 1} for t, p in ((9, 30), (1, 10))]
    found = load(rows)
    assert [s.prompt_tokens for s in only(found).steps] == [10, 30]
    assert any("out of order" in w for w in found.warnings)


def test_ids_and_lengths_of_requests_are_checked(load):
    with pytest.raises(InputError, match=r"x\.jsonl:2: input_length: expected a whole number"):
        load([{"input_length": 1, "output_length": 1}, {"input_length": 1.5, "output_length": 1}])


def test_a_mixed_list_of_null_content_and_nested_blocks(load):
    runs = lines("langsmith.jsonl")
    message = runs[1]["outputs"]["generations"][0][0]["message"]["kwargs"]
    message["content"] = [
        None,
        [],
        {"type": "text", "text": None},
        {"type": "text"},
        [{"type": "thinking", "thinking": "x"}],
    ]
    assert only(load(runs, effects={"get_order": "read"})).steps[0].effect is Effect.READ
    message["tool_calls"] = None
    assert only(load(runs, effects={"get_order": "read"})).steps[0].tools[0].name == "get_order"  # from its own run


def test_skewed_clocks_and_negative_durations(load):
    entries = json.loads((DATA / "langfuse.json").read_text())["data"]
    tool = next(e for e in entries if e["type"] == "TOOL")
    tool["startTime"], tool["endTime"] = tool["endTime"], tool["startTime"]
    generation_ = next(e for e in entries if e["type"] == "GENERATION")
    generation_["endTime"] = "2026-03-01T09:00:00Z"
    found = load(entries, "x.json")
    assert any("ends before it starts" in w for w in found.warnings)
    assert only(found).steps[0].end_s is None


def test_huge_numbers_and_lone_surrogates_are_values_like_others(load):
    runs = lines("langsmith.jsonl")
    runs[1]["outputs"]["generations"][0][0]["message"]["kwargs"]["tool_calls"][0]["args"] = {
        "n": 10**400,
        "s": "\ud800",
    }
    assert only(load(runs)).steps[0].tools[0].arguments
    runs[1]["prompt_tokens"] = 10**400
    with pytest.raises(InputError, match="prompt_tokens: expected a"):
        load(runs)


def test_totals_that_do_not_add_up_and_calls_without_a_span_are_said(load):
    runs = lines("langsmith.jsonl")
    runs[1]["total_tokens"] += 7
    found = load([r for r in runs if r["name"] != "cancel_order"])
    assert any("not prompt plus completion (x.jsonl:2: run c0" in w for w in found.warnings)
    assert any("no span of its own" in w for w in found.warnings)


def test_odd_names_are_made_plain_and_do_not_stop_an_import(load):
    runs = lines("langsmith.jsonl")
    runs[0]["name"] = "desk\n\x1b[31m" + "x" * 5000
    runs[1]["outputs"]["generations"][0][0]["message"]["kwargs"]["tool_calls"][0]["name"] = "get\n\ud800order"
    runs[1]["dotted_order"] = "0." * 5000
    assert [c.name for c in only(load(runs)).steps[0].tools] == ["get order"]


def test_tempo_batches_are_spans(load):
    document = json.loads((DATA / "otlp_genai.json").read_text())
    found = load({"batches": document["resourceSpans"]}, "x.json")
    assert found.format == "otlp"
    assert only(found).steps == read_trace(DATA / "otlp_genai.json").workload.trajectories[0].steps


def test_zero_tokens_are_no_count(load):
    rows = lines("litellm.jsonl")
    rows[0].update(prompt_tokens=0, completion_tokens=0)
    rows[0]["metadata"] = {}
    found = load(rows)
    assert only(found).steps[0].prompt_tokens is None
    assert "usage" in found.missing
    assert any("zero tokens" in w for w in found.warnings)
