"""A strategy's rounds compiled into a table of rows, free of any hardware: what `expect` weighs and prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from costmodel.acceptance import AcceptanceLaw
from costmodel.cost import COLUMNS, PHASES
from costmodel.draws import Draws, VerdictRule
from costmodel.ledger import Row, work_shares
from costmodel.orders import Await, Begin, Halt, Look
from costmodel.pricing import Pricing
from costmodel.protocol import Role, Strategy
from costmodel.request import RequestPlan
from costmodel.round_result import COUNTS, START, Carry, RoundResult, round_counts
from costmodel.rounds import play_round
from costmodel.session import EngineRequest, ProtocolSizes, Session, State, Work
from costmodel.task import Task
from hwprofiles.errors import InputError

Array = np.ndarray[Any, np.dtype[np.float64]]
Indices = np.ndarray[Any, np.dtype[np.int64]]

_Node = tuple[State, Carry]
"""All that the rest of a trajectory depends on."""


@dataclass(frozen=True, slots=True)
class Tape:
    """A strategy's hardware-free tape over a set of tasks.

    Parameters
    ----------
    rows : distinct rows; `entries` (n_entries, 2) pairs of (row, phase) indices
    use : sparse (n_branches, n_entries), how many of each entry a branch needs
    counts : (n_branches, len(COUNTS))
    levels : for each committed index, (branches, from_node, to_node) arrays; node -1 is the end
    reviews : for each segment length n, (first branch (n_nodes,), logit offsets (n_nodes, n))
    coins : first branch (n_nodes,) and chance (n_nodes,) of nodes with a coin; the other side's branch follows
    sure : branches taken with certainty from their node
    """

    strategy: str
    n_tasks: int
    n_nodes: int
    n_branches: int
    starts: Indices
    rows: tuple[Row, ...]
    entries: Indices
    use: Any
    counts: Array
    levels: tuple[tuple[Indices, Indices, Indices], ...]
    reviews: Mapping[int, tuple[Indices, Array]]
    coins: tuple[Indices, Array]
    sure: Indices

    def flat(self) -> Tape:
        """The same with every step accepted alike."""
        return replace(self, reviews={n: (first, np.zeros_like(at)) for n, (first, at) in self.reviews.items()})


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected ledger per trajectory (mean over tasks).

    `ledger` is an array (n_samples, len(PHASES), len(COLUMNS)), `counts` (n_samples, len(COUNTS)), `busy_s` the engine
    seconds of each role (n_samples,).
    """

    strategy: str
    ledger: Array
    counts: Array
    busy_s: Mapping[Role, Array]

    def column(self, name: str) -> Array:
        """Total of a ledger column, per sample."""
        return np.asarray(self.ledger[:, :, COLUMNS.index(name)].sum(axis=1))

    def count(self, name: str) -> Array:
        """A count, per sample."""
        return np.asarray(self.counts[:, COUNTS.index(name)])


class _Compiler:
    """Collects nodes, branches and rows while rounds are replayed."""

    def __init__(self, strategy: Strategy, law: AcceptanceLaw, pricing: Pricing, sizes: ProtocolSizes) -> None:
        self.strategy, self.law, self.pricing, self.sizes = strategy, law, pricing, sizes
        self.n_nodes = 0
        self.entry_ids: dict[tuple[Row, str], int] = {}
        self.uses: dict[tuple[Work, bool], tuple[list[int], list[float]]] = {}
        self.coo: tuple[list[int], list[int], list[float]] = ([], [], [])
        self.counts: list[tuple[float, ...]] = []
        self.by_level: dict[int, list[tuple[int, int, int]]] = {}
        self.coins: tuple[list[int], list[float]] = ([], [])
        self.reviews: dict[int, tuple[list[int], list[list[float]]]] = {}
        self.sure: list[int] = []

    def add_task(self, task: Task) -> int:
        """Replay every reachable round of a task; returns its first node."""
        first = (Session(task, self.pricing.rules, self.sizes).state, START)
        nodes = {first: self._new_node()}
        pending = [first]
        while pending:
            node = min(pending, key=lambda n: n[0][0])
            pending.remove(node)
            for branch, after in self._branches(task, node):
                to = -1
                if after[0][0] < len(task.steps):
                    if after not in nodes:
                        nodes[after] = self._new_node()
                        pending.append(after)
                    to = nodes[after]
                self.by_level.setdefault(node[0][0], []).append((branch, nodes[node], to))
        return nodes[first]

    def _new_node(self) -> int:
        self.n_nodes += 1
        return self.n_nodes - 1

    def _branches(self, task: Task, node: _Node) -> list[tuple[int, _Node]]:
        """All that chance may do in the round from a node: one verdict or one coin at most."""
        asked: list[tuple[int, float]] = []

        def all_valid(_start: int, n: int) -> int:
            asked.append((n, 0.0))
            return n

        def heads(_index: int, share: float) -> bool:
            if 0 < share < 1:
                asked.append((0, share))
            return share > 0

        full = self._replay(task, node, Draws(all_valid, _never, heads))
        if not asked:
            self.sure.append(full[0])
            return [full]
        if len(asked) > 1:
            raise ValueError(f"{self.strategy.name}: more than one draw in a round")
        n, share = asked[0]
        if share:
            self.coins[0].append(full[0])
            self.coins[1].append(share)
            return [full, self._replay(task, node, Draws(all_valid, _never, lambda _i, s: s >= 1))]
        partial = [self._replay(task, node, Draws(_accepting(a), _never, heads)) for a in range(n)]
        branches, offsets = self.reviews.setdefault(n, ([], []))
        branches.append(full[0])
        at = node[0][0]
        offsets.append([self.law.offset(m, task.steps[at + m].effect) for m in range(n)])
        return [full, *partial]

    def _use(self, work: Work, plan: RequestPlan | None, wasted: bool) -> tuple[list[int], list[float]]:
        """Entries that a work needs and how many of each; an idle engine's plan follows from the work."""
        found = self.uses.get((work, wasted))
        if found is None:
            shape = self.pricing.shapes[work.role] if isinstance(work, EngineRequest) else None
            shares = work_shares(work, plan, shape, wasted=wasted)
            ids = [self.entry_ids.setdefault((s.row, s.phase), len(self.entry_ids)) for s in shares]
            found = self.uses[work, wasted] = (ids, [s.count for s in shares])
        return found

    def _replay(self, task: Task, node: _Node, draws: Draws) -> tuple[int, _Node]:
        session = Session(task, self.pricing.rules, self.sizes, node[0])
        result, plans = play(session, self.strategy, draws, self.pricing, node[1])
        branch = len(self.counts)
        self.counts.append(round_counts(result))
        which, entry, amount = self.coo
        for work, plan, wasted in zip(result.works, plans, result.wasted, strict=True):
            entries, amounts = self._use(work, plan, bool(wasted))
            which += [branch] * len(entries)
            entry += entries
            amount += amounts
        return branch, (session.state, result.carry)


def play(
    session: Session, strategy: Strategy, draws: Draws | VerdictRule, pricing: Pricing, carry: Carry = START
) -> tuple[RoundResult, list[RequestPlan | None]]:
    """One round that does one thing at a time, on idle engines: the result, and the plan each work followed.

    Raises
    ------
    InputError
        The strategy looks at the clock, so what it does is not known without one.
    """
    plans: list[RequestPlan | None] = []
    game = play_round(session, strategy, draws, carry)
    plan: RequestPlan | None = None
    while True:
        try:
            order = game.send(plan)
        except StopIteration as stop:
            return stop.value, plans
        if isinstance(order, Look):
            raise InputError(
                f"{strategy.name} chooses by elapsed time, so its expectation is not available: simulate it, "
                'or set protocol.adaptive_rule = "counts"'
            )
        if isinstance(order, Begin | Await | Halt):
            raise TypeError(f"{strategy.name} does several things at once: costmodel.races")
        plan = pricing.plan(order) if isinstance(order, EngineRequest) else None
        plans.append(plan)


def _accepting(n_steps: int) -> VerdictRule:
    return lambda _start, _length: n_steps


def _never(_index: int) -> bool:
    return False


def compile_rounds(
    strategy: Strategy, tasks: Sequence[Task], law: AcceptanceLaw, pricing: Pricing, sizes: ProtocolSizes
) -> Tape:
    """Replay a strategy over all reachable states of all tasks.

    `pricing` supplies cache rules and row shapes only: a tape holds no seconds, so it serves any factors and any
    acceptance of the same law's shape.
    """
    from scipy.sparse import coo_array

    c = _Compiler(strategy, law, pricing, sizes)
    starts = [c.add_task(t) for t in tasks]
    row_ids: dict[Row, int] = {}
    entries = [(row_ids.setdefault(row, len(row_ids)), PHASES.index(phase)) for row, phase in c.entry_ids]
    which, entry, amount = c.coo
    use = coo_array((amount, (which, entry)), shape=(len(c.counts), len(entries))).tocsr()
    levels = tuple(
        (table[:, 0], table[:, 1], table[:, 2]) for table in (np.array(c.by_level[i]) for i in sorted(c.by_level))
    )
    reviews = {n: (np.array(b), np.array(o)) for n, (b, o) in c.reviews.items()}
    return Tape(
        strategy.name,
        len(tasks),
        c.n_nodes,
        len(c.counts),
        np.array(starts),
        tuple(row_ids),
        np.array(entries),
        use,
        np.array(c.counts),
        levels,
        reviews,
        (np.array(c.coins[0], dtype=int), np.array(c.coins[1])),
        np.array(c.sure, dtype=int),
    )
