"""Many runs with injected faults on the fake engines and the order desk: the hold is never broken, nothing is lost.

The driver's journal must say so alone, and the desk's own journal must agree.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from costmodel.protocol import Role
from simulator.case import Case, prepare
from simulator.scenario_file import load_scenario
from validate.chat import ToolUse
from validate.engine import Ask, EngineError
from validate.fake import VirtualClock
from validate.faults import FaultyEngine, FaultyTools
from validate.journal import Journal
from validate.order_desk.desk import read_calls
from validate.order_desk.tasks import check
from validate.session import Session, desk_jobs, desk_tools, fake_engines
from validate.tools import ToolServerGone, ToolTimeout

STRATEGIES = ("spec_agent", "step_verification", "strong_only", "weak_only")


def noisy_case() -> Case:
    """Models that err often enough that every branch of the protocol is taken."""
    settings = ["quality.weak_hazard=0.25", "quality.strong_hazard=0.05", "quality.detection=0.7"]
    return prepare(load_scenario("llama-a100", settings))


def play(case: Case, name: str, n: int, seed: int, path: Path) -> Counter[str]:
    """Play n jobs under a strategy with faults; returns what happened, asserting what must."""
    clock = VirtualClock()
    jobs = desk_jobs(n)
    seen: Counter[str] = Counter()
    engines = fake_engines(case, jobs, clock)
    for engine in engines.values():
        engine.restart = lambda forget=engine._computed.clear: (forget(), seen.update(["engine restart"]))
    session = Session(case, name, engines, clock, path, faults=seed)
    desks: dict[str, Any] = {}

    async def go() -> None:
        for job in jobs:
            async with desk_tools(None, own_process=False) as (box, db):
                done = await session.play(job, box, lambda task, db=db: check(db, task))
                desks[job.name] = read_calls(db)
                seen.update(done.faults)
                seen[done.status] += 1
                seen["resumed"] += done.resumed
                seen["changed"] += sum(c.changed_state for c in desks[job.name])
                seen["replays"] += sum(c.replay for c in desks[job.name])

    asyncio.run(go())
    with Journal(path) as journal:
        events = list(journal.events())
        proof = journal.proof()
    assert proof.clean, proof
    assert proof.held > 0
    seen["held"] += proof.held
    seen["unresolved held"] += proof.unresolved
    seen["garbled"] += sum(e["kind"] == "verdict" and e["garbled"] for e in events)
    seen["cut"] += sum(e["kind"] == "asked" and e["ask"] == "verify" and e["finish"] == "length" for e in events)
    seen["rejected"] += sum(e["kind"] == "verdict" and e["accepted"] < e["reviewed"] for e in events)
    seen["tool error"] += sum(e["kind"] == "effect" and "out of order" in e["text"] for e in events)
    seen["sent again"] += sum(e["kind"] == "attempt" and not e["slot"].endswith("#0") for e in events)
    agrees_with_the_desk(events, desks)
    return seen


def agrees_with_the_desk(events: list[dict[str, Any]], desks: dict[str, Any]) -> None:
    """The desk's journal beside the driver's: no change without an authorised action, none under one key twice."""
    held = {(e["task"], e["slot"]) for e in events if e["kind"] == "intent" and e["effect"] not in ("read", "pure")}
    allowed = {(e["task"], e["slot"]) for e in events if e["kind"] == "authorised" and e["why"] != "free"}
    answered = {(e["task"], e["slot"]): e for e in events if e["kind"] == "effect"}
    unresolved = {(e["task"], e["slot"]) for e in events if e["kind"] == "unresolved"}
    for task, calls in desks.items():
        keys = Counter(c.idempotency_key for c in calls if c.changed_state)
        assert not keys or max(keys.values()) == 1, task
        for key in keys:
            assert (task, key) in held & allowed
            assert (task, key) in answered or (task, key) in unresolved  # nothing changed behind the driver's back
        ran = {c.idempotency_key for c in calls}
        for (t, key), e in answered.items():
            if t == task and (t, key) in held and "start_s" in e and "out of order" not in e["text"]:
                assert key in ran  # nothing was reported done that the desk never saw


def all_faults(seen: Counter[str], *, reviews: bool) -> None:
    kinds = ["Killed", "JournalError", "resumed", "tool error", "sent again", "replays", "changed", "engine restart"]
    for kind in [*kinds, *(["garbled", "cut", "rejected"] if reviews else [])]:
        assert seen[kind] > 0, kind


def test_a_hundred_runs_with_faults(quick_folder: Path) -> None:
    seen = play(noisy_case(), "spec_agent", 100, seed=3, path=quick_folder / "j.db")
    all_faults(seen, reviews=True)
    assert seen["finished"] + seen["unresolved"] + seen["step_limit"] == 100
    assert seen["finished"] > 90


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_thousand_runs_with_faults(quick_folder: Path, name: str) -> None:
    seen = play(noisy_case(), name, 1000, seed=11, path=quick_folder / "j.db")
    all_faults(seen, reviews=name in ("spec_agent", "step_verification"))
    assert seen["EngineError"] > 0  # three restarts in a row stop a run, which then goes on
    assert seen["finished"] + seen["unresolved"] + seen["step_limit"] == 1000


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_a_faulty_engine_restarts_at_its_rate(rate: float) -> None:
    case = noisy_case()
    jobs = desk_jobs(1)
    engine = fake_engines(case, jobs, VirtualClock())[Role.WEAK]
    faulty = FaultyEngine(engine, random.Random(1), rate)
    ask = Ask(role=Role.WEAK, kind="draft", conversation=jobs[0].name, messages=jobs[0].messages)
    if rate:
        with pytest.raises(EngineError, match="weak engine restarted"):
            asyncio.run(faulty.ask(ask))
    else:
        assert asyncio.run(faulty.ask(ask)).output_tokens > 0


def test_a_seed_repeats_its_faults(quick_folder: Path) -> None:
    one = play(noisy_case(), "spec_agent", 15, seed=7, path=quick_folder / "a.db")
    two = play(noisy_case(), "spec_agent", 15, seed=7, path=quick_folder / "b.db")
    other = play(noisy_case(), "spec_agent", 15, seed=8, path=quick_folder / "c.db")
    assert one == two
    assert one != other
    with Journal(quick_folder / "a.db") as a, Journal(quick_folder / "b.db") as b:
        assert list(a.events()) == list(b.events())


def test_faulty_tools_lose_their_server_until_it_is_restarted(stage: Any) -> None:
    tools = FaultyTools(stage.tools, random.Random(0), 1.0)
    use = ToolUse(id="1", name="look", arguments={})
    found: Counter[str] = Counter()

    async def go() -> None:
        for i in range(60):
            try:
                result = await tools.call(use, key=f"k{i}")
                found["error" if result.is_error else "fine"] += 1
            except ToolTimeout:
                found["timeout"] += 1
            except ToolServerGone as gone:
                found["gone"] += 1
                with pytest.raises(ToolServerGone):
                    await tools.call(use, key="other")
                await tools.restart(gone)

    asyncio.run(go())
    assert set(found) == {"error", "timeout", "gone"}
    assert 0 < len(stage.tools.calls) < 60  # now before, now after it happened
