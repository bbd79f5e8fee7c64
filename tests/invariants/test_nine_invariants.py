"""What must hold on every path of all nine strategies, whoever works beside whom."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.cost import COLUMNS, PHASES
from costmodel.deployment import deploy
from costmodel.guard import HoldViolation
from costmodel.pricing import NetworkLink, Pricing, Site
from costmodel.protocol import (
    CallTool,
    Cancel,
    Commit,
    Draft,
    Reuse,
    Role,
    Start,
    Verify,
    Wait,
    Write,
)
from costmodel.session import EngineRequest, ProtocolSizes, ToolRun
from costmodel.strategies import FOLLOWS, STRATEGY_NAMES, Settings, strategy
from costmodel.task import Task, TaskStep
from costmodel.trajectory import RUNS_FREELY, Effect
from costmodel.walk import forced, walk

WALL = COLUMNS.index("wall_s")
QUICK, SLOW = deploy("Qwen/Qwen3-0.6B", "h200"), deploy("Qwen/Qwen3.5-4B", "h200", chunk_tokens=600)
PRICINGS = (
    Pricing(
        {Role.WEAK: Site(server=QUICK), Role.STRONG: Site(server=SLOW, link=NetworkLink(rtt_s=0.05, bytes_per_s=1e6))}
    ),
    Pricing({Role.WEAK: Site(server=SLOW), Role.STRONG: Site(server=QUICK)}),
)
SIZES = ProtocolSizes(40, 6)
HALF = Settings(router_shares=dict.fromkeys(FOLLOWS, 0.5), adaptive_rule="rate")

steps = st.lists(
    st.tuples(st.sampled_from([Effect.READ, Effect.READ, *Effect]), st.sampled_from([0.0, 0.1, 2.0])),
    min_size=1,
    max_size=9,
)


def make_task(drawn):
    made = tuple(TaskStep(i, effect, 20, 30, 60, 80, tool_s) for i, (effect, tool_s) in enumerate(drawn))
    return Task("t", ((Role.WEAK, 700), (Role.STRONG, 900)), 0, made)


@settings(max_examples=120)
@given(
    steps,
    st.lists(st.booleans(), min_size=9, max_size=9),
    st.sampled_from(STRATEGY_NAMES),
    st.integers(1, 4),
    st.sampled_from(PRICINGS),
)
def test_every_path_keeps_the_protocol(drawn, bits, name, window, pricing):
    task = make_task(drawn)
    path = walk(task, strategy(name, window, HALF), forced(bits), pricing, SIZES)
    at = 0
    seen, ran = {}, []
    for r in path.rounds:
        # the next steps of the task, at least one; at most one of them written, and it is the last
        assert [s.index for s in r.committed] == list(range(at, at + len(r.committed)))
        assert r.committed
        kinds = [w.kind if isinstance(w, EngineRequest) else "tool" for w in r.works]
        assert kinds.count("repair") + kinds.count("write") == (r.written_by is not None) <= 1
        assert len(r.committed) == r.accepted + (r.written_by is not None)
        # a held step's tools run after everything that could still refuse it, and only for a committed step
        asked = [i for i, k in enumerate(kinds) if k in ("verify", "repair", "write")]
        for i, work in enumerate(r.works):
            if isinstance(work, ToolRun) and task.steps[work.step].effect not in RUNS_FREELY:
                assert i > max(asked)
                assert at <= work.step < at + len(r.committed)
                assert r.wasted[i] is False
        # fates are told once, in the round that judges
        for work, fate in (*zip(r.before, r.earlier, strict=True), *zip(r.works, r.wasted, strict=True)):
            if fate is None:
                seen[id(work)] = work
            elif isinstance(work, ToolRun) and not fate:
                ran.append(work.step)
        at += len(r.committed)
        assert len(r.carry.open) >= r.carry.n_steps
    assert at == len(drawn)
    assert sorted(ran) == list(range(len(drawn)))
    assert path.rounds[-1].carry.n_steps == 0


@settings(max_examples=80)
@given(
    steps,
    st.lists(st.booleans(), min_size=9, max_size=9),
    st.sampled_from(STRATEGY_NAMES),
    st.integers(1, 4),
    st.sampled_from(PRICINGS),
)
def test_both_ledgers_sum_and_nothing_is_free(drawn, bits, name, window, pricing):
    path = walk(make_task(drawn), strategy(name, window, HALF), forced(bits), pricing, SIZES)
    assert np.isfinite(path.ledger).all()
    assert path.ledger.min() > -1e-12 * path.ledger.max()
    visible = [e for e in path.events if not e.hidden]
    end = 0.0
    for event in visible:
        assert event.start_s == end
        end = event.end_s
    assert path.wall_s == pytest.approx(end, rel=1e-9, abs=1e-9)
    for phase in PHASES:
        seconds = sum(e.end_s - e.start_s for e in visible if e.phase == phase)
        assert seconds == pytest.approx(path.ledger[PHASES.index(phase), WALL], rel=1e-6, abs=1e-9)
    # hidden work lies inside the path's time, and takes engine seconds all the same
    assert all(e.start_s >= 0 for e in path.events)
    cut = any(any(r.cut) for r in path.rounds)
    if not cut:
        engines = ("weak", "strong")
        busy = sum(e.end_s - e.start_s for e in path.events if e.lane in engines and e.phase not in ("host", "queue"))
        assert path.column("busy_s") == pytest.approx(busy, rel=1e-6)


# -- strategies that misbehave beside others --------------------------------------------------------------------------


class Bad:
    """A strategy made of one function."""

    name = "bad"

    def __init__(self, play):
        self.play = play

    def round(self, view):
        return self.play(view)


def run(play, effects=(Effect.READ, Effect.READ, Effect.READ)):
    return walk(make_task([(e, 0.5) for e in effects]), Bad(play), forced([True] * 9), PRICINGS[0], SIZES)


def drafted(n):
    segment = ()
    for _ in range(n):
        step = yield Draft(Role.WEAK, segment)
        segment = (*segment, step)
        if step.effect in RUNS_FREELY:
            yield CallTool(step)
    return segment


def test_a_held_step_cannot_run_while_its_review_is_pending():
    def play(_view):
        segment = yield from drafted(1)
        yield Start(Verify(Role.STRONG, segment))
        yield Start(CallTool(segment[0]))

    with pytest.raises(HoldViolation, match="held until a verdict"):
        run(play, (Effect.WRITE,) * 3)


def test_nothing_is_drafted_behind_a_read_that_is_still_running():
    def play(_view):
        step = yield Draft(Role.WEAK, ())
        yield Start(CallTool(step))
        yield Draft(Role.WEAK, (step,))

    with pytest.raises(HoldViolation, match="has not run"):
        run(play)


def test_a_round_leaves_nothing_running():
    def play(_view):
        step = yield Write(Role.STRONG)
        yield Start(Draft(Role.WEAK, ()))
        return Commit((step,))

    with pytest.raises(ValueError, match="still running"):
        run(play)


def test_only_what_runs_can_be_waited_for():
    def play(_view):
        ticket = yield Start(Write(Role.STRONG))
        yield Cancel(ticket)
        yield Wait((ticket,))

    with pytest.raises(ValueError, match="not running"):
        run(play)


def test_two_requests_to_one_model_are_for_the_simulator():
    def play(_view):
        yield Start(Draft(Role.WEAK, ()))
        yield Start(Draft(Role.WEAK, ()))

    with pytest.raises(ValueError, match="simulate them"):
        run(play)


def test_carried_steps_follow_an_accepted_segment():
    def play(_view):
        segment = yield from drafted(3)
        yield Verify(Role.STRONG, segment[:1])
        return Commit(segment[:1], carried=segment[2:])

    with pytest.raises(ValueError, match="right behind"):
        run(play)


def test_a_written_step_cannot_take_over_a_held_draft():
    def play(_view):
        writing = yield Start(Write(Role.STRONG))
        guess = yield Draft(Role.WEAK, ())
        done = yield Wait((writing,))
        yield Reuse(done.answer, guess)

    with pytest.raises(HoldViolation, match="no free draft"):
        run(play, (Effect.WRITE,) * 3)
