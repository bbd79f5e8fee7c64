"""Bad input of every kind: exit 2, nothing on stdout, one line that says what is wrong. Fuzzed at the end."""

from __future__ import annotations

import json

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

STEP = ["step", "--model", "Qwen/Qwen3.5-4B", "--hardware", "h200", "--weight-dtype", "bf16"]

NAMES = [
    (["hardware", "show", "h20"], "h200"),
    (["models", "show", "Qwen/Qwen3.5-4"], "Qwen/Qwen3.5-4B"),
    (["plan", "retial-h200"], "retail-h200"),
    (["plan", "retail-h200", "-o", "x.pdf"], ".html"),
    (["simulate", "retial-h200"], "retail-h200"),
    (["simulate", "retail-h200", "--strategy", "spec_agnt"], "spec_agent"),
    (["plan", "retail-h200", "--set", "windw=3"], "window"),
    (["plan", "retail-h200", "--set", "weak.hardwar=h100"], "hardware"),
    (["plan", "retail-h200", "--set", "weak.hardware=h20"], "h200"),
    ([*STEP, "--decode", "1@100", "--kv-dtype", "fp7"], "fp8"),
]

VALUES = [
    (["plan", "retail-h200", "--set", "window"], "window"),
    (["plan", "retail-h200", "--set", "window=0"], "window"),
    (["plan", "retail-h200", "--set", "window=-1"], "window"),
    (["plan", "retail-h200", "--set", "acceptance=1.5"], "acceptance"),
    (["plan", "retail-h200", "--set", "acceptance=nan"], "acceptance"),
    (["plan", "retail-h200", "--set", "tool_latency_s=-1"], "tool_latency_s"),
    (["plan", "retail-h200", "--set", "tool_latency_s=inf"], "tool_latency_s"),
    (["plan", "retail-h200", "--set", "strong.n_devices=1"], "fit"),
    (["plan", "retail-h200", "--set", "steps=9"], "law"),
    (["plan", "retail-h200", "--set", "strategies=spec_agent"], "must be a list"),
    (["plan", "retail-h200", "--set", "weak.decode=3"], "must be a table"),
    (["plan", "retail-h200", "--set", "tools.by_effect.wrte={latency_s=3}"], "tools.by_effect.wrte: must be"),
    (["plan", "retail-h200", "--set", "protocol.instruction_tokens=300000"], "the model takes 262144"),
    (["plan", "retail-h200", "-o", "no-such-folder/x.html"], "cannot be written"),
    (["simulate", "speed", "--timeline", "no-such-folder/x.json"], "no-such-folder"),
    (["simulate", "speed", "--strategy", "token_speculation"], "[strong.decode]"),
    (["simulate", "speed", "--set", "rtt_s=0.1", "--set", "link_bytes_per_s=1e-300"], "greater than or equal to 1"),
    (["simulate", "edge-cloud", "--set", "strong.limits={requests_per_min=1e-300}"], "requests_per_min"),
    (["simulate", "edge-cloud", "--set", "strong.latency={request_s=1e300,output_token_s=0}"], "0 to 3600"),
    (["simulate", "retail-h200", "--set", "users.law=constant", "--set", "users.gap_s=1e18"], "users.gap_s"),
    (["size", "speed", "--slo", "p95 trajectory_s <= 60", "--rate", "1/s", "--set", "concurrency=3"], "no effect"),
    (["size", "speed", "--slo", "p95 trajectory_s <= 60", "--rate", "1/s", "--vary", "weak.replicas=2,3"], "no effect"),
    ([*STEP], "--"),
    ([*STEP, "--decode", "abc"], "abc"),
    ([*STEP, "--decode", "0@100"], "0@100"),
    ([*STEP, "--prefill", "-5@100"], "-5@100"),
    ([*STEP, "--decode", "1@100", "--n-devices", "0"], "0"),
]


def as_typed(value):
    return " ".join(value) if isinstance(value, list) else ""


def fails_in_one_line(outcome, expected=""):
    assert outcome.code == 2, (outcome.out, outcome.err)
    assert outcome.out == ""
    (line,) = [line for line in outcome.err.splitlines() if not line.startswith("specroof: warning: ")]
    assert line.startswith("specroof: error: ")
    assert expected in line


@pytest.mark.parametrize(("args", "nearest"), NAMES, ids=as_typed)
def test_a_wrong_name_gets_the_nearest_right_one(args, nearest, run_cli):
    fails_in_one_line(run_cli(*args), nearest)


@pytest.mark.parametrize(("args", "word"), VALUES, ids=as_typed)
def test_a_wrong_value_is_named(args, word, run_cli):
    fails_in_one_line(run_cli(*args), word)


READERS = {
    "plan": ["plan"],
    "simulate": ["simulate"],
    "scenario check": ["scenario", "check"],
    "hardware check": ["hardware", "check"],
    "models show": ["models", "show"],
    "trace stats": ["trace", "stats"],
    "init": ["init", "--trace"],
    "judgements": ["acceptance", "--judgements"],
}
SUFFIX = {"models show": ".json", "trace stats": ".json", "init": ".json", "judgements": ".csv"}
BROKEN = {
    "absent": None,
    "empty": b"",
    "blank": b" \n\n",
    "not UTF-8": b"\xff\xfe\x00name = 1",
    "not text": bytes(range(256)),
    "cut": b'{"simulations": [{"task_id": "0", ',
    "another kind": b"[1, 2, 3]",
    "deep": b"[" * 20_000,
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("reader", READERS)
def test_a_broken_file_is_one_line_with_its_name(reader, content, run_cli, tmp_path):
    file = tmp_path / f"broken{SUFFIX.get(reader, '.toml')}"
    if content is not None:
        file.write_bytes(content)
    extra = ["-o", tmp_path / "out.toml"] if reader == "init" else []
    fails_in_one_line(run_cli(*READERS[reader], file, *extra), "broken")


@pytest.mark.parametrize("reader", READERS)
def test_a_folder_in_place_of_a_file(reader, run_cli, tmp_path):
    folder = tmp_path / f"broken{SUFFIX.get(reader, '.toml')}"
    folder.mkdir()
    if reader == "trace stats":
        pytest.skip("a folder of session files is a trace")
    extra = ["-o", tmp_path / "out.toml"] if reader == "init" else []
    fails_in_one_line(run_cli(*READERS[reader], folder, *extra), "broken")


KEYS = st.sampled_from(
    [
        "weak",
        "strong",
        "workload",
        "protocol",
        "load",
        "model",
        "hardware",
        "n_devices",
        "name",
        "trace",
        "window",
        "run",
    ]
)
LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JSON = st.recursive(
    LEAF,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
TOML_LEAF = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=8)
TOML = st.dictionaries(
    KEYS, TOML_LEAF | st.lists(TOML_LEAF, max_size=3) | st.dictionaries(KEYS, TOML_LEAF, max_size=4), max_size=4
)


@pytest.mark.parametrize("reader", ["plan", "simulate", "scenario check", "hardware check"])
@settings(max_examples=25)
@given(document=TOML)
def test_any_toml_is_read_or_refused(reader, document, run_cli, tmp_path):
    file = tmp_path / "fuzz.toml"
    file.write_text(tomli_w.dumps(document), encoding="utf-8")
    fails_in_one_line(run_cli(*READERS[reader], file))


@pytest.mark.parametrize("reader", ["models show", "trace stats"])
@settings(max_examples=40)
@given(document=JSON)
def test_any_json_is_read_or_refused(reader, document, run_cli, tmp_path):
    file = tmp_path / "fuzz.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    fails_in_one_line(run_cli(*READERS[reader], file))


@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=15)
@given(content=st.binary(max_size=64))
def test_any_bytes_are_refused(reader, content, run_cli, tmp_path):
    file = tmp_path / f"fuzz{SUFFIX.get(reader, '.toml')}"
    file.write_bytes(content)
    extra = ["-o", tmp_path / "out.toml"] if reader == "init" else []
    fails_in_one_line(run_cli(*READERS[reader], file, *extra))
