"""Drivers and tool servers that really die: SIGKILL from outside, a desk that ends in the middle of a call."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from simulator.case import prepare
from simulator.results import load
from simulator.scenario_file import load_scenario
from validate.fake import VirtualClock
from validate.journal import Journal
from validate.order_desk.desk import read_calls
from validate.order_desk.faults import Fault, Faults
from validate.order_desk.schema import connect, state
from validate.order_desk.server import desk_command
from validate.order_desk.tasks import check
from validate.session import Session, changed_twice, desk_jobs, fake_engines
from validate.tools import ToolBox

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
_PAGE = 4096


def killed(command: Sequence[str], journal: Path, pages: int, root: Path) -> bool:
    """Start a driver and kill it when its journal has grown by so many pages; False when it ended first."""
    with subprocess.Popen(
        command,
        cwd=root,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(root)},
    ) as driver:
        written, before = 0, _sizes(journal)
        while driver.poll() is None:
            now = _sizes(journal)
            written += sum(max(0, b - a) for a, b in zip(before, now, strict=True))
            before = now
            if written >= pages * _PAGE:
                driver.kill()
                break
        status = driver.wait()
    assert status in (0, -9)
    return status == -9


def _sizes(journal: Path) -> tuple[int, int]:
    """Bytes of the journal and of what was written and not yet merged into it."""
    found = []
    for path in (journal, journal.with_name(journal.name + "-wal")):
        try:
            found.append(path.stat().st_size)
        except FileNotFoundError:
            found.append(0)
    return found[0], found[1]


def committed(journal: Path) -> dict[str, Any]:
    with Journal(journal) as j:
        steps: dict[str, Any] = {}
        for e in j.events("committed"):
            steps.setdefault(e["task"], []).extend(e["steps"])
        return steps


def worlds(folder: Path) -> dict[str, Any]:
    """The end state of every desk, and its changes in order; what was only asked again does not count."""
    found = {}
    for file in sorted(folder.glob("*.db")):
        if file.name == "journal.db":
            continue
        db = connect(file)
        calls = [(c.tool, c.idempotency_key) for c in read_calls(db) if c.changed_state]
        found[file.name] = (state(db), calls, changed_twice(db))
        db.close()
    return found


@pytest.mark.parametrize(("n", "at_least"), [(5, 1), pytest.param(50, 10, marks=pytest.mark.slow)])
def test_a_run_killed_again_and_again_ends_as_one_that_was_not(
    quick_folder: Path, root: Path, run_cli: Any, n: int, at_least: int
) -> None:
    """Through the command line: kill at random places, resume, until it is done."""
    kills = 0
    command = [sys.executable, "-m", "specroof", "validate", "llama-a100", "--weak", "fake:", "--strong", "fake:"]
    command += ["--strategy", "spec_agent", "--runs", str(n), "--set", "quality.weak_hazard=0.3", "--json", "-o"]
    whole, cut = quick_folder / "whole", quick_folder / "cut"
    rng = random.Random(5)
    journal = cut / "spec_agent" / "journal.db"
    while killed([*command, str(cut), "--resume"], journal, rng.randint(20, 100 + 20 * n), root):
        kills += 1
    assert kills >= at_least
    outs = [
        json.loads(run_cli(*command[3:], str(whole)).out),
        json.loads(run_cli(*command[3:], str(cut), "--resume").out),
    ]
    one, two = (o["strategies"]["spec_agent"] for o in outs)
    assert two["proof"] == one["proof"]
    assert outs[1]["held"]["executed_before_verdict"] == outs[1]["held"]["lost"] == outs[1]["held"]["run_twice"] == 0
    assert {k: v for k, v in two["tasks"].items() if k != "resumed"} == {
        k: v for k, v in one["tasks"].items() if k != "resumed"
    }
    assert one["tasks"]["resumed"] == 0
    assert 0 < two["tasks"]["resumed"] <= kills  # a kill between two tasks resumes none
    assert committed(journal) == committed(whole / "spec_agent" / "journal.db")
    assert worlds(cut / "spec_agent") == worlds(whole / "spec_agent")
    # the clock went on from the last journaled time: no task has a time out of order, and none took much less or more
    runs = [load(folder / "spec_agent").trajectories for folder in (whole, cut)]
    assert (runs[1]["time_s"] > 0).all()
    assert (runs[1]["arrival_s"].diff().dropna() >= 0).all()
    assert (runs[1]["finish_s"] <= runs[1]["arrival_s"].shift(-1).fillna(float("inf"))).all()
    ratio = runs[1]["time_s"] / runs[0]["time_s"]
    assert ratio.between(0.5, 1.5).all()
    for column in ("n_steps", "n_rounds", "n_reviews", "n_repairs", "weak_output_tokens", "strong_output_tokens"):
        assert (runs[1][column] == runs[0][column]).all(), column  # nothing is counted twice


@pytest.mark.slow
def test_a_driver_killed_over_a_desk_of_its_own_process(quick_folder: Path, root: Path) -> None:
    whole, cut = quick_folder / "whole", quick_folder / "cut"
    whole.mkdir()
    cut.mkdir()
    script = str(root / "tests" / "validate" / "drive_desk.py")
    assert not killed([sys.executable, script, str(whole), "5"], whole / "journal.db", 10**9, root)
    rng, kills = random.Random(9), 0
    while killed([sys.executable, script, str(cut), "5"], cut / "journal.db", rng.randint(15, 60), root):
        kills += 1
    assert kills >= 10
    assert committed(cut / "journal.db") == committed(whole / "journal.db")
    assert worlds(cut) == worlds(whole)
    assert {twice for _, _, twice in worlds(cut).values()} == {0}
    with Journal(cut / "journal.db") as journal:
        assert journal.proof().clean
        assert {e["status"] for e in journal.events("finished")} == {"finished"}
    # and nothing changed state that the driver had not authorised
    with Journal(cut / "journal.db") as journal:
        allowed = {e["slot"] for e in journal.events("authorised") if e["why"] in ("verdict", "written")}
    assert {key for _, calls, _ in worlds(cut).values() for _, key in calls} <= allowed


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
def test_a_desk_that_dies_in_the_middle_of_calls_is_started_again(quick_folder: Path, fault: Fault) -> None:
    """Over real stdio, at a read while drafting and at the held write, before or after it was done."""
    case = prepare(load_scenario("llama-a100", ["quality.weak_hazard=0", "quality.false_reject=0"]))
    job = next(j for j in desk_jobs(20) if j.name == "cancel_by_number")  # three reads and a write
    assert job.desk is not None
    database, path = quick_folder / "desk.db", quick_folder / "journal.db"
    clock = VirtualClock()
    session = Session(case, "spec_agent", fake_engines(case, [job], clock), clock, path)

    async def go() -> Any:
        # arrivals are counted over all lives: the 2nd call dies, is the 3rd; the write arrives 5th, is the 6th
        command = desk_command(database, Faults(at={2: fault, 5: fault}))
        async with ToolBox.stdio(command) as box:
            return await session.play(job, box, lambda task: check(database, task))

    done = asyncio.run(go())
    assert (done.status, done.solved, done.faults) == ("finished", True, [])
    calls = read_calls(database)
    assert [c.tool for c in calls if c.changed_state] == ["cancel_order"]
    assert changed_twice(database) == 0
    assert sum(c.replay for c in calls) == (2 if fault is Fault.CRASH_AFTER else 0)
    with Journal(path) as journal:
        assert journal.proof().clean
        attempts = [e["slot"].rpartition("#")[2] for e in journal.events("attempt")]
        assert attempts == ["0", "0", "1", "0", "0", "1"]
        (verdict,) = (e["id"] for e in journal.events("verdict") if e["round"] == 0)
        writes = [e["id"] for e in journal.events("attempt")][-2:]
        assert all(verdict < w for w in writes)
