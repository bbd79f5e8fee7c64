"""The expectation of a strategy whose models work at the same time: every path priced, for all samples at once.

A sample of the factors decides every race, so at each one the samples part; chance parts their weight. The state
between rounds is what both caches hold, what the strategy carries on with its works yet unjudged, and how long a
cancelled request still holds its engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from costmodel.acceptance import expit
from costmodel.clock import Clock, Consumed, Rates, Running, cut_shares
from costmodel.cost import COLUMNS, PHASES
from costmodel.ledger import Row, Share, work_shares
from costmodel.pricing import WALL, Pricing
from costmodel.protocol import Role
from costmodel.races import Branch, Leaf, Race
from costmodel.request import RequestPlan
from costmodel.round_result import COUNTS, START, Carry, round_counts
from costmodel.session import EngineRequest, State, Work
from costmodel.tape import Array, Expected

_Open = tuple[tuple[Work, RequestPlan | None, bool], ...]
"""Works yet unjudged, with their plans, and whether they are on the critical path."""


class _Node(NamedTuple):
    """Where a round begins; `held` keeps apart histories that leave an engine busy."""

    state: State
    carry: Carry
    open: _Open
    held: tuple[tuple[Role, bytes], ...]


@dataclass(slots=True)
class _Path:
    """A round in progress for some samples, each with its weight."""

    branch: Branch
    clock: Clock
    weight: Array
    begun: dict[int, Running] = field(default_factory=dict)
    cuts: list[tuple[Running, Consumed]] = field(default_factory=list)

    def fork(self, branch: Branch, weight: Array) -> _Path:
        return _Path(branch, self.clock.copy(), weight, dict(self.begun), list(self.cuts))


class _Prepared(NamedTuple):
    """Entries and counts of a leaf that do not depend on prices."""

    entries: list[int]
    amounts: list[float]
    counts: Array
    open: _Open


@dataclass(slots=True)
class _Books:
    """Sums over all paths: visits of entry lists with their weights, and what only a path's own times tell."""

    n: int
    ids: dict[tuple[Row, str, bool], int] = field(default_factory=dict)
    visits: tuple[list[int], list[int], list[float]] = field(default_factory=lambda: ([], [], []))
    weights: list[Array] = field(default_factory=list)
    counts: Array = field(default_factory=lambda: np.zeros((0, 0)))
    queue_s: Array = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        self.counts, self.queue_s = np.zeros((self.n, len(COUNTS))), np.zeros(self.n)

    def entry(self, share: Share, on_path: bool) -> int:
        return self.ids.setdefault((share.row, share.phase, on_path), len(self.ids))

    def add(self, entries: list[int], amounts: list[float], weight: Array) -> None:
        """Book entries with a weight per sample."""
        at, which, amount = self.visits
        at += [len(self.weights)] * len(entries)
        which += entries
        amount += amounts
        self.weights.append(weight)

    def add_shares(self, shares: tuple[Share, ...], weight: Array, *, on_path: bool) -> None:
        self.add([self.entry(s, on_path) for s in shares], [s.count for s in shares], weight)


def expect_race(race: Race, shift: Any, pricing: Pricing, match: Any) -> Expected:
    """Expected ledger of overlapping strategies at given acceptance shifts, match probabilities and prices.

    Parameters are those of `costmodel.expect.expect`.
    """
    return _Expectation(race, np.atleast_1d(np.asarray(shift, float)), pricing, np.asarray(match, float)).run()


class _Expectation:
    """One call of `expect_race`."""

    def __init__(self, race: Race, shift: Array, pricing: Pricing, match: Array) -> None:
        samples = {np.shape(v)[0] for v in pricing.factors.values() if np.ndim(v)}
        self.n = max([len(shift), match.size, *samples])
        self.race, self.pricing = race, pricing
        self.shift = np.broadcast_to(shift, self.n)
        self.match = np.broadcast_to(match, self.n)
        self.units: dict[Row, Array] = {}
        self.times: dict[tuple[Work, RequestPlan | None], Array] = {}
        self.rates = Rates(self._unit_s, pricing.shapes, self.times)
        self.books = _Books(self.n)
        self.fates: dict[tuple[Work, RequestPlan | None, bool, bool], tuple[list[int], list[float]]] = {}

    def run(self) -> Expected:
        for task in range(self.race.n_tasks):
            self._task(task)
        return self._total()

    def _unit_s(self, row: Row) -> Array:
        found = self.units.get(row)
        if found is None:
            new = [row, *(r for r in self.race.rows if r not in self.units and r != row)]
            seconds = np.atleast_2d(self.pricing.rows(new)[WALL])
            self.units |= {r: np.broadcast_to(seconds[:, i], self.n) for i, r in enumerate(new)}
            found = self.units[row]
        return found

    def _task(self, task: int) -> None:
        steps = len(self.race.tasks[task].steps)
        levels: dict[int, dict[_Node, tuple[Array, dict[Role, Array]]]] = {i: {} for i in range(steps)}
        levels[0][_Node(self.race.start(task), START, (), ())] = (np.full(self.n, 1.0 / self.race.n_tasks), {})
        for level in range(steps):
            for node, (weight, free_s) in levels[level].items():
                for after, more, held in self._round(task, node, weight, free_s):
                    if after.state[0] < steps:
                        known, _ = levels[after.state[0]].get(after, (0.0, held))
                        levels[after.state[0]][after] = (known + more, held)
            levels[level] = {}

    def _round(
        self, task: int, node: _Node, weight: Array, free_s: dict[Role, Array]
    ) -> Iterator[tuple[_Node, Array, dict[Role, Array]]]:
        root = self.race.root(task, node.state, node.carry)
        pending = [_Path(root, Clock(self.rates, np.zeros(self.n), free_s), weight)]
        while pending:
            path = pending.pop()
            self._live(path)
            if path.branch.leaf is not None:
                yield self._end(path, path.branch.leaf, node)
                continue
            for outcome, part in self._outcomes(task, path):
                if part.any():
                    child = self.race.child(task, node.state, node.carry, path.branch, outcome)
                    fork = path.fork(child, part)
                    if path.branch.choice is not None and path.branch.choice.kind == "first":
                        fork.clock.end(outcome[0])
                    pending.append(fork)

    def _live(self, path: _Path) -> None:
        """Let everything happen that does not depend on the next choice."""
        for deed in path.branch.deeds:
            if deed.kind == "halt":
                path.cuts.append(path.clock.halt(deed.number))
                path.begun.pop(deed.number)
                continue
            assert deed.work is not None
            path.begun[deed.number] = path.clock.begin(deed.number, deed.work, deed.plan)
            if deed.kind == "do":
                path.clock.end(deed.number)

    def _outcomes(self, task: int, path: _Path) -> Iterator[tuple[Any, Array]]:
        """Outcomes of a branch's choice, and the weight of each sample that goes there."""
        choice = path.branch.choice
        assert choice is not None
        match choice.kind:
            case "first":
                ends = np.array([np.broadcast_to(path.clock.running[i].end_s, self.n) for i in choice.data])
                now_s = path.clock.now_s
                first = np.maximum(ends, now_s).argmin(axis=0)
                for k, number in enumerate(choice.data):
                    later = ends[k] > now_s
                    yield (number, True), path.weight * ((first == k) & later)
                    yield (number, False), path.weight * ((first == k) & ~later)
            case "verdict":
                start, n = choice.data
                left = path.weight
                steps = self.race.tasks[task].steps
                for m in range(n):
                    p = expit(self.shift + self.race.law.offset(m, steps[start + m].effect))
                    yield m, left * (1.0 - p)
                    left = left * p
                yield n, left
            case _:
                p = self.match if choice.kind == "match" else choice.data
                yield True, path.weight * p
                yield False, path.weight * (1.0 - p)

    def _end(self, path: _Path, leaf: Leaf, node: _Node) -> tuple[_Node, Array, dict[Role, Array]]:
        """Book a round's end; the node it leads to."""
        ready, books, weight = self._prepare(leaf), self.books, path.weight
        books.add(ready.entries, ready.amounts, weight)
        books.counts += weight[:, None] * ready.counts
        left = []
        for (work, plan, on_path), wasted in zip(node.open, leaf.result.earlier, strict=True):
            if wasted is None:
                left.append((work, plan, on_path))
            else:
                books.add(*self._fate(work, plan, wasted=wasted, on_path=on_path), weight)
        for number, job in path.begun.items():
            if leaf.result.on_path[number] and np.any(job.queue_s):
                books.queue_s += weight * job.queue_s
        for job, consumed in path.cuts:
            self._cut(job, consumed, weight)
        now_s = path.clock.now_s
        held = {r: np.where(weight > 0, np.maximum(0.0, t - now_s), 0.0) for r, t in path.clock.free_s.items()}
        held = {role: seconds for role, seconds in held.items() if seconds.any()}
        key = tuple((role, seconds.tobytes()) for role, seconds in sorted(held.items()))
        return _Node(leaf.after, leaf.result.carry, (*left, *ready.open), key), weight, held

    def _prepare(self, leaf: Leaf) -> _Prepared:
        if leaf.prepared is None or leaf.prepared[0] is not self.books:
            leaf.prepared = (self.books, self._entries(leaf))
        found: _Prepared = leaf.prepared[1]
        return found

    def _entries(self, leaf: Leaf) -> _Prepared:
        r = leaf.result
        entries: list[int] = []
        amounts: list[float] = []
        open_ = []
        for (work, plan), wasted, on_path, cut in zip(leaf.jobs, r.wasted, r.on_path, r.cut, strict=True):
            if wasted is None:
                open_.append((work, plan, on_path))
            elif not cut:
                ids, counts = self._fate(work, plan, wasted=wasted, on_path=on_path)
                entries += ids
                amounts += counts
        return _Prepared(entries, amounts, np.array(round_counts(r)), tuple(open_))

    def _fate(
        self, work: Work, plan: RequestPlan | None, *, wasted: bool, on_path: bool
    ) -> tuple[list[int], list[float]]:
        key = (work, plan, wasted, on_path)
        found = self.fates.get(key)
        if found is None:
            shares = work_shares(work, plan, self.rates.shape(work), wasted=wasted)
            found = self.fates[key] = ([self.books.entry(s, on_path) for s in shares], [s.count for s in shares])
        return found

    def _cut(self, job: Running, consumed: Consumed, weight: Array) -> None:
        """Book what a cancelled request has consumed: samples that got as far together."""
        if not isinstance(job.work, EngineRequest):
            return
        assert job.plan is not None
        column = COUNTS.index(f"{job.work.role}_output_tokens")
        far = np.stack([np.broadcast_to(x, self.n) for x in consumed], axis=1)
        for passes, decoded in np.unique(far[weight > 0], axis=0).tolist():
            mine = weight * ((far == (passes, decoded)).all(axis=1))
            shape = self.pricing.shapes[job.work.role]
            shares, tokens = cut_shares(job.work, job.plan, shape, passes, decoded)
            self.books.add_shares(shares, mine, on_path=False)
            self.books.counts[:, column] += mine * tokens

    def _total(self) -> Expected:
        from scipy.sparse import coo_array

        books = self.books
        at, which, amount = books.visits
        use = coo_array((amount, (which, at)), shape=(len(books.ids), len(books.weights))).tocsr()
        used = np.asarray(use @ np.array(books.weights)).T
        rows = list(dict.fromkeys(row for row, _, _ in books.ids))
        cost = np.broadcast_to(_per_sample(self.pricing.rows(rows)), (len(COLUMNS), self.n, len(rows)))
        place = {row: i for i, row in enumerate(rows)}
        mine = cost[:, :, [place[row] for row, _, _ in books.ids]] * used[None]
        mine[WALL] *= np.array([on_path for _, _, on_path in books.ids])
        ledger = np.zeros((self.n, len(PHASES), len(COLUMNS)))
        phases = np.array([PHASES.index(phase) for _, phase, _ in books.ids])
        for phase in set(phases.tolist()):
            ledger[:, phase, :] = mine[:, :, phases == phase].sum(axis=2).T
        ledger[:, PHASES.index("queue"), WALL] += books.queue_s
        busy = mine[COLUMNS.index("busy_s")]
        of_role = {role: np.array([row.role is role for row, _, _ in books.ids]) for role in Role}
        return Expected(
            self.race.strategy, ledger, books.counts, {role: busy[:, own].sum(axis=1) for role, own in of_role.items()}
        )


def _per_sample(cost: Array) -> Array:
    return cost if cost.ndim == 3 else cost[:, None, :]
