"""Whatever a scenario file or a setting holds: a scenario, or one short line that says what is wrong."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hwprofiles.errors import InputError
from simulator.case import prepare
from simulator.scenario import Scenario
from simulator.scenario_file import (
    all_keys,
    from_document,
    load_scenario,
    parse_setting,
    scenario_names,
    set_key,
    to_document,
)

BASE = {
    "weak": {"model": "meta-llama/Llama-3.2-3B", "hardware": "a100", "weight_dtype": "bf16"},
    "strong": {"model": "meta-llama/Llama-3.1-70B", "hardware": "a100", "n_devices": 4, "weight_dtype": "bf16"},
    "workload": {"trace": "retail", "n": 2},
}

numbers = st.one_of(
    st.integers(), st.floats(), st.sampled_from([0, 1, -1, 1e308, -1e308, 2**63, 10**400, float("nan"), float("inf")])
)
leaves = st.one_of(numbers, st.booleans(), st.text(max_size=12), st.none())
values = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=6,
)
bands = st.fixed_dictionaries(
    {"value": numbers, "low": numbers, "high": numbers},
    optional={"tier": st.sampled_from(["assumed", "guess"]), "source": st.text(max_size=5), "extra": leaves},
)
keys = st.one_of(st.sampled_from(all_keys()), st.text(max_size=20), st.sampled_from(["acceptance", "windw", "load"]))


def attempt(make):
    """A scenario or an InputError of one line under 500 characters."""
    try:
        found = make()
    except InputError as error:
        message = str(error)
        assert message
        assert "\n" not in message, message
        assert len(message) < 500, message
        return None
    assert isinstance(found, Scenario)
    return found


@settings(max_examples=300)
@given(st.lists(st.tuples(keys, st.one_of(values, bands)), min_size=1, max_size=3))
@example([("weak", 3)])
@example([("strategies", "strong_only")])
@example([("workload.verbosity", {"value": 10**400, "low": 1, "high": 2})])
@example([("run.seed", 10**400)])
@example([("weak.model", "x" * 4000)])
@example([("effects.map", {"a": "b" * 5000})])
def test_a_changed_document_is_a_scenario_or_one_line(changes):
    document = {k: dict(v) for k, v in BASE.items()}

    def make():
        for key, value in changes:
            if key.count(".") == 1 and isinstance(document.get(key.split(".")[0]), dict):
                document[key.split(".")[0]][key.split(".")[1]] = value
            else:
                document[key] = value
        return from_document(document, "fuzz")

    found = attempt(make)
    if found is not None:
        assert from_document(to_document(found), "again") == found


@settings(max_examples=200)
@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda t: t.encode("utf-8", "surrogatepass"))))
@example(b"")
@example(b"\xff\xfe")
@example(b"\xef\xbb\xbf[weak]")
@example(b"a = [" + b"[" * 3000)
@example(b"[weak]\n[weak]\n")
@example(b"title = 2024-01-01\n")
@example(b"weak = 1e999\n")
@example(b"\x00" * 20)
@example(b"title = " + b"9" * 5000)
@example(b"title = 2024-02-31\n")
def test_any_bytes_are_a_scenario_or_one_line(tmp_path, data):
    path = tmp_path / "s.toml"
    path.write_bytes(data)
    attempt(lambda: load_scenario(path))


@settings(max_examples=200)
@given(keys, st.one_of(st.text(max_size=40), numbers.map(repr), st.just("{value=1, low=0, high=2}")))
@example("acceptance", "nan")
@example("effects.map.get_*", "reed")
@example("effects.map.a.b.c", "read")
@example("weak.prices.input", "1")
@example("weak", "1")
@example("title.x", "1")
@example("", "1")
@example("link.rtt_s", "1_0")
@example("acceptance", "0.9\nwindow = 3")
@example("acceptance", "9" * 5000)
@example("workload.n", "9" * 400)
@example("protocol.acceptance_by_position", "[" * 3000)
def test_any_setting_is_a_scenario_or_one_line(key, text):
    attempt(lambda: load_scenario("llama-a100", [f"{key}={text}"]))


@pytest.mark.parametrize("setting", ["acceptance", "=1", "", " = 1"])
def test_a_setting_without_key_or_value(setting):
    with pytest.raises(InputError, match="KEY=VALUE"):
        parse_setting(setting)


def test_settings_with_effects_of_tools_keep_their_globs():
    found = load_scenario("llama-a100", ["effects.map.get_*=read", 'effects.map.a.b="write"'])
    assert found.effects.map == {"get_*": "read", "a.b": "write"}


def test_a_key_can_be_unset_again():
    document = to_document(load_scenario("retail-h200"))
    set_key(document, "verbosity", None)
    assert from_document(document, "x").workload.verbosity is None


def test_an_empty_setting_unsets_a_key_and_errors_say_so():
    with pytest.raises(InputError, match=r"--set verbosity= unsets it"):
        load_scenario("retail-h200", ["weak.thinking=false"])
    assert load_scenario("retail-h200", ["weak.thinking=false", "verbosity="]).workload.verbosity is None
    assert load_scenario("retail-h200", ["rtt_s="]).link is None


@pytest.mark.parametrize("name", scenario_names())
def test_round_trip_through_toml(name, tmp_path):
    scenario = load_scenario(name)
    path = tmp_path / "again.toml"
    path.write_text(scenario.to_toml(), encoding="utf-8")
    assert load_scenario(path) == scenario
    assert tomllib.loads(scenario.to_toml()) == to_document(scenario)


@pytest.mark.parametrize(
    ("settings_", "words"),
    [
        (["acceptance=0.5", "quality.weak_hazard=0.1"], "two sources"),
        (["concurrency=2", "arrival_rate_per_s=1"], "two sources"),
        (["workload.law=autonomous"], "exactly one of trace and law"),
        (["strong.api=anthropic/claude-sonnet-4-6"], "two sources"),
        (["steps=10"], "needs a law"),
        (["write_share=0.1"], "needs a law"),
        (["weak.prices={input=1}"], "no effect"),
        (["acceptance=1.2"], "0 to 1"),
        (["acceptance={value=0.9, low=0.95, high=1}"], "low <= value <= high"),
        (["verdict_tokens=0"], "1 to"),
        (["verdict_tokens=1e12"], "1 to 1e"),
        (["thinking_tokens=1e9"], "thinking_tokens"),
        (["verbosity=1e300"], "0.05 to 1000"),
        (["window=65"], "window"),
        (["window=2.5"], "window"),
        (["run.samples=5000"], "4096"),
        (["load.n_trajectories=10000000"], "100000"),
        (["arrival_rate_per_s=1e18"], "10000"),
        (["concurrency=10000000"], "4096"),
        (["protocol.acceptance_by_position=[]"], "acceptance_by_position"),
        (["protocol.acceptance_by_position=[1.0]"], "acceptance_by_position"),
        (["strategies=[]"], "at least one"),
        (['strategies=["strong_only", "strong_only"]'], "once"),
        (['strategies=["strong_only", "spec_agnt"]'], "strategies"),
        (["weak.modle=x"], "weak.model"),
        (["protocol.acceptanc=1"], "protocol.acceptance"),
        (["output_tokens=1e6"], "the model takes"),
        (["context_tokens=1e12"], "context_tokens"),
        (["workload.trace=nowhere"], "nowhere"),
        (["weak.model=Llama-3.2-3"], "Llama"),
        (["strong.n_devices=3"], "divisors of 64"),
        (["strong.n_devices=1"], "does not fit"),
    ],
)
def test_bad_scenarios_say_what_is_wrong(settings_, words):
    with pytest.raises(InputError) as caught:
        prepare(load_scenario("llama-a100", settings_))
    message = str(caught.value)
    assert words in message
    assert "\n" not in message
    assert len(message) < 500


@pytest.mark.parametrize(
    "sizes",
    [
        ["workload.n=100000"],
        ["workload.n=2", "steps=10000", "context_tokens=6e6", "window=64", "weak.kv_dtype=fp8"],
        ["workload.n=10000000"],
        ["steps=1e6"],
    ],
)
def test_work_without_end_is_refused(sizes):
    with pytest.raises(InputError):
        prepare(load_scenario("autonomous-h200", sizes))


def test_hazards_alone_imply_the_acceptance():
    """(1 - w)(1 - f) + w (1 - d): 0.7 * 0.96 + 0.3 * 0.45 = 0.807."""
    case = prepare(load_scenario("llama-a100", ["quality.weak_hazard=0.3", "workload.n=2"]))
    assert case.acceptance.value == pytest.approx(0.807)
    assert case.acceptance.low < 0.807 < case.acceptance.high
    assert "quality" in case.rung
    agreed = load_scenario("llama-a100", ["quality.weak_hazard=0.3", "acceptance=0.807", "workload.n=2"])
    assert prepare(agreed).acceptance.value == 0.807


def test_files_inside_a_scenario_are_taken_from_its_folder(tmp_path, monkeypatch):
    from simulator.traces.neutral import write
    from simulator.workloads import workload

    folder = tmp_path / "deep" / "er"
    folder.mkdir(parents=True)
    write(workload("retail"), folder / "mine.json")
    text = load_scenario("llama-a100", ["workload.n=2"]).to_toml().replace('trace = "retail"', 'trace = "mine.json"')
    (folder / "s.toml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    case = prepare(load_scenario("deep/er/s.toml"))
    assert len(case.tasks) == 2
    assert case.tasks == prepare(load_scenario("llama-a100", ["workload.n=2"])).tasks


def test_a_folder_and_a_missing_file_are_one_line(tmp_path):
    folder = tmp_path / "s.toml"
    folder.mkdir()
    for path in (folder, tmp_path / "none.toml", tmp_path, "retail-h20"):
        with pytest.raises(InputError) as caught:
            load_scenario(path)
        assert "\n" not in str(caught.value)
    assert "retail-h200" in str(caught.value)


def test_a_scenario_over_the_size_limit_is_refused_unread(tmp_path):
    path = tmp_path / "big.toml"
    path.write_text("#" + "x" * 1_000_001)
    with pytest.raises(InputError, match="1000000"):
        load_scenario(path)
