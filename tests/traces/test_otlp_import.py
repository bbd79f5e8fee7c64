"""OTLP GenAI spans: steps, tools by id and by time, grouping, cache conventions."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from costmodel.trajectory import Effect
from hwprofiles.errors import InputError
from simulator.traces import read_trace

EFFECTS = {"get_*": "read", "cancel_*": "write"}


def attribute(key, value):
    if isinstance(value, bool):
        return {"key": key, "value": {"boolValue": value}}
    if isinstance(value, int):
        return {"key": key, "value": {"intValue": str(value)}}
    if isinstance(value, list):
        return {"key": key, "value": {"arrayValue": {"values": [{"stringValue": v} for v in value]}}}
    return {"key": key, "value": {"stringValue": value}}


def span(span_id, operation, start, end, parent="root", trace="t1", **attributes):
    found = {"gen_ai.operation.name": operation, **{k.replace("__", "."): v for k, v in attributes.items()}}
    return {
        "traceId": trace,
        "spanId": span_id,
        "parentSpanId": parent,
        "startTimeUnixNano": str(int(start * 1e9)),
        "endTimeUnixNano": str(int(end * 1e9)),
        "attributes": [attribute(k, v) for k, v in found.items()],
        "status": {},
    }


def chat(span_id, start, end, prompt, output, parts=None, **more):
    fields = {
        "gen_ai__usage__input_tokens": prompt,
        "gen_ai__usage__output_tokens": output,
        "gen_ai__response__model": "m",
        **more,
    }
    if parts is not None:
        fields["gen_ai__output__messages"] = json.dumps([{"role": "assistant", "parts": parts}])
    return span(span_id, "chat", start, end, **fields)


def wanted(name, call_id, **arguments):
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}


def words(content="hello"):
    return {"type": "text", "content": content}


def ran(span_id, name, start, end, call_id=None, **more):
    extra = {} if call_id is None else {"gen_ai__tool__call__id": call_id}
    return span(span_id, "execute_tool", start, end, gen_ai__tool__name=name, **extra, **more)


def agent(span_id="root", parent="", name="helper"):
    return span(span_id, "invoke_agent", 100, 200, parent=parent, gen_ai__agent__name=name)


def document(*spans):
    scope = {"scope": {"name": "x"}, "spans": list(spans)}
    service = {"attributes": [attribute("service.name", "shop")]}
    return {"resourceSpans": [{"resource": service, "scopeSpans": [scope]}]}


def task():
    return [
        agent(),
        chat("c1", 101, 102, 500, 20, [wanted("get_order", "k1", id="1"), wanted("get_user", "k2")]),
        ran("e2", "get_user", 102, 102.6, "k2"),
        ran("e1", "get_order", 102, 102.5, "k1"),
        chat("c2", 103, 104, 700, 30, [words()]),
        chat("c3", 110, 111, 760, 10, [wanted("cancel_order", "k3")]),
        ran("e3", "cancel_order", 111, 112, "k3"),
        chat("c4", 112, 113, 800, 5, [words()]),
    ]


@pytest.fixture
def load(tmp_path: Path):
    def read(found, **options):
        path = tmp_path / "spans.json"
        path.write_text(json.dumps(found), encoding="utf-8")
        return read_trace(path, **{"effects": EFFECTS, **options})

    return read


def only(found):
    (trajectory,) = found.workload.trajectories
    return trajectory


def test_chat_spans_are_steps_and_tools_find_their_calls(load):
    found = load(document(*task()))
    steps = only(found).steps
    assert found.format == "otlp"
    assert only(found).domain == "helper"
    assert [s.effect for s in steps] == [Effect.READ, Effect.REPLY, Effect.WRITE, Effect.REPLY]
    assert [[c.name for c in s.tools] for s in steps] == [["get_order", "get_user"], [], ["cancel_order"], []]
    assert [c.latency_s for c in steps[0].tools] == [pytest.approx(0.5), pytest.approx(0.6)]
    assert steps[0].tool_s == pytest.approx(0.6)  # in parallel: the union
    assert steps[0].observation_tokens == 180
    assert [s.user_gap_s for s in steps] == [None, 0.0, pytest.approx(6.0), 0.0]
    assert [s.cached_prompt_tokens for s in steps] == [None] * 4
    assert found.missing == ("cache", "outcome", "thinking")


def test_file_order_does_not_matter(load):
    spans = task()
    assert only(load(document(*spans))).steps == only(load(document(*reversed(spans)))).steps


def test_nothing_is_declared_so_tools_are_held(load):
    assert only(load(document(*task()), effects=None)).steps[0].effect is Effect.UNKNOWN


def test_conversations_join_traces_and_split_them(load):
    one = [chat("a", 1, 2, 10, 1, [words()], gen_ai__conversation__id="x")]
    two = [chat("b", 3, 4, 20, 1, [words()], gen_ai__conversation__id="x")]
    three = [chat("c", 5, 6, 20, 1, [words()], gen_ai__conversation__id="y")]
    two[0]["traceId"] = "t2"
    found = load(document(*one, *two, *three))
    assert {t.id: len(t.steps) for t in found.workload.trajectories} == {"x": 2, "y": 1}


def test_an_agent_called_by_an_agent_is_its_own_trajectory(load):
    inner = chat("i1", 105, 106, 90, 3, [words()])
    inner["parentSpanId"] = "sub"
    found = load(document(*task(), agent("sub", "root", "searcher"), inner))
    assert {t.id: (len(t.steps), t.domain) for t in found.workload.trajectories} == {
        "t1": (4, "helper"),
        "t1/sub": (1, "searcher"),
    }


def test_cache_outside_the_input_is_recognised_and_added(load):
    spans = task()
    spans[4]["attributes"].append(attribute("gen_ai.usage.cache_read.input_tokens", 9000))
    spans[4]["attributes"].append(attribute("gen_ai.usage.cache_creation.input_tokens", 50))
    found = load(document(*spans))
    step = only(found).steps[1]
    assert (step.prompt_tokens, step.cached_prompt_tokens) == (9750, 9000)
    assert any("not counted in it" in w for w in found.warnings)


def test_cache_inside_the_input_stays_a_part(load):
    spans = task()
    spans[4]["attributes"].append(attribute("gen_ai.usage.cache_read.input_tokens", 600))
    step = only(load(document(*spans))).steps[1]
    assert (step.prompt_tokens, step.cached_prompt_tokens) == (700, 600)


def test_old_names_of_token_counts_are_read(load):
    old = span(
        "c1", "text_completion", 1, 2, gen_ai__usage__prompt_tokens=10, gen_ai__usage__completion_tokens=4,
        gen_ai__response__finish_reasons=["stop"],
    )  # fmt: skip
    found = load(document(old))
    step = only(found).steps[0]
    assert (step.prompt_tokens, step.output_tokens, step.effect) == (10, 4, Effect.REPLY)
    assert "content" in found.missing


def test_tools_without_ids_go_to_the_step_before_them(load):
    spans = [chat("c1", 1, 2, 10, 1), ran("e1", "get_x", 2, 3), ran("e2", "get_y", 2, 3), chat("c2", 4, 5, 30, 1)]
    steps = only(load(document(*spans))).steps
    assert [[c.name for c in s.tools] for s in steps] == [["get_x", "get_y"], []]
    assert steps[1].effect is Effect.UNKNOWN  # nothing says whether it spoke or asked for a tool: held


def test_an_mcp_span_inside_the_tools_span_is_the_same_call(load):
    spans = [chat("c1", 1, 2, 10, 1), ran("e1", "get_x", 2, 3), ran("e2", "get_x", 2.1, 2.9, parent="e1")]
    assert len(only(load(document(*spans))).steps[0].tools) == 1


def test_a_failed_tool_and_a_failed_call(load):
    spans = task()
    spans[2]["status"] = {"code": 2}
    failed = span("c9", "chat", 120, 121)
    failed["status"] = {"code": "STATUS_CODE_ERROR"}
    found = load(document(*spans, failed))
    assert [c.error for c in only(found).steps[0].tools] == [False, True]
    assert len(only(found).steps) == 4
    assert any("failed LLM call" in w for w in found.warnings)


def test_a_span_exported_twice_counts_once(load):
    found = load(document(*task(), *task()))
    assert len(only(found).steps) == 4
    assert any("occurs twice" in w for w in found.warnings)


def test_json_lines_of_exports_are_read(tmp_path):
    path = tmp_path / "spans.jsonl"
    path.write_text("\n".join(json.dumps(document(s)) for s in task()), encoding="utf-8")
    assert len(read_trace(path, effects=EFFECTS).workload.trajectories[0].steps) == 4


def test_end_before_start_drops_the_times(load):
    spans = task()
    spans[4]["endTimeUnixNano"] = "5"
    found = load(document(*spans))
    assert only(found).steps[1].end_s is None
    assert "times" in found.missing


def test_spans_of_other_things_are_no_calls(load):
    other = span("c1", "x", 1, 2)
    other["attributes"] = [attribute("http.method", "GET")]
    with pytest.raises(InputError, match="no span is an LLM call"):
        load(document(other))


def test_an_llm_span_around_an_llm_span_counts_once(load):
    """A framework's span with the SDK's inside it: the outer one where it has the tokens, else the inner one."""
    spans = task()
    inner = chat("inner", 101.1, 101.9, 500, 20, [wanted("get_order", "k1", id="1"), wanted("get_user", "k2")])
    inner["parentSpanId"] = "c1"
    found = load(document(*spans, inner))
    assert len(only(found).steps) == 4
    assert any("counted once" in w for w in found.warnings)
    spans[1]["attributes"] = spans[1]["attributes"][:1]
    step = only(load(document(*spans, inner))).steps[0]
    assert (step.prompt_tokens, [c.name for c in step.tools]) == (500, ["get_order", "get_user"])


def test_snake_case_of_protobuf_is_read(load):
    def snake(value):
        if isinstance(value, dict):
            return {re.sub("(?<=[a-z])([A-Z])", lambda m: "_" + m[1].lower(), k): snake(v) for k, v in value.items()}
        return [snake(v) for v in value] if isinstance(value, list) else value

    plain = document(*task())
    assert only(load(snake(plain))).steps == only(load(plain)).steps


@pytest.mark.parametrize("count", ["-1", "1.5", "x", "9" * 30])
def test_bad_counts_name_their_span(load, count):
    spans = task()
    spans[1]["attributes"][1] = {"key": "gen_ai.usage.input_tokens", "value": {"intValue": count}}
    with pytest.raises(InputError, match="span c1"):
        load(document(*spans))


def test_a_circle_of_parents_ends(load):
    spans = task()
    spans[0]["parentSpanId"] = "root"
    assert len(only(load(document(*spans))).steps) == 4


def test_an_agents_sums_are_no_call(load):
    """Older frameworks put the sums of a run on its span without naming the operation."""
    spans = task()
    sums = span("run", "x", 100, 200, gen_ai__usage__input_tokens=2760, gen_ai__usage__output_tokens=65)
    sums["attributes"] = sums["attributes"][1:]
    for one in spans[1:]:
        one["parentSpanId"] = "run"
    assert [s.prompt_tokens for s in only(load(document(*spans, sums))).steps] == [500, 700, 760, 800]


def test_events_that_repeat_the_conversation_are_not_the_answer(load):
    def event(name, content):
        return {"name": name, "attributes": [attribute("gen_ai.event.content", json.dumps(content))]}

    asked = {"role": "assistant", "tool_calls": [{"id": "k", "type": "function", "function": {"name": "get_x"}}]}
    one = chat("a", 1, 2, 10, 1)
    one["events"] = [
        event("gen_ai.assistant.message", asked),
        event(
            "gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}
        ),
    ]
    step = only(load(document(one))).steps[0]
    assert (step.effect, step.tools) == (Effect.REPLY, ())


def test_spans_of_the_ai_sdk(load):
    outer = span("o", "x", 1, 3)
    outer["attributes"] = [attribute("ai.operationId", "ai.generateText"), attribute("ai.usage.promptTokens", 10)]
    inner = chat("i", 1, 2, 10, 4)
    inner["parentSpanId"] = "o"
    calls = [{"toolCallId": "k", "toolName": "get_x", "args": "{}"}]
    inner["attributes"][0] = attribute("ai.operationId", "ai.generateText.doGenerate")
    inner["attributes"].append(attribute("ai.response.toolCalls", json.dumps(calls)))
    tool = span("t", "x", 2, 2.5, parent="o")
    pairs = {"ai.operationId": "ai.toolCall", "ai.toolCall.name": "get_x", "ai.toolCall.id": "k"}
    tool["attributes"] = [attribute(k, v) for k, v in pairs.items()]
    steps = only(load(document(outer, inner, tool))).steps
    assert [(s.prompt_tokens, s.effect, s.tool_s) for s in steps] == [(10, Effect.READ, pytest.approx(0.5))]
