"""Bundled workloads, the law, and rescaling."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import mean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.trajectory import Effect
from hwprofiles.errors import InputError
from simulator.law import draw, law, law_parameters
from simulator.traces import neutral
from simulator.workloads import rescale, workload, workload_names

RECORDED = ("retail-gpt-4.1-mini", "retail-gemini-3-flash", "airline")


def steps_of(work):
    return [s for t in work.trajectories for s in t.steps]


def means(work):
    steps = steps_of(work)
    return {
        "output_tokens": mean(s.output_tokens for s in steps),
        "observation_tokens": mean(s.observation_tokens for t in work.trajectories for s in t.steps[:-1]),
        "context_tokens": mean(s.prompt_tokens for s in steps),
        "tool_latency_s": mean(s.tool_s for s in steps if s.tools),
    }


@pytest.mark.parametrize(
    ("name", "trajectories", "steps"),
    [("retail-gpt-4.1-mini", 114, 1448), ("retail-gemini-3-flash", 110, 1148), ("airline", 11, 106)],
)
def test_bundled_counts(name, trajectories, steps):
    work = workload(name)
    assert (len(work.trajectories), len(steps_of(work))) == (trajectories, steps)
    assert all(t.missing == () for t in work.trajectories)


def test_bundled_names():
    assert workload("retail") is workload("retail-gpt-4.1-mini")
    assert set(RECORDED) < set(workload_names())
    with pytest.raises(InputError, match="did you mean 'retail'"):
        workload("retial")


@pytest.mark.parametrize("name", RECORDED)
def test_bundled_files_hold_neutral_numbers_only(name, root):
    """No text of a conversation: every string is a name, an id, an effect or a hash."""
    path = root / "simulator" / "data" / "workloads" / f"{name}.json"
    raw = path.read_text(encoding="utf-8")
    assert path.stat().st_size < 2_000_000
    assert raw == neutral.json_text(workload(name))
    assert "trimmed" not in raw
    assert "v:" not in raw
    assert any(licence in workload(name).source for licence in ("MIT", "Apache-2.0"))


@pytest.mark.parametrize("name", workload_names())
def test_contexts_grow_by_what_the_steps_add(name):
    for trajectory in workload(name).trajectories:
        for now, after in zip(trajectory.steps, trajectory.steps[1:], strict=False):
            assert after.prompt_tokens == now.prompt_tokens + now.visible_tokens + now.observation_tokens
        assert trajectory.steps[-1].observation_tokens == 0


def test_the_law_keeps_its_published_figures():
    """Ranges of the two published runs (haiku / sonnet): see autonomous.toml."""
    work = draw(law("autonomous"), 1000, 1)
    steps = steps_of(work)
    before_write, run = [], 0
    for step in steps:
        if step.effect is Effect.WRITE:
            before_write.append(run)
        run = run + 1 if step.effect is Effect.READ else 0
    lengths = sorted(len(t.steps) for t in work.trajectories)
    assert 5.2 <= mean(lengths) <= 6.4
    assert 6 <= lengths[900] <= 9
    assert 3.0 <= mean(before_write) <= 4.7
    assert mean(b == 0 for b in before_write) <= 0.10
    assert 180 <= median(s.output_tokens for s in steps if s.tools) <= 304
    assert 601 <= sorted(s.output_tokens for s in steps)[int(0.9 * len(steps))] <= 830
    assert 12_000 <= work.trajectories[0].steps[0].prompt_tokens <= 25_400
    assert 92_000 <= mean(sum(s.prompt_tokens for s in t.steps) for t in work.trajectories) <= 143_000
    assert 1.5 <= mean(len(s.tools) for s in steps if s.tools) <= 1.8
    assert all(t.steps[-1].effect is Effect.REPLY for t in work.trajectories)


def test_the_law_meets_its_own_parameters():
    chosen = law("autonomous")
    found = means(draw(chosen, 3000, 2))
    assert found["context_tokens"] == pytest.approx(chosen.context_tokens, abs=1)
    assert found["output_tokens"] == pytest.approx(chosen.output_tokens, rel=0.03)
    assert found["observation_tokens"] == pytest.approx(chosen.observation_tokens, rel=0.03)
    assert found["tool_latency_s"] == pytest.approx(chosen.tool_latency_s, rel=0.03)


def test_the_law_is_the_same_for_the_same_seed_and_another_for_another():
    texts = [neutral.json_text(draw(law("autonomous"), 20, seed)) for seed in (3, 3, 4)]
    assert texts[0] == texts[1] != texts[2]


def test_a_parameter_leaves_the_other_draws_alone():
    plain, longer = draw(law("autonomous"), 20, 3), draw(law("autonomous").with_(output_tokens=700), 20, 3)
    for a, b in zip(steps_of(plain), steps_of(longer), strict=True):
        assert (a.effect, a.observation_tokens, a.tool_s) == (b.effect, b.observation_tokens, b.tool_s)
        assert abs(b.output_tokens - 2 * a.output_tokens) <= 1


def test_law_parameters_all_have_a_tier_and_a_source():
    rows = law_parameters("autonomous")
    assert all(p.tier in ("measured", "fitted", "assumed", "datasheet") and len(p.source) > 10 for p in rows)


@pytest.mark.parametrize(
    ("name", "value", "share"),
    [("write_share", 0.5, Effect.WRITE), ("write_share", 0.0, Effect.WRITE), ("reply_share", 0.4, Effect.REPLY)],
)
def test_shares_are_shares_of_all_steps(name, value, share):
    steps = steps_of(draw(law("autonomous").with_(steps=20, context_tokens=60_000, **{name: value}), 300, 0))
    assert mean(s.effect is share for s in steps) == pytest.approx(value, abs=0.01)


def test_thinking_is_decoded_but_not_seen():
    steps = steps_of(draw(law("autonomous").with_(thinking_tokens=500), 300, 0))
    assert mean(s.output_tokens - s.visible_tokens for s in steps) == pytest.approx(500, rel=0.1)


def test_one_step_is_one_reply():
    work = draw(law("autonomous").with_(steps=1), 5, 0)
    assert [s.effect for s in steps_of(work)] == [Effect.REPLY] * 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": 3}, "did you mean 'steps'"),
        ({"steps": 0.5}, "outside"),
        ({"steps": math.nan}, "outside"),
        ({"write_share": 0.9, "reply_share": 0.2}, "over 1"),
        ({"output_tokens": -1}, "outside"),
        ({"tool_latency_s": math.inf}, "outside"),
    ],
)
def test_bad_law_parameters(changes, message):
    with pytest.raises(InputError, match=message):
        law("autonomous").with_(**changes)


def test_a_context_below_what_steps_add_is_refused():
    with pytest.raises(InputError, match="at least"):
        draw(law("autonomous").with_(context_tokens=100))


@given(
    output=st.floats(1, 5000), observation=st.floats(0, 5000), latency=st.floats(0, 60), name=st.sampled_from(RECORDED)
)
def test_rescaling_meets_every_mean(output, observation, latency, name):
    work = workload(name)
    n = len(steps_of(work))
    context = 2 * (output + observation) * max(len(t.steps) for t in work.trajectories) + 5000
    targets = {
        "output_tokens": output,
        "observation_tokens": observation,
        "context_tokens": context,
        "tool_latency_s": latency,
    }
    scaled = rescale(work, **targets)
    found = means(scaled)
    assert found["output_tokens"] == pytest.approx(output, abs=0.5001 / n)
    assert found["observation_tokens"] == pytest.approx(observation, abs=0.5001 / (n - len(work.trajectories)))
    assert found["context_tokens"] == pytest.approx(context, abs=0.6)
    assert found["tool_latency_s"] == pytest.approx(latency, rel=1e-9, abs=1e-12)
    for trajectory in scaled.trajectories:
        for now, after in zip(trajectory.steps, trajectory.steps[1:], strict=False):
            assert 0 <= now.visible_tokens <= now.output_tokens
            assert after.prompt_tokens == now.prompt_tokens + now.visible_tokens + now.observation_tokens
            assert now.cached_prompt_tokens <= now.prompt_tokens


def test_rescaling_to_its_own_means_changes_no_count():
    work = workload("airline")
    found = means(work)
    scaled = rescale(work, output_tokens=found["output_tokens"], observation_tokens=found["observation_tokens"])
    assert [s.prompt_tokens for s in steps_of(scaled)] == [s.prompt_tokens for s in steps_of(work)]
    assert [s.output_tokens for s in steps_of(scaled)] == [s.output_tokens for s in steps_of(work)]


def test_nothing_to_rescale_is_the_same_workload():
    assert rescale(workload("airline")) is workload("airline")


def test_recorded_times_do_not_survive_rescaling():
    scaled = rescale(workload("airline"), tool_latency_s=1.0)
    assert all(s.start_s is None for s in steps_of(scaled))
    assert all("times" in t.missing for t in scaled.trajectories)


def test_compaction_keeps_its_ratio():
    work = workload("airline")
    steps = list(work.trajectories[0].steps)
    for j in range(3, len(steps)):
        steps[j] = replace(steps[j], prompt_tokens=steps[j].prompt_tokens - 2000, cached_prompt_tokens=None)
    one = replace(work, trajectories=(replace(work.trajectories[0], steps=tuple(steps)),))
    scaled = rescale(one, output_tokens=300).trajectories[0].steps
    before = steps[2].prompt_tokens + steps[2].visible_tokens + steps[2].observation_tokens
    after = scaled[2].prompt_tokens + scaled[2].visible_tokens + scaled[2].observation_tokens
    assert scaled[3].prompt_tokens == round(after * steps[3].prompt_tokens / before)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output_tokens": 0}, "outside"),
        ({"observation_tokens": -1}, "outside"),
        ({"context_tokens": math.nan}, "outside"),
        ({"context_tokens": 50}, "must be over"),
        ({"tool_latency_s": math.inf}, "outside"),
    ],
)
def test_bad_means_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        rescale(workload("airline"), **changes)


def test_a_trace_without_tokens_cannot_be_rescaled():
    work = workload("airline")
    bare = tuple(
        replace(t, steps=tuple(replace(s, prompt_tokens=None, output_tokens=None) for s in t.steps))
        for t in work.trajectories
    )
    with pytest.raises(InputError, match="records none"):
        rescale(replace(work, trajectories=bare), output_tokens=5)
    with pytest.raises(InputError, match="without token counts"):
        rescale(replace(work, trajectories=bare), context_tokens=5000)
