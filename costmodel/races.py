"""Rounds in which the models work at the same time, as trees of what may happen.

Which work ends first depends on the prices, what a verdict says on chance. A round from a given state is therefore a
tree: stretches of orders, and choices between them. It is grown as far as some price or chance has needed, by replaying
the strategy, and kept: `costmodel.race_expect` walks it for any factors and any acceptance.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from costmodel.acceptance import AcceptanceLaw
from costmodel.draws import Draws
from costmodel.ledger import Row, work_shares
from costmodel.orders import Await, Begin, Came, Halt, Look
from costmodel.pricing import Pricing
from costmodel.protocol import Strategy
from costmodel.request import RequestPlan
from costmodel.round_result import Carry, RoundResult
from costmodel.rounds import play_round
from costmodel.session import EngineRequest, ProtocolSizes, Session, State, Work
from costmodel.task import Task


class Deed(NamedTuple):
    """Something that happens whatever the choice before: `kind` is do, begin or halt."""

    kind: str
    number: int
    work: Work | None = None
    plan: RequestPlan | None = None


class Choice(NamedTuple):
    """What happens next is open.

    `kind` is first (`data`: the works raced, outcome (number, waited)), verdict (`data`: (first step, length), outcome:
    accepted steps), match (`data`: step, outcome: bool) or toss (`data`: share, outcome: bool).
    """

    kind: str
    data: Any


@dataclass(slots=True, eq=False)
class Leaf:
    """The end of a round: its result, its works with their plans, and the state it leaves."""

    result: RoundResult
    jobs: tuple[tuple[Work, RequestPlan | None], ...]
    after: State
    prepared: Any = None


@dataclass(slots=True, eq=False)
class Branch:
    """A stretch of a round up to its next choice or its end."""

    script: tuple[Hashable, ...]
    deeds: list[Deed] = field(default_factory=list)
    choice: Choice | None = None
    leaf: Leaf | None = None
    children: dict[Hashable, Branch] = field(default_factory=dict)
    suspended: _Replay | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Race:
    """A strategy with overlapping work, over a set of tasks; `pricing` gives cache rules and row shapes only.

    `roots` are the trees grown so far, `rows` the rows that their works need.
    """

    playing: Strategy
    tasks: tuple[Task, ...]
    law: AcceptanceLaw
    pricing: Pricing
    sizes: ProtocolSizes
    roots: dict[tuple[int, State, Carry], Branch] = field(default_factory=dict)
    rows: dict[Row, None] = field(default_factory=dict)

    @property
    def strategy(self) -> str:
        """Name of the strategy."""
        return self.playing.name

    @property
    def n_tasks(self) -> int:
        """Tasks that expectations are means over."""
        return len(self.tasks)

    def flat(self) -> Race:
        """The same with every step accepted alike."""
        return replace(self, law=AcceptanceLaw())

    def start(self, task: int) -> State:
        """The state in which a task begins."""
        return Session(self.tasks[task], self.pricing.rules, self.sizes).state

    def root(self, task: int, state: State, carry: Carry) -> Branch:
        """The tree of the round that begins in a state."""
        key = (task, state, carry)
        if key not in self.roots:
            self.roots[key] = _Replay(self, key, deque(), Branch(())).root
        return self.roots[key]

    def child(self, task: int, state: State, carry: Carry, branch: Branch, outcome: Hashable) -> Branch:
        """The stretch behind an outcome of a branch's choice."""
        found = branch.children.get(outcome)
        if found is not None:
            return found
        found = branch.children[outcome] = Branch((*branch.script, outcome))
        if branch.suspended is not None:
            replay, branch.suspended = branch.suspended, None
            replay.resume(outcome, found)
        else:
            _Replay(self, (task, state, carry), deque(found.script), self.roots[task, state, carry])
        return found


class _Replay:
    """A round being replayed along a script of outcomes; past its end it grows the tree, up to the next race."""

    def __init__(self, race: Race, key: tuple[int, State, Carry], script: deque[Hashable], root: Branch) -> None:
        task, state, carry = key
        self.race, self.script, self.root, self.at = race, script, root, root
        self.growing = not script
        self.session = Session(race.tasks[task], race.pricing.rules, race.sizes, state)
        self.jobs: list[tuple[Work, RequestPlan | None]] = []
        self.game = play_round(self.session, race.playing, Draws(self._verdict, self._match, self._toss), carry)
        self._go(None)

    def resume(self, outcome: Any, child: Branch) -> None:
        """Go on from a race that was left open."""
        self.at = child
        self._go(self._came(outcome))

    def _go(self, answer: object) -> None:
        while True:
            try:
                order = self.game.send(answer)
            except StopIteration as stop:
                self.at.leaf = Leaf(stop.value, tuple(self.jobs), self.session.state)
                return
            answer = None
            match order:
                case Await(numbers):
                    if not self.script:
                        self.at.choice = Choice("first", numbers)
                        self.at.suspended = self
                        return
                    answer = self._came(self._follow())
                case Begin(number, work):
                    self._note(Deed("begin", number, work, self._planned(work)))
                case Halt(number):
                    self._note(Deed("halt", number))
                case Look():
                    raise TypeError(f"{self.race.strategy} looks at the clock")
                case _:
                    deed = Deed("do", len(self.jobs), order, self._planned(order))
                    self._note(deed)
                    answer = deed.plan

    def _planned(self, work: Work) -> RequestPlan | None:
        plan = self.race.pricing.plan(work) if isinstance(work, EngineRequest) else None
        self.jobs.append((work, plan))
        shape = self.race.pricing.shapes[work.role] if isinstance(work, EngineRequest) else None
        for share in work_shares(work, plan, shape, wasted=False):
            self.race.rows[share.row] = None
        return plan

    def _note(self, deed: Deed) -> None:
        if self.growing:
            self.at.deeds.append(deed)

    def _came(self, outcome: Any) -> Came:
        number, waited = outcome
        return Came(number, waited, self.jobs[number][1])

    def _follow(self) -> Any:
        outcome = self.script.popleft()
        self.at = self.at.children[outcome]
        self.growing = not self.script
        return outcome

    def _draw(self, choice: Choice, usual: Hashable) -> Any:
        """The scripted outcome; past the script the usual one, whose branch is grown at once."""
        if self.script:
            return self._follow()
        self.at.choice = choice
        child = self.at.children[usual] = Branch((*self.at.script, usual))
        self.at = child
        return usual

    def _verdict(self, start: int, n: int) -> int:
        return int(self._draw(Choice("verdict", (start, n)), n))

    def _match(self, index: int) -> bool:
        return bool(self._draw(Choice("match", index), usual=True))

    def _toss(self, _index: int, share: float) -> bool:
        return bool(self._draw(Choice("toss", share), usual=True))
