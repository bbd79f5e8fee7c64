"""What must hold on every path of every strategy, and that a strategy which breaks it is stopped."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.cost import COLUMNS, PHASES
from costmodel.deployment import deploy
from costmodel.guard import HoldViolation
from costmodel.pricing import NetworkLink, Pricing, Site
from costmodel.protocol import CallTool, Commit, Draft, Repair, Role, Verify, Write
from costmodel.rounds import play_round
from costmodel.session import EngineRequest, ProtocolSizes, Session, ToolRun
from costmodel.strategies import strategy
from costmodel.task import Task, TaskStep
from costmodel.trajectory import RUNS_FREELY, Effect
from costmodel.walk import forced, walk

WALL = COLUMNS.index("wall_s")
PRICING = Pricing(
    {
        Role.WEAK: Site(server=deploy("Qwen/Qwen3-0.6B", "h200")),
        Role.STRONG: Site(server=deploy("Qwen/Qwen3.5-4B", "h200"), link=NetworkLink(rtt_s=0.05, bytes_per_s=1e6)),
    }
)


def make_step(index, effect, tool_s=0.25):
    return TaskStep(index, effect, 20, 30, 60, 80, tool_s)


def make_task(effects):
    return Task("t", ((Role.WEAK, 700), (Role.STRONG, 900)), 0, tuple(make_step(i, e) for i, e in enumerate(effects)))


effects = st.lists(st.sampled_from(list(Effect)), min_size=1, max_size=9)
bits = st.lists(st.booleans(), min_size=9, max_size=9)
windows = st.integers(1, 5)
modes = st.sampled_from(["fresh", "continue"])


def is_held(effect):
    return effect not in (Effect.READ, Effect.PURE)


@given(effects, bits, windows, modes)
def test_rounds_of_spec_agent_keep_the_protocol(drawn, accept, window, mode):
    task = make_task(drawn)
    path = walk(task, strategy("spec_agent", window), forced(accept), PRICING, ProtocolSizes(40, 6, mode))
    at = 0
    for r in path.rounds:
        kinds = [w.kind if isinstance(w, EngineRequest) else "tool" for w in r.works]
        # committed steps are the next ones of the task, at least one
        assert [s.index for s in r.committed] == list(range(at, at + len(r.committed)))
        assert r.committed
        # one review, at most one repair, which commits the step after the accepted prefix
        assert kinds.count("verify") == 1
        assert kinds.count("repair") == (r.written_by is not None) <= 1
        assert len(r.committed) == r.accepted + kinds.count("repair")
        # the segment: at most a window, ended by the first held step, never beyond the task
        drafted = [w.step for w in r.works if isinstance(w, EngineRequest) and w.kind == "draft"]
        assert drafted == list(range(at, at + r.drafted))
        assert r.drafted <= window
        assert all(not is_held(drawn[j]) for j in drafted[:-1])
        assert r.drafted == window or is_held(drawn[drafted[-1]]) or drafted[-1] == len(drawn) - 1
        # the verdict is the first refused bit
        assert r.accepted == next((m for m in range(r.drafted) if not accept[at + m]), r.drafted)
        verify_at = kinds.index("verify")
        for i, work in enumerate(r.works):
            if not isinstance(work, ToolRun):
                continue
            offset = work.step - at
            if is_held(drawn[work.step]):
                # a held step runs after the verdict, when accepted or repaired, and so is never wasted
                assert i > verify_at
                assert offset < len(r.committed)
                assert not r.wasted[i]
                assert offset < r.accepted or kinds.index("repair") < i
            elif i < verify_at:
                assert r.wasted[i] == (offset >= r.accepted)
        # reads of discarded steps have run and are charged as waste; drafts too
        ran_before = [w.step for i, w in enumerate(r.works) if isinstance(w, ToolRun) and i < verify_at]
        assert ran_before == [j for j in drafted if not is_held(drawn[j])]
        wasted_drafts = [w.step for w, x in zip(r.works, r.wasted, strict=True) if x and isinstance(w, EngineRequest)]
        assert wasted_drafts == drafted[r.accepted :]
        at += len(r.committed)
    assert at == len(drawn)
    # every step's tools ran for the task exactly once, whatever was tried before
    kept = [
        w.step for r in path.rounds for w, x in zip(r.works, r.wasted, strict=True) if isinstance(w, ToolRun) and not x
    ]
    assert sorted(kept) == list(range(len(drawn)))


@given(
    effects,
    bits,
    st.sampled_from([("strong_only", 1), ("weak_only", 1), ("step_verification", 1), ("spec_agent", 3)]),
    modes,
)
def test_ledgers_sum_and_events_tile_the_wall(drawn, accept, which, mode):
    path = walk(make_task(drawn), strategy(*which), forced(accept), PRICING, ProtocolSizes(40, 6, mode))
    assert path.ledger.shape == (len(PHASES), len(COLUMNS))
    assert (path.ledger >= 0).all()
    assert np.isfinite(path.ledger).all()
    end = path.events[-1].end_s
    assert path.wall_s == pytest.approx(end, rel=1e-12)
    assert path.column("wall_s") == path.wall_s
    at = 0.0
    for event in path.events:
        assert event.start_s == at
        assert event.end_s > event.start_s
        at = event.end_s
    for phase in PHASES:
        seconds = sum(e.end_s - e.start_s for e in path.events if e.phase == phase)
        assert seconds == pytest.approx(path.ledger[PHASES.index(phase), WALL], rel=1e-9, abs=1e-12)
    # engines are busy for all of the wall time that is not host, tool or network
    busy = path.column("busy_s")
    other = sum(path.ledger[PHASES.index(p), WALL] for p in ("host", "tool", "wasted_tool", "network"))
    assert busy + other == pytest.approx(path.wall_s)


@given(effects, bits, windows)
def test_tool_time_is_the_task_s_and_waste_is_apart(drawn, accept, window):
    path = walk(make_task(drawn), strategy("spec_agent", window), forced(accept), PRICING, ProtocolSizes(40, 6))
    assert path.ledger[PHASES.index("tool"), WALL] == pytest.approx(0.25 * len(drawn))
    n_wasted = sum(x and isinstance(w, ToolRun) for r in path.rounds for w, x in zip(r.works, r.wasted, strict=True))
    assert path.ledger[PHASES.index("wasted_tool"), WALL] == pytest.approx(0.25 * n_wasted)


def test_unknown_is_held():
    assert Effect.UNKNOWN not in RUNS_FREELY
    assert {Effect.READ, Effect.PURE} == RUNS_FREELY


# -- strategies that misbehave --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bad:
    """A strategy made of one function."""

    play: object
    name: str = "bad"

    def round(self, view):
        return self.play(view)


def run(play, drawn=(Effect.READ, Effect.WRITE, Effect.READ), accept=(True, True, True)):
    session = Session(make_task(drawn), PRICING.rules, ProtocolSizes(40, 6))
    game, plan = play_round(session, Bad(play), forced(accept)), None
    while True:
        try:
            work = game.send(plan)
        except StopIteration as stop:
            return stop.value
        plan = PRICING.plan(work) if isinstance(work, EngineRequest) else None


def draft(segment):
    step = yield Draft(Role.WEAK, segment)
    return (*segment, step)


def draft_and_run(n):
    segment = ()
    for _ in range(n):
        segment = yield from draft(segment)
        if segment[-1].effect in RUNS_FREELY:
            yield CallTool(segment[-1])
    return segment


def test_a_held_step_cannot_run_before_its_verdict():
    def play(_view):
        segment = yield from draft_and_run(2)
        yield CallTool(segment[-1])

    with pytest.raises(HoldViolation, match="held until a verdict"):
        run(play)


@pytest.mark.parametrize("effect", [Effect.WRITE, Effect.REPLY, Effect.UNKNOWN])
def test_every_held_effect_is_held(effect):
    def play(_view):
        segment = yield from draft(())
        yield CallTool(segment[0])

    with pytest.raises(HoldViolation):
        run(play, (effect,))


def test_nothing_can_follow_a_held_step_in_a_segment():
    def play(_view):
        segment = yield from draft_and_run(2)
        yield from draft(segment)  # would need the observation of a write that has not happened

    with pytest.raises(HoldViolation, match="has not run"):
        run(play)


def test_a_read_must_run_before_its_observation_is_reviewed():
    def play(_view):
        segment = yield from draft(())
        yield Verify(Role.STRONG, segment)

    with pytest.raises(HoldViolation, match="has not run"):
        run(play)


def test_only_drafted_steps_can_be_reviewed():
    def nothing(_view):
        yield Verify(Role.STRONG, ())

    def too_many(_view):
        segment = yield from draft_and_run(1)
        yield Verify(Role.STRONG, (*segment, *segment))

    for play in (nothing, too_many):
        with pytest.raises(ValueError, match="cannot be reviewed"):
            run(play)


def test_drafts_cannot_be_committed_unreviewed():
    def play(_view):
        segment = yield from draft_and_run(1)
        return Commit(segment)

    with pytest.raises(ValueError, match="0 steps are accepted"):
        run(play)


def test_a_refused_step_cannot_be_committed():
    def play(_view):
        segment = yield from draft_and_run(2)
        yield Verify(Role.STRONG, segment)
        return Commit(segment)

    with pytest.raises(ValueError, match="1 steps are accepted, 2 came"):
        run(play, accept=(True, False, True))


def test_a_round_commits_a_prefix():
    def play(_view):
        segment = yield from draft_and_run(2)
        yield Verify(Role.STRONG, segment)
        return Commit(segment[1:])

    with pytest.raises(ValueError, match="prefix of its segment"):
        run(play)


def test_a_round_commits_something():
    def play(_view):
        segment = yield from draft_and_run(1)
        yield Verify(Role.STRONG, segment)
        return Commit(())

    with pytest.raises(ValueError, match="must commit between 1 step"):
        run(play)


def test_a_round_repairs_once():
    def play(_view):
        segment = yield from draft_and_run(1)
        verdict = yield Verify(Role.STRONG, segment)
        yield Repair(Role.STRONG, segment, verdict.accepted)
        yield Repair(Role.STRONG, segment, verdict.accepted)

    with pytest.raises(ValueError, match="at most one step"):
        run(play, accept=(False, True, True))


def test_a_repair_needs_a_verdict():
    def play(_view):
        segment = yield from draft_and_run(1)
        yield Repair(Role.STRONG, segment, 0)

    with pytest.raises(ValueError, match="needs a verdict"):
        run(play)


def test_a_repair_stands_on_accepted_steps():
    def play(_view):
        segment = yield from draft_and_run(2)
        yield Verify(Role.STRONG, segment)
        yield Repair(Role.STRONG, segment, 1)

    with pytest.raises(ValueError, match="needs a verdict that accepts"):
        run(play, accept=(False, True, True))


def test_committing_less_than_was_accepted_is_allowed_and_the_rest_is_waste():
    def play(_view):
        segment = yield from draft_and_run(2)
        yield Verify(Role.STRONG, segment)
        return Commit(segment[:1])

    result = run(play)
    assert [s.index for s in result.committed] == [0]
    assert result.accepted == 1
    wasted = [w.step for w, x in zip(result.works, result.wasted, strict=True) if x]
    assert wasted == [1]  # the second draft; it was a write and has not run


def test_a_written_step_may_be_a_write():
    def play(_view):
        step = yield Write(Role.STRONG)
        return Commit((step,))

    result = run(play, (Effect.WRITE,))
    assert [type(w) for w in result.works] == [EngineRequest, ToolRun]
    assert result.written_by is Role.STRONG
    assert not result.repaired


def test_what_is_no_request_is_refused():
    def play(_view):
        yield "draft something"

    with pytest.raises(TypeError, match="not a request"):
        run(play)


def test_a_view_ends_with_the_task():
    seen = []

    def play(view):
        segment = ()
        while not view.ended(segment):
            segment = yield from draft(segment)
            yield CallTool(segment[-1])
        seen.append(len(segment))
        yield Verify(Role.STRONG, segment)
        return Commit(segment)

    result = run(play, (Effect.READ,) * 3)
    assert seen == [3]
    assert len(result.committed) == 3
    assert replace(result).drafted == 3
