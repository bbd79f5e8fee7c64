"""A journal as a measured run: valid frames that survive a file, phases that fill the wall time, the right fates."""

from __future__ import annotations

import asyncio
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from costmodel.cost import PHASES
from dashboards import figures
from simulator.case import Case, prepare
from simulator.results import SCHEMA, load
from simulator.scenario_file import load_scenario
from simulator.timeline import chrome_trace, timeline
from validate.engine import EngineError
from validate.fake import VirtualClock
from validate.faults import FaultyJournal, Killed
from validate.journal import Journal
from validate.measure import measured
from validate.runner import Limits
from validate.session import Session, desk_jobs, desk_tools, fake_engines

STRATEGIES = ("strong_only", "weak_only", "step_verification", "spec_agent")
META = {"strategy": "spec_agent"}


def case_of(name: str = "llama-a100") -> Case:
    return prepare(load_scenario(name, ["quality.weak_hazard=0.3"]))


def play(path: Path, name: str, case: Case, n: int = 6) -> Journal:
    clock = VirtualClock()
    jobs = desk_jobs(n)
    session = Session(case, name, fake_engines(case, jobs, clock), clock, path)

    async def go() -> None:
        for job in jobs:
            async with desk_tools(None, own_process=False) as (box, _):
                await session.play(job, box, None)

    asyncio.run(go())
    return Journal(path)


@pytest.mark.parametrize("name", STRATEGIES)
def test_phases_tile_the_wall_time_of_every_trajectory(quick_folder: Path, name: str) -> None:
    """On the virtual clock nothing else takes time: request parts and tools lie end to end from start to finish."""
    with play(quick_folder / "j.db", name, case_of()) as journal:
        run = measured(journal, {"strategy": name})
    assert set(run.phases["phase"]) <= set(PHASES)
    for row in run.trajectories.itertuples():
        mine = run.phases[run.phases["trajectory"] == row.trajectory].sort_values(["start_s", "end_s"])
        assert mine["start_s"].iloc[0] == pytest.approx(row.arrival_s)
        assert mine["end_s"].iloc[-1] == pytest.approx(row.finish_s)
        gaps = mine["start_s"].to_numpy()[1:] - mine["end_s"].to_numpy()[:-1]
        assert abs(gaps).max() < 1e-9
        assert mine["wall_s"].sum() == pytest.approx(row.time_s, rel=1e-9)
        assert row.wall_s == row.time_s


def test_what_a_measured_run_holds(stage: Any) -> None:
    weak = [stage.call("look"), stage.call("change"), stage.call("count"), stage.call("change"), "Done."]
    stage.run(("spec_agent", 2), weak, ["1", stage.call("look"), "2", "1"])
    with stage.journal() as journal:
        run = measured(journal, META)
    (row,) = run.trajectories.to_dict("records")
    assert (row["status"], row["counted"], row["task"]) == ("finished", True, "t")
    assert (row["n_steps"], row["n_rounds"], row["n_drafted"], row["n_accepted"]) == (5, 3, 5, 4)
    assert (row["n_reviews"], row["n_repairs"], row["n_preemptions"]) == (3, 1, 0)
    assert (row["weak_output_tokens"], row["strong_output_tokens"]) == (15, 12)
    assert row["time_s"] == 9.0  # nine requests of a second each; the doubles' tools take none
    assert math.isnan(row["flops"])
    steps = [(s["step"], s["author"], s["fate"], s["effect"]) for s in run.steps.to_dict("records")]
    assert steps == [
        (0, "weak", "accepted", "read"),
        (1, "weak", "discarded", "write"),
        (1, "strong", "repaired", "read"),
        (2, "weak", "accepted", "pure"),
        (3, "weak", "accepted", "write"),
        (4, "weak", "accepted", "reply"),
    ]
    by_phase = run.phases.groupby("phase")["wall_s"].sum().to_dict()
    assert by_phase == pytest.approx(
        {
            "observation_prefill": 4 * 0.25,
            "draft_decode": 4 * 0.75,
            "wasted_draft": 1.0,
            "verify_prefill": 3 * 0.25,
            "verdict_decode": 3 * 0.75,
            "repair_prefill": 0.25,
            "repair_decode": 0.75,
            "tool": 0.0,
        }
    )
    assert set(run.phases["kind"]) == {"draft", "verify", "repair", "tool"}
    assert set(run.phases["lane"]) == {"weak", "strong", "tools"}
    assert run.engine.empty


def test_a_read_behind_a_rejected_one_is_a_wasted_tool(quick_folder: Path) -> None:
    with play(quick_folder / "j.db", "spec_agent", case_of(), n=20) as journal:
        run = measured(journal, META)
        kept = {k for e in journal.events("committed") for s in e["steps"] for k in s["keys"]}
        free = {e["slot"] for e in journal.events("authorised") if e["why"] == "free"}
    tools = run.phases[run.phases["kind"] == "tool"]
    assert (tools["phase"] == "wasted_tool").sum() == len(free - kept) > 0
    assert (tools["lane"] == "tools").all()


def test_unfinished_trajectories_are_said_to_be(stage: Any) -> None:
    stage.run(("strong_only", 1), [], [stage.call("look")] * 2, task="long", limits=Limits(max_steps=2))
    down = [EngineError("down")] * 3
    with pytest.raises(EngineError):
        stage.run(("strong_only", 1), [], [stage.call("look"), *down], task="cut")
    with stage.journal() as journal:
        run = measured(journal, {"strategy": "strong_only"})
    rows = run.trajectories.to_dict("records")
    assert [(r["task"], r["status"], r["reason"], r["counted"]) for r in rows] == [
        ("long", "unfinished", "step_limit", False),
        ("cut", "unfinished", "", False),
    ]
    assert run.counted().empty
    assert run.summary()["status_counts"] == {"finished": 0, "unfinished": 2, "rejected": 0, "failed": 0}


def test_a_run_cut_and_resumed_counts_everything_once(stages: Any) -> None:
    def lines(stage: Any) -> Any:
        weak = {("draft", i): stage.call("look" if i < 2 else "change", a=i) for i in range(3)} | {
            ("draft", 3): "Done."
        }
        return weak, {("verify", 0): "3", ("verify", 3): "1"}

    whole = stages()
    whole.run(("spec_agent", 3), *lines(whole))
    with whole.journal() as journal:
        expected = measured(journal, META)
    for at in range(2, len(whole.events())):
        stage = stages()
        stage.kind = partial(FaultyJournal, fault="killed_after", at=at)
        with pytest.raises(Killed):
            stage.run(("spec_agent", 3), *lines(stage))
        stage.kind = Journal
        stage.run(("spec_agent", 3), *lines(stage))
        with stage.journal() as journal:
            run = measured(journal, META)
        assert run.trajectories.drop(columns=["time_s", "finish_s", "wall_s"]).equals(
            expected.trajectories.drop(columns=["time_s", "finish_s", "wall_s"])
        )
        columns = ["step", "round", "author", "fate", "effect", "output_tokens"]
        assert run.steps[columns].equals(expected.steps[columns])
        assert run.phases["wall_s"].sum() == pytest.approx(expected.phases["wall_s"].sum())


def test_frames_survive_a_file_and_the_same_run_gives_the_same_bytes(quick_folder: Path) -> None:
    folders = []
    for i in range(2):
        with play(quick_folder / f"{i}.db", "spec_agent", case_of()) as journal:
            run = measured(journal, META)
            events = list(journal.events())
        folders.append((quick_folder / f"out{i}", events))
        run.save(folders[-1][0])
        again = load(folders[-1][0])
        assert again.meta["kind"] == "measured"
        for name in SCHEMA:
            assert again.frames[name].equals(run.frames[name])
    (a, events_a), (b, events_b) = folders
    assert events_a == events_b
    assert sorted(p.name for p in a.iterdir()) == sorted(p.name for p in b.iterdir())
    for file in a.iterdir():
        assert file.read_bytes() == (b / file.name).read_bytes(), file.name


def test_timeline_and_trace_take_a_measured_run(quick_folder: Path) -> None:
    with play(quick_folder / "j.db", "spec_agent", case_of()) as journal:
        run = measured(journal, META)
    spans = timeline(run, 2)
    assert (spans["start_s"] >= 0).all()
    assert spans["start_s"].min() == pytest.approx(0.0)
    figure = figures.timeline(spans)
    assert len(figure.data) > 0
    trace = chrome_trace(run)
    assert len([e for e in trace["traceEvents"] if e["ph"] == "X"]) == len(run.phases)
