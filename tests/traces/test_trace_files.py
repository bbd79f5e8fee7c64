"""Reading files: formats told from content, one clear message for every bad file, the neutral format round trip."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from costmodel.trajectory import Effect, Step, ToolCall, Trajectory, Workload
from hwprofiles.errors import InputError
from simulator.traces import neutral, read_trace
from simulator.traces.load import TraceFile


def small() -> Workload:
    """Two trajectories with every field used somewhere."""
    tool = ToolCall(name="get_x", effect=Effect.READ, latency_s=0.25, error=False, arguments="ab12")
    first = Step(
        index=0,
        effect=Effect.READ,
        prompt_tokens=100,
        cached_prompt_tokens=64,
        output_tokens=20,
        visible_tokens=15,
        observation_tokens=30,
        tools=(tool, replace(tool, name="get_y", latency_s=None, error=None)),
        tool_s=0.25,
        start_s=0.0,
        end_s=1.5,
        model="m",
    )
    last = Step(index=1, effect=Effect.REPLY, prompt_tokens=145, output_tokens=5, user_gap_s=2.0, valid=True)
    one = Trajectory(
        id="a",
        source_format="x",
        domain="shop",
        task="1",
        trial=2,
        outcome=0.5,
        missing=("cache",),
        steps=(first, last),
    )
    two = Trajectory(id="b", source_format="x", steps=(replace(last, index=0, valid=None),))
    return Workload(name="both", trajectories=(one, two), source="here", notes=("note",))


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".parquet"])
def test_neutral_files_come_back_as_they_went(tmp_path, suffix):
    path = tmp_path / f"w{suffix}"
    neutral.write(small(), path)
    found = read_trace(path)
    assert found.workload == small()
    assert (found.format, found.warnings, found.missing) == ("neutral", (), ("cache",))


def test_writing_twice_gives_the_same_bytes(tmp_path):
    for name in ("one.json", "two.json"):
        neutral.write(small(), tmp_path / name)
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()


def test_unknown_suffix_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"\.json, \.jsonl or \.parquet"):
        neutral.write(small(), tmp_path / "w.yaml")


def document() -> dict:
    return neutral.to_document(small())


def broken(change) -> dict:
    found = json.loads(json.dumps(document()))
    change(found)
    return found


CASES = {
    "unknown key 'prompt_token'; did you mean 'prompt_tokens'": lambda d: d["trajectories"][0]["steps"][0].update(
        prompt_token=1
    ),
    "did you mean 'read'": lambda d: d["trajectories"][0]["steps"][0].update(effect="reed"),
    "'id' is missing": lambda d: d["trajectories"][0].pop("id"),
    "occurs twice": lambda d: d["trajectories"][1].update(id="a"),
    "index: expected 1": lambda d: d["trajectories"][0]["steps"][1].update(index=4),
    "output_tokens: expected a whole number": lambda d: d["trajectories"][0]["steps"][0].update(output_tokens=-3),
    "tool_s: expected seconds >= 0": lambda d: d["trajectories"][0]["steps"][0].update(tool_s=-0.1),
    "cached_prompt_tokens: 200 is more than": lambda d: d["trajectories"][0]["steps"][0].update(
        cached_prompt_tokens=200
    ),
    "start_s: 2 is more than end_s": lambda d: d["trajectories"][0]["steps"][0].update(start_s=2),
    "kind: expected 'trace' or 'law'": lambda d: d.update(kind="dream"),
    "schema: expected": lambda d: d.update(schema="other.trajectories/9"),
    "printable": lambda d: d["trajectories"][0].update(task="a\u001b[31mb"),
    "holds no step": lambda d: d.update(trajectories=[]),
}


@pytest.mark.parametrize("message", CASES)
def test_neutral_keys_and_values_are_strict(tmp_path, message):
    path = tmp_path / "w.json"
    path.write_text(json.dumps(broken(CASES[message])), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert message in str(caught.value)
    assert "w.json" in str(caught.value)


FILES = {
    "the file is empty": b"",
    "w.json: the file is empty": b" \n\n",
    "not UTF-8": b'{"a": "\xff\xfe"}',
    "not valid JSON": b'{"schema": ',
    "NaN is not a number": b'{"a": NaN}',
    "nested too deep": b"[" * 200_000,
    "format not recognised (its keys are a)": b'{"a": 1}',
    "it holds int values": b"3",
    "no LLM call": b'{"simulations": []}',
    "simulations: expected a list": b'{"task_id": "1", "messages": [], "simulations": 3}',
}


@pytest.mark.parametrize("message", FILES)
def test_bad_files_have_one_clear_message(tmp_path, message):
    path = tmp_path / "w.json"
    path.write_bytes(FILES[message])
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_byte_order_mark_is_fine(tmp_path):
    path = tmp_path / "w.json"
    path.write_bytes(b"\xef\xbb\xbf" + neutral.json_text(small()).encode())
    assert read_trace(path).workload == small()


def test_json_lines_in_a_json_file_are_recognised(tmp_path):
    neutral.write(small(), tmp_path / "w.jsonl")
    (tmp_path / "w.jsonl").rename(tmp_path / "w.json")
    assert read_trace(tmp_path / "w.json").workload == small()


def test_missing_files_and_empty_folders(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_trace(tmp_path / "none.json")
    with pytest.raises(InputError, match=r"holds no \.jsonl"):
        read_trace(tmp_path)
    with pytest.raises(InputError, match="no trace file given"):
        read_trace([])


def test_one_file_twice_is_refused(tmp_path):
    path = tmp_path / "w.json"
    neutral.write(small(), path)
    with pytest.raises(InputError, match="given twice"):
        read_trace([path, path])


def test_files_of_different_formats_are_refused(tmp_path):
    neutral.write(small(), tmp_path / "a.json")
    (tmp_path / "b.json").write_text('{"simulations": []}', encoding="utf-8")
    with pytest.raises(InputError, match=r"a\.json is neutral, b\.json is tau2"):
        read_trace([tmp_path / "a.json", tmp_path / "b.json"])


def test_an_unknown_format_names_the_nearest(tmp_path):
    neutral.write(small(), tmp_path / "a.json")
    with pytest.raises(InputError, match="did you mean 'tau2'"):
        read_trace(tmp_path / "a.json", format="tau")


def test_size_limits_are_said(tmp_path, monkeypatch):
    path = tmp_path / "w.json"
    neutral.write(small(), path)
    monkeypatch.setattr("simulator.traces.load.MAX_JSON_BYTES", 100)
    with pytest.raises(InputError, match="JSON files may have up to"):
        read_trace(path)


def test_lines_are_read_one_at_a_time(tmp_path):
    path = tmp_path / "w.jsonl"
    path.write_text('{"a": 1}\n\n{"a": 2}\nbroken', encoding="utf-8")
    records = TraceFile(path=path, kind="lines").records()
    assert [next(records), next(records)] == [("w.jsonl:1", {"a": 1}), ("w.jsonl:3", {"a": 2})]


def test_a_parquet_file_of_someone_else_is_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match="not written by specroof"):
        read_trace(tmp_path / "x.parquet")
    (tmp_path / "y.parquet").write_bytes(b"nothing")
    with pytest.raises(InputError, match="Parquet"):
        read_trace(tmp_path / "y.parquet")


def test_effects_are_set_anew_on_neutral_files(tmp_path):
    path = tmp_path / "w.json"
    neutral.write(small(), path)
    steps = read_trace(path, effects={"get_y": "write"}).workload.trajectories[0].steps
    assert [s.effect for s in steps] == [Effect.WRITE, Effect.REPLY]
    assert [t.effect for t in steps[0].tools] == [Effect.READ, Effect.WRITE]


def test_neutral_files_join_unless_ids_clash(tmp_path):
    neutral.write(small(), tmp_path / "a.json")
    other = replace(small(), trajectories=(replace(small().trajectories[0], id="c"),))
    neutral.write(other, tmp_path / "b.json")
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    assert [t.id for t in read_trace(paths).workload.trajectories] == ["a", "b", "c"]
    neutral.write(small(), Path(paths[1]))
    with pytest.raises(InputError, match="occurs in two of the files"):
        read_trace(paths)
