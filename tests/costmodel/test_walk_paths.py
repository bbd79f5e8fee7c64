"""Walks: verdicts from bits, events on lanes, and going on from a state."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.cost import COLUMNS, PHASES
from costmodel.deployment import deploy
from costmodel.pricing import NetworkLink, Pricing, Site
from costmodel.protocol import Role
from costmodel.session import ProtocolSizes, Session
from costmodel.strategies import STRATEGY_NAMES, strategy
from costmodel.tape import play
from costmodel.task import Task, TaskStep
from costmodel.trajectory import Effect
from costmodel.walk import forced, walk
from hwprofiles import InputError

PRICING = Pricing(
    {
        Role.WEAK: Site(server=deploy("Qwen/Qwen3.5-4B", "h200")),
        Role.STRONG: Site(server=deploy("Qwen/Qwen3-8B", "h200"), link=NetworkLink(rtt_s=0.1, bytes_per_s=1e6)),
    }
)
EFFECTS = [Effect.READ, Effect.READ, Effect.WRITE, Effect.READ, Effect.REPLY]
TASK = Task(
    "t",
    ((Role.WEAK, 1500), (Role.STRONG, 1500)),
    0,
    tuple(TaskStep(i, e, 40, 60, 90, 200, 0.5) for i, e in enumerate(EFFECTS)),
)
SIZES = ProtocolSizes()


def test_bits_accept_up_to_the_first_false():
    verdict = forced([True, True, False, True])
    assert verdict(0, 2) == 2
    assert verdict(0, 4) == 2
    assert verdict(1, 2) == 1
    assert verdict(2, 1) == 0
    assert verdict(3, 1) == 1


def test_a_walk_by_hand():
    path = walk(TASK, strategy("spec_agent", 4), forced([True, False, True, True, True]), PRICING, SIZES)
    # reads 0 and 1 and write 2 drafted, 1 refused and repaired; then the write; then read and reply
    assert [(r.drafted, r.accepted, r.repaired) for r in path.rounds] == [(3, 1, True), (1, 1, False), (2, 2, False)]
    lanes = [e.lane for e in path.events if e.round == 0 and e.phase != "host"]
    assert set(lanes) == {"weak", "tools", "strong", "network"}
    assert [e.step for e in path.events if e.phase == "repair_decode"] == [1]
    # tools: 5 kept, and the refused read's
    tools = [PHASES.index(p) for p in ("tool", "wasted_tool")]
    np.testing.assert_allclose(path.ledger[tools, COLUMNS.index("wall_s")], [2.5, 0.5])


def test_a_walk_can_go_on_from_the_state_between_rounds():
    bits = forced([True, False, True, True, True])
    which = strategy("spec_agent", 4)
    session = Session(TASK, PRICING.rules, SIZES)
    play(session, which, bits, PRICING)
    whole = walk(TASK, which, bits, PRICING, SIZES)
    rest = walk(TASK, which, bits, PRICING, SIZES, session.state)
    assert len(rest.rounds) == len(whole.rounds) - 1
    for a, b in zip(rest.rounds, whole.rounds[1:], strict=True):
        assert a == b


@pytest.mark.parametrize("name", STRATEGY_NAMES)
def test_every_strategy_finishes_the_task(name):
    path = walk(TASK, strategy(name), forced([False, True, False, True, True]), PRICING, SIZES)
    assert [s.index for r in path.rounds for s in r.committed] == list(range(5))


def test_step_verification_is_a_window_of_one():
    bits = forced([True, False, True, False, True])
    one, other = (
        walk(TASK, which, bits, PRICING, SIZES) for which in (strategy("step_verification"), strategy("spec_agent", 1))
    )
    np.testing.assert_array_equal(one.ledger, other.ledger)


def test_unknown_strategies_and_empty_windows_are_refused():
    with pytest.raises(InputError, match="did you mean 'spec_agent'"):
        strategy("specagent")
    with pytest.raises(InputError, match="window must be >= 1, got 0"):
        strategy("spec_agent", 0)
