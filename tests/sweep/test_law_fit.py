"""A law fitted to a trace: its moments are the trace's, and so, nearly, is what the strategies cost."""

from __future__ import annotations

import pytest

from costmodel.trajectory import Effect
from hwprofiles.errors import InputError
from simulator.case import prepare
from simulator.law import draw, law
from simulator.law_fit import as_law, fit_law
from simulator.memory import keep_law
from simulator.outcome import Evaluator
from simulator.scenario_file import load_scenario
from simulator.workloads import workload


def test_a_law_is_found_again_from_what_it_drew():
    truth = law("autonomous").with_(
        steps=12, steps_spread=0.3, write_output=2.0, reply_observation=0.5, reply_share=0.3, first_prompt_tokens=4000
    )
    found = fit_law(draw(truth, 3000, 1))
    assert found.steps == pytest.approx(12, rel=0.02)
    assert found.steps_spread == pytest.approx(0.3, rel=0.1)
    for name in ("output_tokens", "observation_tokens", "output_sigma", "observation_sigma", "first_prompt_tokens"):
        assert getattr(found, name) == pytest.approx(getattr(truth, name), rel=0.03), name
    for name in ("write_output", "reply_output", "reply_observation", "write_observation"):
        assert getattr(found, name) == pytest.approx(getattr(truth, name), rel=0.05), name
    assert (found.write_share, found.reply_share) == pytest.approx((truth.write_share, 0.3), abs=0.01)


@pytest.mark.parametrize(
    ("name", "within"),
    [
        ("airline", 0.12),
        pytest.param("retail", 0.08, marks=pytest.mark.slow),
        pytest.param("retail-gemini-3-flash", 0.08, marks=pytest.mark.slow),
    ],
)
def test_the_expectation_of_the_law_is_near_that_of_the_trace(name, within):
    """Airline has 11 trajectories: one draw of as many differs from the next by about a tenth."""
    scenario = load_scenario("retail-h200", [f"workload.trace={name}"])
    evaluators = [Evaluator(prepare(s), {}) for s in (scenario, as_law(scenario)[0])]
    for strategy in ("strong_only", "spec_agent"):
        recorded, drawn = (ev.outcome(strategy, 2).central for ev in evaluators)
        for column in ("wall_s", "flops", "weight_bytes", "kv_bytes"):
            assert drawn.column(column)[0] == pytest.approx(recorded.column(column)[0], rel=within), (strategy, column)


def test_longer_trajectories_grow_longer_contexts():
    short = fit_law(workload("retail"))
    long = short.with_(steps=3 * short.steps)
    prompts = [[t.steps[-1].prompt_tokens for t in draw(x, 200, 0).trajectories] for x in (short, long)]
    assert sum(prompts[1]) > 1.8 * sum(prompts[0])
    assert {t.steps[0].prompt_tokens for t in draw(long, 20, 0).trajectories} == {round(short.first_prompt_tokens)}
    assert short.with_(context_tokens=9000).first_prompt_tokens is None


def test_means_hold_whatever_the_shares():
    fitted = fit_law(workload("retail"))
    for write_share in (0.05, 0.3):
        steps = [s for t in draw(fitted.with_(write_share=write_share), 2000, 0).trajectories for s in t.steps]
        assert sum(s.effect is Effect.WRITE for s in steps) / len(steps) == pytest.approx(write_share, abs=0.01)
        assert sum(s.visible_tokens for s in steps) / len(steps) == pytest.approx(fitted.output_tokens, rel=0.03)


def test_the_law_of_a_law_is_refused_and_names_are_digests():
    with pytest.raises(InputError, match="law already"):
        as_law(load_scenario("autonomous-h200"))
    fitted = fit_law(workload("airline"))
    name = keep_law(fitted)
    assert name == keep_law(fit_law(workload("airline")))
    assert law(name) is not None
    assert keep_law(fitted.with_(steps=5)) != name
    with pytest.raises(InputError, match="in the memory"):
        law("memory:law-of-nothing-0")
