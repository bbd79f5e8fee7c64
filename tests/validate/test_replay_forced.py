"""A replay on fake servers: token counts and verdicts forced, times those of the simulation, all strategies."""

from __future__ import annotations

import asyncio
import json

import pytest

from costmodel.pricing import Pricing
from costmodel.protocol import Role
from costmodel.strategies import STRATEGY_NAMES
from hwprofiles.errors import InputError
from simulator.case import prepare
from simulator.results import load
from simulator.run import acceptance_shift, simulate
from simulator.scenario_file import load_scenario
from validate.replay import Replay
from validate.replay_lanes import Stage, VirtualLane
from validate.replay_report import ranking, replay

EXACT = ("task", "n_steps", "n_rounds", "n_drafted", "n_accepted", "n_reviews", "n_repairs")
TOKENS = ("weak_output_tokens", "strong_output_tokens")


def case_of(*settings):
    return prepare(load_scenario("llama-a100", settings, None))


@pytest.fixture(scope="module")
def case():
    return case_of("load.concurrency=1", "load.n_trajectories=3")


@pytest.fixture(scope="module")
def shift(case):
    return acceptance_shift(case, Pricing(case.sites))


def forced(case, name, n, shift, agents=1, lane=VirtualLane):
    stage = Stage()
    lanes = {role: lane(case.sites[role].server, stage) for role in Role}
    return asyncio.run(stage.play(Replay(case, name, lanes, agents, shift=shift).run(n)))


@pytest.mark.parametrize("name", STRATEGY_NAMES)
def test_every_strategy_goes_as_in_the_simulation(case, name, shift):
    run, simulated = forced(case, name, 3, shift), simulate(case, name, shift=shift)
    mine, theirs = (r.trajectories.set_index("trajectory").loc[[0, 1, 2]] for r in (run, simulated))
    for column in EXACT:
        assert list(mine[column]) == list(theirs[column]), column
    races = name in ("step_speculation", "spec_agent_pipelined", "spec_agent_adaptive")
    for column in () if races else TOKENS:
        assert list(mine[column]) == list(theirs[column]), column
    assert (mine["time_s"] / theirs["time_s"] - 1.0).abs().max() < 0.02


def test_every_request_has_the_sizes_of_the_model_and_finds_its_prefix(case, shift):
    run = forced(case, "spec_agent", 3, shift)
    simulated = simulate(case, "spec_agent", shift=shift).frames["requests"]
    keys = ["trajectory", "role", "kind", "step", "prompt_tokens", "output_tokens"]
    mine = run.frames["requests"]
    theirs = simulated[simulated["trajectory"] < 3]
    assert sorted(map(tuple, mine[keys].to_numpy().tolist())) == sorted(map(tuple, theirs[keys].to_numpy().tolist()))
    share = mine["cached_tokens"].sum() / theirs["cached_tokens"].sum()
    assert 0.97 < share <= 1.0, "all but what the engines had generated themselves"


def test_agents_at_once_share_the_engines(case, shift):
    alone = forced(case, "strong_only", 4, shift).trajectories["time_s"].mean()
    loaded = case_of("load.concurrency=6", "load.n_trajectories=4")
    run = forced(loaded, "strong_only", 4, shift, agents=6)
    assert run.trajectories["counted"].sum() == 4
    assert run.trajectories[run.trajectories["counted"]]["time_s"].mean() > 1.02 * alone


def test_a_replay_is_a_run_like_any_other(case, tmp_path):
    found = replay(case, "fake:", "fake:", strategies=["spec_agent"], n=2, out=tmp_path, samples=2)
    again = load(tmp_path / "spec_agent")
    assert again.meta["kind"] == "measured"
    assert len(again.frames["phases"]) == len(found["spec_agent"].run.frames["phases"]) > 0
    assert 0.0 <= found["spec_agent"].in_band <= 1.0


def test_ranking_counts_only_bands_that_are_apart():
    from costmodel.prediction import Prediction

    bands = {
        "a": Prediction(value=1.0, low=0.9, high=1.1),
        "b": Prediction(value=2.0, low=1.8, high=2.2),
        "c": Prediction(value=2.1, low=1.9, high=2.3),
    }
    assert ranking(bands, {"a": 1.0, "b": 0.9, "c": 3.0}) == {"pairs_apart": 2, "ranked_right": 1}


def test_what_cannot_be_forced_is_refused(case):
    with pytest.raises(InputError, match="both 'fake:'"):
        replay(case, "fake:", "http://127.0.0.1:1/v1")
    with pytest.raises(InputError, match="did you mean"):
        replay(case, "fake:", "fake:", strategies=["spec_agnet"])
    with pytest.raises(InputError, match="agents"):
        forced(case, "strong_only", 1, 0.0, agents=0)


def test_a_server_that_counts_otherwise_ends_the_replay(case):
    class Short(VirtualLane):
        async def together(self, prompts, output_tokens):
            return await super().together(prompts, max(1, output_tokens - 1))

    with pytest.raises(InputError, match="ignore_eos"):
        forced(case, "strong_only", 1, 0.0, lane=Short)


def test_the_command_writes_a_page_and_one_document(run_cli, tmp_path):
    page = tmp_path / "parity.html"
    args = ("--weak", "fake:", "--strong", "fake:", "--replay", "--runs", "2", "--report", page)
    done = run_cli("validate", "llama-a100", *args, "--strategy", "strong_only", "--strategy", "spec_agent", "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert {"measured", "predicted", "errors", "in_band", "held", "phases", "requests", "ranking", "counters"} <= set(
        document
    )
    assert document["counters"]["spec_agent"] == {"weak": None, "strong": None}
    assert document["errors"]["time_s"]["median_ape"] < 0.02
    assert document["mode"] == "replay"
    assert "Predicted against measured" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("more", [("--agents", "2"), ("--replay", "--faults", "1"), ("--replay", "--tools", "x")])
def test_options_that_do_not_go_together_are_one_line(run_cli, more):
    done = run_cli("validate", "llama-a100", "--weak", "fake:", "--strong", "fake:", *more)
    assert (done.code, done.out) == (2, "")
    assert "--replay" in done.err
