"""The facade: cheap to import, complete, and the README's example in full."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

import specroof as sr
from costmodel.trajectory import Effect
from hwprofiles.errors import InputError
from simulator.case import prepare
from simulator.memory import PREFIX
from simulator.scenario_file import load_scenario
from simulator.traces.neutral import write

HEAVY = {"numpy", "pandas", "scipy", "plotly", "simpy", "pyarrow", "jinja2", "rich", "typer", "pydantic"}
OURS = {"hwprofiles", "costmodel", "simulator", "dashboards", "validate"}


def fresh(root, code, cwd=None, path=None):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=cwd or root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(str(p) for p in [*(path or []), root])},
        check=False,
        timeout=120,
    )


def test_importing_loads_nothing_heavy_and_nothing_of_ours(root):
    done = fresh(root, "import sys; import specroof as sr; dir(sr); sr.__all__; print(*sys.modules)")
    loaded = set(done.stdout.split())
    assert "specroof" in loaded
    assert loaded.isdisjoint(HEAVY | OURS)


def test_every_name_is_there_and_listed():
    for name in sr.__all__:
        assert getattr(sr, name) is not None
    assert set(sr.__all__) <= set(dir(sr))
    assert not {"breakeven", "calibrate", "compare"} & set(dir(sr))


def test_star_import_gives_the_names(root):
    done = fresh(root, "from specroof import *; print(plan.__name__, Scenario.__name__, figures.__name__)")
    assert done.stdout.split() == ["plan", "build_scenario", "dashboards.figures"], done.stderr


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="breakevn"):
        _ = sr.breakevn


def test_a_file_that_hides_a_package_is_named_at_first_use(root, tmp_path):
    (tmp_path / "simulator.py").write_text("raise SystemExit('the wrong module was imported')\n")
    done = fresh(root, "import specroof as sr; print('imported'); sr.plan", cwd=tmp_path, path=[tmp_path])
    assert done.stdout.split() == ["imported"]
    assert "rename that file" in done.stderr.splitlines()[-1]


# -- the example ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair():
    return {
        "weak": sr.deploy("Qwen/Qwen3.5-4B", "h200"),
        "strong": sr.deploy("Qwen/Qwen3.5-397B-A17B", "h200", n_devices=8, weight_dtype="fp8"),
    }


@pytest.fixture
def trace(tmp_path):
    """A few recorded trajectories in a file."""
    few = sr.workload("retail")
    path = tmp_path / "my_agent.json"
    write(replace(few, name="my_agent", trajectories=few.trajectories[:4]), path)
    return path


def test_the_example(pair, trace):
    work = sr.read_trace(trace, effects={"get_*": "read", "update_order": "write"})
    case = sr.Scenario(**pair, workload=work, acceptance=sr.prior("default"), window=4)
    assert case.protocol.window == 4
    answer = sr.plan(case)
    assert answer.verdict("time").startswith("time: ")
    run = sr.simulate(case.with_(concurrency=2), strategy="spec_agent", seed=0)
    assert run.meta["scenario"]["load"]["concurrency"] == 2


def test_trajectories_in_memory_plan_like_the_file(pair, trace):
    held = sr.Scenario(**pair, workload=sr.read_trace(trace).workload)
    named = sr.Scenario(**pair, workload=trace)
    assert held.workload.trace.startswith(f"{PREFIX}my_agent-")
    assert prepare(held).tasks == prepare(named).tasks
    assert sr.Scenario(**pair, workload=sr.read_trace(trace)) == held, "the same content has the same name"


def test_effects_apply_to_trajectories_in_memory(pair, trace):
    case = sr.Scenario(**pair, workload=sr.read_trace(trace), **{"effects.map.get_order_details": "write"})
    calls = [c for t in prepare(case).workload.trajectories for s in t.steps for c in s.tools]
    assert {c.effect for c in calls if c.name == "get_order_details"} == {Effect.WRITE}


def test_a_bundled_workload_keeps_its_name(pair):
    assert sr.Scenario(**pair, workload=sr.workload("retail")).workload.trace == "retail-gpt-4.1-mini"
    assert sr.Scenario(**pair, workload="autonomous").workload.law == "autonomous"


def test_a_scenario_of_objects_is_the_scenario_of_the_file(pair):
    standard = load_scenario("retail-h200")
    keys = {f"workload.{k}": getattr(standard.workload, k) for k in ("thinking_tokens", "verbosity")}
    thinks = {f"{role}.thinking": getattr(standard, role).thinking for role in ("weak", "strong")}
    built = sr.Scenario(**pair, workload="retail", acceptance=sr.prior(), title=standard.title, **keys, **thinks)
    assert built == standard


def test_acceptance_in_every_form(pair):
    def protocol(acceptance):
        return sr.Scenario(**pair, workload="retail", acceptance=acceptance).protocol

    assert protocol(0.8).acceptance.value == 0.8
    assert protocol((0.8, 0.9)).acceptance_by_position == (0.8, 0.9)
    assert protocol(sr.prior()).acceptance is None
    measured = sr.acceptance("retail-gpt-4.1-mini", sr.workload("retail-gemini-3-flash"))
    assert protocol(measured).acceptance.value == pytest.approx(measured.mean.value, rel=1e-3)
    assert protocol(measured).acceptance.tier == "measured"


def test_a_deployment_keeps_what_makes_it_its_own(pair):
    from costmodel.protocol import Role

    weak = sr.deploy("Qwen/Qwen3.5-4B", "h100", kv_dtype="fp8", max_seqs=7, chunk_tokens=2048, weight_dtype="fp8")
    case = sr.Scenario(weak=weak, strong=pair["strong"], workload="retail")
    assert prepare(case).sites[Role.WEAK].server == weak


def test_sides_as_text_and_as_keys(pair):
    case = sr.Scenario(weak="Qwen/Qwen3.5-4B@h200", strong="api:anthropic/claude-sonnet-4-6", workload="retail")
    assert (case.weak.n_devices, case.strong.api) == (1, "anthropic/claude-sonnet-4-6")
    keys = {"model": "Qwen/Qwen3.5-4B", "hardware": "h200", "replicas": 2}
    assert sr.Scenario(weak=keys, strong=pair["strong"], workload="retail").weak.replicas == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"windw": 4}, "window"),
        ({"window": 0}, "window"),
        ({"acceptance": 1.5}, "acceptance"),
        ({"weak": "Qwen/Qwen3.5-4B"}, "MODEL@HARDWARE"),
        ({"workload": "retial"}, "retail"),
    ],
    ids=str,
)
def test_refusals(change, words, pair):
    with pytest.raises(InputError, match=words):
        prepare(sr.Scenario(**{**pair, "workload": "retail", **change}))


def test_a_device_of_ones_own_must_be_named_by_its_file(pair):
    mine = replace(sr.hardware("h200"), title="mine", aliases=())
    with pytest.raises(InputError, match=r"its own hardware.*device\.toml"):
        sr.Scenario(weak=sr.deploy("Qwen/Qwen3.5-4B", mine), strong=pair["strong"], workload="retail")
    unnamed = sr.deploy("Qwen/Qwen3.5-4B", replace(mine, name="my-board"))
    with pytest.raises(InputError, match=r"cannot be named.*device\.toml"):
        sr.Scenario(weak=unnamed, strong=pair["strong"], workload="retail")


def test_an_unknown_prior_gets_the_nearest():
    with pytest.raises(InputError, match="default"):
        sr.prior("defalt")


def test_step_cost(pair):
    found = sr.step_cost(pair["strong"], prefill=[(512, 0)], decode=[(2, 4000)])
    assert found.low_s < found.time_s < found.high_s
    assert found.flops > 0
    assert found.bytes["total"] > found.bytes["weights"]
    assert list(found.table().columns[:4]) == ["count", "time_s", "bound", "flops"]
