"""Twenty desk tasks on real vLLM with injected faults: the hold is never broken, nothing is lost or run twice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from simulator.case import prepare
from simulator.scenario_file import load_scenario
from validate.journal import Journal

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]

OPTIONS: dict[str, Any] = {
    "temperature": 1.0,
    "longest_text": 24,
    "max_model_len": 16_384,
    "kv_cache_memory_bytes": 512 << 20,
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    pytest.importorskip("vllm", reason="vLLM is not installed here; `make validate` makes an environment with it")
    from validate.small_models import make_model

    folder = tmp_path_factory.mktemp("desk-models")
    return make_model(folder / "tiny", "tiny", seed=1), make_model(folder / "small", "small", seed=2)


def test_twenty_faulty_runs_never_break_the_hold(models: tuple[Path, Path], tmp_path: Path) -> None:
    from costmodel.protocol import Role
    from validate.order_desk.desk import read_calls
    from validate.session import RealClock, Session, changed_twice, desk_jobs, desk_tools
    from validate.vllm_offline import VllmOffline

    case = prepare(load_scenario("retail-h200", ["window=3"]))
    clock = RealClock()
    weak, strong = (VllmOffline(m, clock, seed=i, **OPTIONS) for i, m in enumerate(models))
    session = Session(case, "spec_agent", {Role.WEAK: weak, Role.STRONG: strong}, clock, tmp_path / "j.db", faults=5)
    jobs = desk_jobs(20)

    async def play() -> tuple[list[str], list[str], int, int]:
        status, faults, twice, calls = [], [], 0, 0
        for job in jobs:
            async with desk_tools(tmp_path / f"{job.name}.desk.db", own_process=False) as (tools, database):
                done = await session.play(job, tools, None)
                status.append(done.status)
                faults += done.faults
                twice += changed_twice(database)
                calls += len(read_calls(database))
        return status, faults, twice, calls

    status, faults, twice, calls = asyncio.run(play())
    with Journal(tmp_path / "j.db", session.meta) as journal:
        proof = journal.proof()
        asked = list(journal.events("asked"))
    assert len(status) == 20
    assert set(status) <= {"finished", "step_limit", "unresolved"}
    assert faults, "no run was cut, so nothing was tried"
    assert calls > 0
    assert proof.clean
    assert twice == 0
    assert proof.held > 0
    reviews = [a for a in asked if a["ask"] == "verify"]
    assert reviews
    assert all(a["output_tokens"] <= 2 for a in reviews)
    assert any((a["cached_tokens"] or 0) > 0 for a in reviews)


def test_the_command_runs_on_vllm_in_this_process(models: tuple[Path, Path], run_cli: Any, tmp_path: Path) -> None:
    import json

    weak, strong = (f"vllm:{m}" for m in models)
    words = ("--runs", "2", "--strategy", "spec_agent", "--set", "window=2", "-o", tmp_path / "out", "--json")
    outcome = run_cli("validate", "retail-h200", "--weak", weak, "--strong", strong, *words)
    assert outcome.code == 0, outcome.err
    document = json.loads(outcome.out)
    assert document["held"]["executed_before_verdict"] == 0
    assert document["held"]["run_twice"] == 0
