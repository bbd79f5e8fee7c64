"""Large files: one entry at a time, whatever the size; limits are said; nothing half-written stays."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest

from hwprofiles.errors import InputError
from simulator.traces import entries, load, neutral, read_trace, spill
from simulator.traces.read import stream_trace
from simulator.traces.write import writer

DATA = Path(__file__).parent / "data"
LISTS = ("langfuse.json", "tau2.json", "tau_bench.json", "phoenix_api.json", "otlp_genai.json", "inspect_ai.json",
         "medagentbench.json", "langsmith_tree.json")  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_a_streamed_document_is_read_as_a_small_one(name, monkeypatch):
    small = read_trace(DATA / name)
    monkeypatch.setattr(load, "MAX_WHOLE_BYTES", 100)
    large = read_trace(DATA / name)
    assert (large.workload, large.format, large.missing) == (small.workload, small.format, small.missing)


@pytest.mark.parametrize(
    "name", ["langsmith.jsonl", "otel_sdk.jsonl", "claude_code.jsonl", "litellm.jsonl", "tau2.json"]
)
def test_records_on_disk_are_read_as_those_in_memory(name, monkeypatch):
    memory = read_trace(DATA / name)
    monkeypatch.setattr(spill, "IN_MEMORY_BYTES", 0)
    assert read_trace(DATA / name) == memory


def test_groups_come_in_the_order_of_their_first_record_in_memory_and_on_disk(monkeypatch):
    def filled():
        found = spill.Spill()
        for i, key in enumerate("bacabcd"):
            found.add(key, [i])
        found.join("a", "d")
        return [[r[0] for r in rows] for rows in found.groups()]

    assert filled() == [[0, 4], [1, 3, 6], [2, 5]]
    monkeypatch.setattr(spill, "IN_MEMORY_BYTES", 0)
    assert filled() == [[0, 4], [1, 3, 6], [2, 5]]


def test_broken_large_documents_are_one_message(tmp_path, monkeypatch):
    monkeypatch.setattr(load, "MAX_WHOLE_BYTES", 100)
    text = (DATA / "langfuse.json").read_text()
    for broken in (text[: len(text) // 2], text.replace("1000", "nan"), text.replace("c1", "\ud800\x00")):
        path = tmp_path / "x.json"
        path.write_bytes(broken.encode("utf-8", "surrogatepass"))
        with pytest.raises(InputError, match=r"x\.json: ") as caught:
            read_trace(path)
        assert "\n" not in str(caught.value)


def test_an_entry_may_not_take_all_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(load, "MAX_WHOLE_BYTES", 100)
    monkeypatch.setattr(entries, "MAX_ENTRY_BYTES", 200_000)
    path = tmp_path / "x.json"
    path.write_text('{"simulations": [{"task_id": "1", "messages": [' + "1," * 200_000 + "1]}]}")
    with pytest.raises(InputError, match="one entry takes more than"):
        read_trace(path)


def test_packed_files_are_read_and_bombs_are_not(tmp_path):
    path = tmp_path / "talk.jsonl.gz"
    path.write_bytes(gzip.compress((DATA / "langsmith.jsonl").read_bytes()))
    found = read_trace(path).workload
    assert (found.name, found.trajectories) == ("talk", read_trace(DATA / "langsmith.jsonl").workload.trajectories)
    path.write_bytes(gzip.compress(b" " * (load.MAX_WHOLE_BYTES + 40_000_000)))
    with pytest.raises(InputError, match=r"unpacks to more than|longer than"):
        read_trace(path)
    path.write_bytes(gzip.compress((DATA / "langsmith.jsonl").read_bytes())[:-20])
    with pytest.raises(InputError, match="not a whole gzip file"):
        read_trace(path)


def test_long_files_take_no_more_memory_than_short_ones(tmp_path):
    """Peak of Python's own allocations while a stream is read: 20 times the lines, hardly more memory."""

    def peak(n):
        path = tmp_path / f"{n}.jsonl"
        rows = [json.loads(line) for line in (DATA / "litellm.jsonl").read_text().splitlines()]
        with path.open("w") as out:
            for i in range(n):
                for row in rows:
                    out.write(json.dumps({**row, "id": f"{row['id']}-{i}", "trace_id": f"talk-{i}"}) + "\n")
        stream_trace(path)  # imports
        tracemalloc.start()
        steps = sum(len(t.steps) for t in stream_trace(path))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert steps == 3 * n
        return found

    import simulator.traces.spill as module

    before, module.IN_MEMORY_BYTES = module.IN_MEMORY_BYTES, 20_000
    try:
        assert peak(300) < 3 * peak(15) + 500_000
    finally:
        module.IN_MEMORY_BYTES = before


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".parquet"])
def test_streams_are_written_as_they_come(tmp_path, suffix):
    whole = read_trace(DATA / "langsmith.jsonl").workload
    path = tmp_path / f"out{suffix}"
    stream = stream_trace(DATA / "langsmith.jsonl")
    with writer(stream.head, path) as add:
        for trajectory in stream:
            add(trajectory)
    assert read_trace(path).workload == whole
    other = tmp_path / f"whole{suffix}"
    neutral.write(whole, other)
    assert other.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".parquet"])
def test_a_broken_stream_leaves_nothing_behind(tmp_path, suffix):
    lines = (DATA / "langsmith.jsonl").read_text().splitlines()
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join([*lines, "{"]))
    path = tmp_path / f"out{suffix}"
    stream = stream_trace(source)
    with pytest.raises(InputError, match="not valid JSON"), writer(stream.head, path) as add:  # noqa: PT012
        for trajectory in stream:
            add(trajectory)
    assert [p.name for p in tmp_path.iterdir()] == ["in.jsonl"]


def test_a_large_document_that_is_nested_too_deep_is_not_built(tmp_path, monkeypatch):
    monkeypatch.setattr(load, "MAX_WHOLE_BYTES", 100)
    for text in ('{"simulations": [{"task_id": "1", "messages": ' + "[" * 5_000, "[" * 5_000, '[{"a":' * 5_000):
        path = tmp_path / "x.json"
        path.write_text(text)
        with pytest.raises(InputError, match="nested too deep"):
            read_trace(path, format="tau2")
