"""Measured beside predicted: on the fake engines the walk of a measured path must give back what was measured."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from costmodel.trajectory import Effect
from hwprofiles.errors import InputError
from simulator.case import Case, prepare
from simulator.scenario_file import load_scenario
from validate.compare import METRICS, compare, errors_of, paths
from validate.fake import VirtualClock
from validate.journal import Journal
from validate.runner import Limits
from validate.session import Session, desk_jobs, desk_tools, fake_engines

STRATEGIES = ("strong_only", "weak_only", "step_verification", "spec_agent")
PLAIN, HYBRID, REMOTE = "llama-a100", "retail-h200", "edge-cloud"


def play(path: Path, name: str, case: Case, n: int) -> Any:
    clock = VirtualClock()
    jobs = desk_jobs(n)
    session = Session(case, name, fake_engines(case, jobs, clock), clock, path)

    async def go() -> None:
        for job in jobs:
            async with desk_tools(None, own_process=False) as (box, _):
                await session.play(job, box, None)

    asyncio.run(go())
    with Journal(path) as journal:
        return paths(journal, case.scenario.protocol.repair_mode)


@pytest.mark.parametrize("scenario", [PLAIN, HYBRID, REMOTE])
@pytest.mark.parametrize("name", STRATEGIES)
def test_time_and_counts_agree_on_every_kind_of_site(quick_folder: Path, scenario: str, name: str) -> None:
    """Plain attention, recurrent state (and thinking), a priced API behind a link.

    Where the review rejects nothing but last drafts the two agree but for rounding; a draft behind a rejected one is
    known to the measured run only, so single tasks may differ more: the median is what must hold.
    """
    case = prepare(load_scenario(scenario, ["quality.weak_hazard=0.1"]))
    found = play(quick_folder / "j.db", name, case, 8)
    assert len(found) == 8
    c = compare(case, name, found)
    assert c.n == 8
    assert c.errors["time_s"]["median_ape"] <= 0.02
    assert abs(c.errors["time_s"]["bias"]) <= 0.05
    for metric in ("strong_output_tokens", "weak_output_tokens", "requests"):
        assert c.errors[metric]["median_ape"] == 0.0, metric
    assert c.in_band["time_s"] >= 0.9
    if name in ("strong_only", "weak_only"):
        for metric in METRICS[1:]:
            assert c.errors[metric]["bias"] == 0.0
        assert abs(c.errors["time_s"]["bias"]) < 1e-3


@pytest.mark.parametrize("scenario", [PLAIN, HYBRID])
@pytest.mark.parametrize("name", STRATEGIES)
def test_tokens_are_equal_and_times_nearly_when_nothing_is_discarded(
    quick_folder: Path, scenario: str, name: str
) -> None:
    sure = ["quality.weak_hazard=0", "quality.strong_hazard=0", "quality.false_reject=0"]
    case = prepare(load_scenario(scenario, sure))
    c = compare(case, name, play(quick_folder / "j.db", name, case, 5))
    for metric in METRICS[1:]:
        for measured, predicted in c.pairs[metric]:
            assert measured == predicted, metric
    assert c.errors["time_s"]["median_ape"] < 2e-3  # a token of four characters may be split between two messages
    assert c.in_band == dict.fromkeys(METRICS, 1.0)


def test_discarded_drafts_are_underestimated_on_the_desk(quick_folder: Path) -> None:
    """The walk drafts as far as the task's own steps let it.

    A held step in place of a rejected read ends its segment early, a read in place of a rejected write does not. The
    fake models' mistakes come out of all scripts, four in five of them reads, so on balance the walk drafts too little.
    """
    case = prepare(load_scenario(PLAIN, ["quality.weak_hazard=0.35", "quality.detection=1"]))
    c = compare(case, "spec_agent", play(quick_folder / "j.db", "spec_agent", case, 20))
    assert c.errors["weak_output_tokens"]["bias"] <= 0.0
    assert c.errors["requests"]["bias"] <= 0.0
    assert c.errors["weak_output_tokens"]["bias"] > -0.1


def test_a_path_has_the_sizes_the_engines_reported(quick_folder: Path) -> None:
    case = prepare(load_scenario(HYBRID, ["quality.weak_hazard=0", "quality.false_reject=0"]))
    found = play(quick_folder / "j.db", "spec_agent", case, 3)
    thinking = round(case.scenario.workload.thinking_tokens.value)
    with Journal(quick_folder / "j.db") as journal:
        asked = [e for e in journal.events("asked") if e["task"] == found[0].name]
    p = found[0]
    drafts = [a for a in asked if a["ask"] == "draft"]
    assert p.task.prompts[0][1] == drafts[0]["prompt_tokens"]
    thinks = case.scenario.weak.thinking
    for step, a in zip(p.task.steps, drafts, strict=True):
        assert step.weak_decoded == a["output_tokens"]
        assert step.visible == a["output_tokens"] - (thinking if thinks else 0)
    assert p.task.steps[-1].effect is Effect.REPLY
    assert p.sizes.verdict_tokens == 1
    assert p.measured["requests"] == len(asked)
    # the instruction: what a review's prompt holds beyond committed chat and segment, in tokens of four characters
    assert p.sizes.instruction_tokens == pytest.approx(len("<user></user>\n") / 4 + 45, abs=12)


def test_a_task_named_like_a_key_is_not_taken_for_drafted(stage: Any) -> None:
    """Names are the user's: ':d' in one says nothing about who wrote its steps."""
    stage.run(("strong_only", 1), [], [stage.call("look"), "Done."], task="a:d0.0")
    with stage.journal() as journal:
        (p,) = paths(journal)
    assert p.kept == (False, False)


def test_unfinished_tasks_are_left_out(stage: Any) -> None:
    stage.run(("strong_only", 1), [], [stage.call("look")], limits=Limits(max_steps=1))
    with stage.journal() as journal:
        assert paths(journal) == ()
    with pytest.raises(InputError, match="no task finished"):
        compare(prepare(load_scenario(PLAIN, [])), "strong_only", ())


@pytest.mark.parametrize(
    ("pairs", "median", "bias"),
    [
        ([(1.0, 1.0)], 0.0, 0.0),
        ([(2.0, 1.0), (2.0, 3.0), (2.0, 2.0)], 0.5, 0.0),
        ([(1.0, 2.0)], 1.0, 1.0),
        ([(0.0, 0.0)], 0.0, 0.0),
        ([(0.0, 5.0)], 1.0, 0.0),
        ([(0.0, 5.0), (10.0, 5.0), (10.0, 5.0)], 0.5, -0.25),
    ],
)
def test_errors_of_pairs(pairs: list[tuple[float, float]], median: float, bias: float) -> None:
    assert errors_of(pairs) == pytest.approx({"median_ape": median, "bias": bias})
