"""`specroof init`: a file that loads and plans, proposals that hold nothing open, names of tools that mean harm."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.trajectory import Effect, Step, ToolCall, Trajectory, Workload
from simulator.case import prepare
from simulator.effects import EffectMap
from simulator.init_scenario import draft_scenario
from simulator.init_text import scenario_text
from simulator.init_tools import mappable, tool_notes
from simulator.scenario_file import from_document, load_scenario
from simulator.traces.neutral import write
from simulator.workloads import workload

SHARED = Path(__file__).resolve().parents[3] / "shared" / "traces" / "formats" / "otlp_genai.json"
SETTING = re.compile(r"# [\w.-]+ = ")


def recorded(*tools, usage=True, missing=("cache", "outcome")):
    """A workload of one trajectory: one step per (name, effect), and a reply."""
    steps = []
    for i, (name, effect) in enumerate([*tools, (None, Effect.REPLY)]):
        calls = () if name is None else (ToolCall(name=name, effect=effect, latency_s=0.1),)
        tokens = {"prompt_tokens": 1000 + 200 * i, "output_tokens": 60, "observation_tokens": 140} if usage else {}
        steps.append(Step(index=i, effect=effect, tools=calls, tool_s=0.1 if calls else 0.0, **tokens))
    lacking = (*missing, *(() if usage else ("usage",)))
    trajectory = Trajectory(id="t", source_format="neutral", missing=lacking, steps=tuple(steps))
    return Workload(name="mine", trajectories=(trajectory,))


@pytest.fixture
def init(run_cli, tmp_path):
    """Writes a trace beside the scenario and runs `init`; returns the document and the scenario file."""

    def run(work, *args, name="trace.json"):
        trace = work if isinstance(work, str) else tmp_path / name
        if not isinstance(work, str):
            write(work, trace)
        output = tmp_path / "mine.toml"
        outcome = run_cli("init", "--trace", trace, "-o", output, "--json", *args)
        assert outcome.code == 0, outcome.err
        return json.loads(outcome.out), output

    return run


def live(output):
    return tomllib.loads(output.read_text(encoding="utf-8"))


UNKNOWN = recorded(("get_order", Effect.UNKNOWN), ("cancel_order", Effect.UNKNOWN), ("frobnicate", Effect.UNKNOWN))


def test_proposals_are_comments_so_the_tools_stay_held(init):
    document, output = init(UNKNOWN)
    assert live(output)["effects"]["map"] == {}
    text = output.read_text(encoding="utf-8")
    assert '# get_order = "read"  # 1 call' in text
    assert '# cancel_order = "write"' in text
    assert '# frobnicate = "unknown"' in text
    assert [(t["name"], t["effect"], t["proposed"], t["confirmed"]) for t in document["tools"]] == [
        ("cancel_order", "unknown", "write", False),
        ("frobnicate", "unknown", "unknown", False),
        ("get_order", "unknown", "read", False),
    ]
    case = prepare(load_scenario(output))
    assert [s.effect for s in case.tasks[0].steps] == ["unknown", "unknown", "unknown", "reply"]


def test_taking_the_comment_marks_away_confirms(init):
    _, output = init(UNKNOWN)
    text = output.read_text(encoding="utf-8")
    for name in ("get_order", "cancel_order"):
        text = text.replace(f"# {name} = ", f"{name} = ")
    output.write_text(text, encoding="utf-8")
    case = prepare(load_scenario(output))
    assert [s.effect for s in case.tasks[0].steps] == ["read", "write", "unknown", "reply"]


def test_every_commented_key_may_be_uncommented(init):
    _, output = init(UNKNOWN)
    lines = output.read_text(encoding="utf-8").splitlines()
    at = [i for i, line in enumerate(lines) if SETTING.match(line) and "[link]" not in lines[max(0, i - 2) : i][-1]]
    at = [i for i in at if not lines[i].startswith(("# rtt_s", "# bytes_per_s"))]
    assert len(at) > 25
    for i in at:
        changed = [*lines[:i], lines[i].removeprefix("# "), *lines[i + 1 :]]
        from_document(tomllib.loads("\n".join(changed)), lines[i])
    link = (
        "\n".join(lines)
        .replace("# [link]", "[link]")
        .replace("# rtt_s", "rtt_s")
        .replace("# bytes_per_s", "bytes_per_s")
    )
    assert from_document(tomllib.loads(link), "link").link.rtt_s.value == 0.05


def test_the_file_loads_and_plans_unchanged(init, run_cli):
    document, output = init(UNKNOWN)
    planned = run_cli("plan", output, "--json")
    assert planned.code == 0, planned.err
    assert json.loads(planned.out)["recommended"]
    scenario = json.loads(planned.out)["scenario"]
    assert {k: v for k, v in document["scenario"].items() if k != "workload"} == {
        k: v for k, v in scenario.items() if k != "workload"
    }


def test_the_trace_is_named_from_the_folder_of_the_scenario(init, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    _, output = init(UNKNOWN)
    assert live(output)["workload"]["trace"] == "trace.json"
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert prepare(load_scenario(output)).tasks


def test_a_trace_in_another_folder(run_cli, tmp_path):
    for folder in ("traces", "plans"):
        (tmp_path / folder).mkdir()
    write(UNKNOWN, tmp_path / "traces" / "t.json")
    output = tmp_path / "plans" / "s.toml"
    assert run_cli("init", "--trace", tmp_path / "traces" / "t.json", "-o", output).code == 0
    assert live(output)["workload"]["trace"] == "../traces/t.json"
    assert prepare(load_scenario(output)).tasks


def test_a_file_named_like_a_bundled_workload_stays_the_file(run_cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(UNKNOWN, tmp_path / "retail.json")
    (tmp_path / "retail.json").rename(tmp_path / "airline")
    assert run_cli("init", "--trace", "./airline", "-o", "s.toml").code == 0
    assert prepare(load_scenario("s.toml")).workload.trajectories[0].id == "t"


def test_what_is_known_is_written_live(init):
    known = recorded(("lookup_user", Effect.READ), ("pay", Effect.WRITE), ("frobnicate", Effect.UNKNOWN))
    document, output = init(known)
    assert live(output)["effects"]["map"] == {"lookup_user": "read", "pay": "write"}
    assert {t["name"]: t["confirmed"] for t in document["tools"]} == {
        "lookup_user": True,
        "pay": True,
        "frobnicate": False,
    }


def test_a_map_of_ones_own_is_kept_word_for_word(init, tmp_path):
    effects = tmp_path / "effects.toml"
    effects.write_text('"get_*" = "read"\n"cancel_order" = "write"\n"Bash(command=ls*)" = "read"\n', encoding="utf-8")
    document, output = init(UNKNOWN, "--effects", effects)
    assert live(output)["effects"]["map"] == {"get_*": "read", "cancel_order": "write", "Bash(command=ls*)": "read"}
    assert [t["name"] for t in document["tools"] if not t["confirmed"]] == ["frobnicate"]
    case = prepare(load_scenario(output))
    assert [s.effect for s in case.tasks[0].steps] == ["read", "write", "unknown", "reply"]


def test_mcp_tools(init, tmp_path):
    tools = [{"name": "get_order", "annotations": {"readOnlyHint": True}}, {"name": "cancel_order"}]
    listed = tmp_path / "tools.json"
    listed.write_text(json.dumps({"tools": tools}), encoding="utf-8")
    document, output = init(UNKNOWN, "--mcp-tools", listed)
    assert live(output)["effects"] == {"mcp_tools": "tools.json", "map": {"get_order": "read"}}
    notes = {t["name"]: t for t in document["tools"]}
    assert notes["get_order"]["why"] == "MCP tools/list: readOnlyHint is true (the server's own hint)"
    assert (notes["cancel_order"]["effect"], notes["cancel_order"]["proposed"]) == ("unknown", "write")
    case = prepare(load_scenario(output))
    assert [s.effect for s in case.tasks[0].steps] == ["read", "unknown", "unknown", "reply"]


def test_a_bundled_recording(init):
    document, output = init("retail")
    assert live(output)["workload"]["trace"] == "retail"
    assert all(t["confirmed"] for t in document["tools"])
    trajectories = workload("retail").trajectories
    assert sum(t["calls"] for t in document["tools"]) == sum(len(s.tools) for t in trajectories for s in t.steps)
    before = [s.effect for t in trajectories for s in t.steps]
    after = [s.effect for t in prepare(load_scenario(output)).workload.trajectories for s in t.steps]
    assert before == after


def test_models_that_nobody_names_are_those_of_retail_h200(init):
    document, output = init(UNKNOWN)
    standard = load_scenario("retail-h200")
    made = load_scenario(output)
    assert (made.weak, made.strong) == (standard.weak, standard.strong)
    assert document["assumed"] == ["weak", "strong"]
    assert output.read_text(encoding="utf-8").count("Nobody named one") == 2


def test_thinking_that_the_trace_does_not_record_is_assumed_as_in_retail_h200(init):
    document, output = init(UNKNOWN)
    standard, made = load_scenario("retail-h200").workload, load_scenario(output).workload
    for key in ("thinking_tokens", "verbosity"):
        ours, theirs = getattr(made, key), getattr(standard, key)
        assert (ours.value, ours.low, ours.high, ours.tier) == (theirs.value, theirs.low, theirs.high, "assumed")
    assert document["assumed_keys"] == ["workload.thinking_tokens", "workload.verbosity"]
    assert prepare(load_scenario(output))


def test_models_that_do_not_think_need_no_thinking(init):
    document, output = init(UNKNOWN, "--no-thinking")
    made = live(output)
    assert (made["weak"]["thinking"], made["strong"]["thinking"]) == (False, False)
    assert set(made["workload"]) == {"trace"}
    assert document["assumed_keys"] == []
    assert prepare(load_scenario(output))


def test_thinking_that_the_trace_records_is_used(init):
    (t,) = UNKNOWN.trajectories
    steps = tuple(replace(s, visible_tokens=40) for s in t.steps)
    _, output = init(replace(UNKNOWN, trajectories=(replace(t, steps=steps),)))
    assert set(live(output)["workload"]) == {"trace"}


def test_the_type_of_the_weights_is_said_with_its_reason(init):
    document, _ = init(UNKNOWN, "--weak", "Qwen/Qwen3-32B-FP8@h200")
    assert "weights fp8 (as its checkpoint states)" in document["weight_dtypes"]["weak"]
    assert "weights fp8 (as in retail-h200)" in document["weight_dtypes"]["strong"]
    document, _ = init(UNKNOWN, "--force", "--strong", "Qwen/Qwen3.5-397B-A17B@h200")
    assert "weights bf16 (its checkpoint states no quantisation" in document["weight_dtypes"]["strong"]


def test_the_fewest_devices_that_hold_the_model(init):
    _, output = init(UNKNOWN, "--weak", "Qwen/Qwen3.5-4B@h200", "--strong", "Qwen/Qwen3.5-397B-A17B@h200")
    made = live(output)
    # 397 G parameters in bf16 are 794 GB; 4 x 141 GB are too few and 8 are enough.
    assert (made["weak"]["n_devices"], made["strong"]["n_devices"]) == (1, 8)
    assert made["strong"]["weight_dtype"] == "bf16"
    assert "fewest" in output.read_text(encoding="utf-8")


def test_an_api_reviews(init):
    _, output = init(UNKNOWN, "--strong", "api:anthropic/claude-sonnet-4-6")
    assert live(output)["strong"] == {"api": "anthropic/claude-sonnet-4-6", "thinking": True}
    assert prepare(load_scenario(output))


def test_model_and_device_files_are_named_from_the_scenario_too(init, tmp_path):
    config = Path(__file__).resolve().parents[2] / "costmodel" / "data" / "models" / "Qwen--Qwen3.5-4B.json"
    (tmp_path / "my.json").write_bytes(config.read_bytes())
    _, output = init(UNKNOWN, "--weak", f"{tmp_path / 'my.json'}@h200")
    assert live(output)["weak"]["model"] == "my.json"
    assert prepare(load_scenario(output))


def test_what_is_missing_is_said_in_words(init):
    document, output = init(UNKNOWN)
    assert document["missing"] == ["cache", "outcome"]
    assert set(document["missing_means"]) == {"cache", "outcome"}
    assert output.read_text(encoding="utf-8").count("# Missing in the trace: ") == 2


def test_a_trace_without_token_counts_is_written_but_said_not_to_plan(run_cli, tmp_path):
    write(recorded(("get_order", Effect.UNKNOWN), usage=False), tmp_path / "t.json")
    output = tmp_path / "s.toml"
    outcome = run_cli("init", "--trace", tmp_path / "t.json", "-o", output, "--json")
    assert outcome.code == 0
    assert "usage" in json.loads(outcome.out)["missing"]
    assert json.loads(outcome.out)["steps_without_tokens"] == 2
    assert "2 of 2 steps have no token counts" in outcome.err
    assert run_cli("scenario", "check", output).code == 2


PRINTABLE = st.characters(categories=["L", "N", "P", "S"])
NASTY = [
    "get order",
    'quo"te',
    "new\nline",
    "tab\t",
    "dot.ted",
    "back\\slash",
    "\x00nul",
    "\x7f",
    "ünï",
    "# hash",
    "[effects]",
    "a = 1",
    "get_(x",
    "Bash(command=ls*)",
    "get_*",
    "mcp__shop__get_order",
]


def with_tools(draft, names, effect):
    """The draft as if its trace had called tools of these names."""
    return replace(draft, tools=tool_notes(recorded(*((name, effect) for name in names)), EffectMap()))


@pytest.fixture(scope="module")
def draft(tmp_path_factory):
    folder = tmp_path_factory.mktemp("draft")
    write(UNKNOWN, folder / "t.json")
    return draft_scenario(str(folder / "t.json"), folder / "s.toml")


def test_tool_names_cannot_break_out_of_the_file(draft):
    made = tomllib.loads(scenario_text(with_tools(draft, NASTY, Effect.UNKNOWN)))
    assert made["effects"]["map"] == {}
    assert made == tomllib.loads(scenario_text(replace(draft, tools=())))


def test_known_tools_with_such_names_keep_their_effect(draft):
    made = tomllib.loads(scenario_text(with_tools(draft, NASTY, Effect.READ)))
    assert set(made["effects"]["map"]) == {name for name in NASTY if mappable(name)}
    assert set(NASTY) - set(made["effects"]["map"]) == {"get_(x", "Bash(command=ls*)"}


@given(names=st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=4, unique=True))
def test_any_tool_name(names, draft):
    plain = tomllib.loads(scenario_text(replace(draft, tools=())))
    for effect in (Effect.UNKNOWN, Effect.READ):
        made = tomllib.loads(scenario_text(with_tools(draft, names, effect)))
        known = {n: "read" for n in names if mappable(n)} if effect is Effect.READ else {}
        assert made.pop("effects") == {"map": known}
        assert made == {k: v for k, v in plain.items() if k != "effects"}


@settings(max_examples=15)
@given(names=st.lists(st.text(PRINTABLE, min_size=1, max_size=8), min_size=1, max_size=3, unique=True))
def test_any_name_that_a_trace_may_hold(names, init):
    names = [n for n in names if n.strip()] or ["x"]
    for effect in (Effect.UNKNOWN, Effect.READ):
        _, output = init(recorded(*((name, effect) for name in names)), "--force")
        case = prepare(load_scenario(output))
        assert {s.effect for s in case.tasks[0].steps[:-1]} == {effect}


def test_it_does_not_overwrite_unless_forced(init, run_cli, tmp_path):
    _, output = init(UNKNOWN)
    output.write_text("mine", encoding="utf-8")
    outcome = run_cli("init", "--trace", tmp_path / "trace.json", "-o", output)
    assert (outcome.code, outcome.out) == (2, "")
    assert "--force" in outcome.err
    assert output.read_text(encoding="utf-8") == "mine"
    assert run_cli("init", "--trace", tmp_path / "trace.json", "-o", output, "--force").code == 0
    assert prepare(load_scenario(output))


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--weak", "Qwen/Qwen3.5-4B"], ["weak", "MODEL@HARDWARE"]),
        (["--weak", "Qwen/Qwen3.5-4B@"], ["weak", "MODEL@HARDWARE"]),
        (["--weak", "Qwen/Qwen3.5-4@h200"], ["weak", "Qwen/Qwen3.5-4B"]),
        (["--strong", "Qwen/Qwen3.5-4B@h20"], ["strong", "h200"]),
        (["--strong", "api:anthropic/claude-sonnet-4-7"], ["anthropic/claude-sonnet-4-6"]),
        (["--strong", "Qwen/Qwen3.5-397B-A17B@jetson-agx-orin"], ["strong", "does not fit"]),
        (["--format", "tau"], ["tau2"]),
        (["--effects", "gone.toml"], ["gone.toml"]),
        (["--mcp-tools", "gone.json"], ["gone.json"]),
        (["-o", "no/such/folder/s.toml"], ["no/such/folder/s.toml"]),
    ],
    ids=lambda value: " ".join(value) if value[0].startswith("-") else None,
)
def test_one_clear_line_and_no_file(args, words, run_cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(UNKNOWN, tmp_path / "t.json")
    outcome = run_cli("init", "--trace", "t.json", *([] if "-o" in args else ["-o", "s.toml"]), *args)
    assert (outcome.code, outcome.out) == (2, "")
    (line,) = outcome.err.splitlines()
    assert all(word in line for word in words), line
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.json"]


def test_a_law_is_no_trace(run_cli, tmp_path):
    outcome = run_cli("init", "--trace", "autonomous", "-o", tmp_path / "s.toml")
    assert outcome.code == 2
    assert "workload.law" in outcome.err


def test_the_human_answer_names_tools_and_the_next_step(run_cli, tmp_path):
    write(UNKNOWN, tmp_path / "t.json")
    outcome = run_cli("init", "--trace", tmp_path / "t.json", "-o", tmp_path / "s.toml")
    assert "read?" in outcome.out
    assert "3 tools are held until you confirm" in outcome.out
    assert "specroof plan" in outcome.out


@pytest.mark.skipif(not SHARED.exists(), reason="recorded traces are not beside this repository")
def test_a_recorded_opentelemetry_trace(run_cli, tmp_path):
    output = tmp_path / "s.toml"
    outcome = run_cli("init", "--trace", SHARED, "-o", output, "--json")
    document = json.loads(outcome.out)
    assert (document["format"], len(document["tools"])) == ("otlp", 13)
    assert not any(t["confirmed"] for t in document["tools"])
    assert run_cli("plan", output, "--json").code == 0
