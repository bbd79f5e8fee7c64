"""Mutated traces give a result or one InputError, never anything else."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hwprofiles.errors import InputError
from simulator.traces import neutral, read_trace
from simulator.traces.stats import statistics, summary


def _tau2():
    usage = {"prompt_tokens": 100, "completion_tokens": 9, "reasoning_tokens": 2, "total_tokens": 109}
    call = {"id": "a", "name": "get_order_details", "arguments": {"order_id": "#1"}, "requestor": "assistant"}
    messages = [
        {"role": "user", "timestamp": "2026-01-01T00:00:00", "content": "hi"},
        {"role": "assistant", "timestamp": "2026-01-01T00:00:01", "usage": usage, "tool_calls": [call]},
        {"role": "tool", "timestamp": "2026-01-01T00:00:02", "id": "a", "error": False},
        {
            "role": "assistant",
            "timestamp": "2026-01-01T00:00:03",
            "usage": {**usage, "prompt_tokens": 150},
            "content": "x",
        },
    ]
    simulation = {
        "id": "s",
        "task_id": "1",
        "trial": 0,
        "duration": 3.0,
        "reward_info": {"reward": 1},
        "messages": messages,
    }
    return {"info": {"environment_info": {"domain_name": "retail"}}, "simulations": [simulation]}


def _claude_code():
    usage = {"input_tokens": 3, "cache_read_input_tokens": 90, "output_tokens": 7}
    block = {"type": "tool_use", "id": "a", "name": "Read", "input": {"path": "f"}}
    head = {"sessionId": "s", "timestamp": "2026-01-01T00:00:00Z", "uuid": "u", "isSidechain": False}
    return [
        {**head, "type": "user", "message": {"role": "user", "content": "hi"}},
        {
            **head,
            "type": "assistant",
            "message": {"id": "m", "model": "x", "stop_reason": "tool_use", "usage": usage, "content": [block]},
        },
        {**head, "type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "a"}]}},
    ]


def _otlp():
    def span(key, operation, start, end, **more):
        pairs = {"gen_ai.operation.name": operation, **more}
        values = [
            {"key": k, "value": {"stringValue": v} if isinstance(v, str) else {"intValue": v}} for k, v in pairs.items()
        ]
        found = {
            "traceId": "t",
            "spanId": key,
            "startTimeUnixNano": start,
            "endTimeUnixNano": end,
            "attributes": values,
        }
        return {**found, "status": {"code": 1}, "events": []}

    parts = [{"type": "tool_call", "id": "k", "name": "get_x", "arguments": {"a": 1}}]
    messages = json.dumps([{"role": "assistant", "parts": parts}])
    chat = span("c", "chat", "1000", "2000", **{"gen_ai.usage.input_tokens": "10", "gen_ai.output.messages": messages})
    tool = span("e", "execute_tool", "2000", "3000", **{"gen_ai.tool.name": "get_x", "gen_ai.tool.call.id": "k"})
    return {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"spans": [chat, tool]}]}]}


def _neutral():
    tool = {"name": "t", "effect": "read", "latency_s": 0.1}
    step = {"index": 0, "effect": "read", "prompt_tokens": 10, "output_tokens": 3, "visible_tokens": 3, "tools": [tool]}
    head = {"schema": neutral.SCHEMA, "name": "n", "kind": "trace", "source": "", "notes": []}
    return {**head, "trajectories": [{"id": "a", "source_format": "x", "missing": [], "steps": [step]}]}


MAKERS = {"tau2": _tau2, "claude_code": _claude_code, "otlp": _otlp, "neutral": _neutral}

WEIRD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(
        [0, -1, 10**30, 1.5, math.inf, math.nan, "", "x", "-5", "\ud800", "\x1b[31m", [], {}, [[]], {"": 0}]
    ),
    st.integers(),
    st.text(max_size=4),
)


def places(value, path=()):
    """Paths of all values inside a document."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield from places(item, (*path, key))


def changed(document, path, value, *, drop):
    found = json.loads(json.dumps(document))
    if not path:
        return value
    at = found
    for key in path[:-1]:
        at = at[key]
    if drop:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return found


def survive(path, **options):
    try:
        found = read_trace(path, **options)
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017
        str(error).encode("utf-8")
        return
    assert found.workload.trajectories
    text = neutral.json_text(found.workload)
    text.encode("utf-8")
    again = neutral.from_document(json.loads(text), "again")
    assert again == found.workload  # whatever an importer lets through, the strict neutral reader accepts
    json.dumps({**summary(again), **statistics(again)}, allow_nan=False)
    for trajectory in found.workload.trajectories:
        assert all((s.observation_tokens or 0) >= 0 and (s.visible_tokens or 0) >= 0 for s in trajectory.steps)


@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutated_documents(name, data, tmp_path):
    document = MAKERS[name]()
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(list(places(document))))
        document = changed(document, path, data.draw(WEIRD), drop=data.draw(st.booleans()))
    lines = name == "claude_code" and isinstance(document, list)
    file = tmp_path / ("w.jsonl" if lines else "w.json")
    text = "\n".join(json.dumps(d) for d in document) if lines else json.dumps(document)
    file.write_text(text, encoding="utf-8")
    survive(file)
    survive(file, format=name)


@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutated_bytes(name, data, tmp_path):
    document = MAKERS[name]()
    text = "\n".join(json.dumps(d) for d in document) if isinstance(document, list) else json.dumps(document)
    raw = bytearray(text.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    file = tmp_path / "w.json"
    file.write_bytes(bytes(raw[: data.draw(st.integers(1, len(raw)))]))
    survive(file)


@pytest.mark.parametrize("wanted", MAKERS)
@pytest.mark.parametrize("name", MAKERS)
def test_a_wrong_format_is_one_clear_error(name, wanted, tmp_path):
    document = MAKERS[name]()
    file = tmp_path / ("w.jsonl" if isinstance(document, list) else "w.json")
    file.write_text("\n".join(json.dumps(d) for d in document) if isinstance(document, list) else json.dumps(document))
    survive(file, format=wanted)
