"""`expect`: the exact expectation of a trajectory's ledger under a strategy, on idle engines.

Each round is replayed once per possible verdict into a hardware-free *tape* of rows (`compile_tape`); a forward pass
over reachable session states gives each branch's expected count for any number of acceptance values at once, and
pricing the rows gives the ledger:

    V(i, r) = sum_{a=0..n} P(a) [ C(i, r, a) + V(i + a + [a < n], [a < n]) ],   P(a) = prod_{m<a} p_m (1 - p_a)

with the state r generalised to what both caches hold, so that block flooring and saved recurrent states are exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodel.acceptance import AcceptanceLaw, expit
from costmodel.cost import COLUMNS, PHASES
from costmodel.ledger import Row, work_shares
from costmodel.pricing import Pricing
from costmodel.protocol import Role, Strategy
from costmodel.request import RequestPlan
from costmodel.rounds import COUNTS, round_counts
from costmodel.session import EngineRequest, ProtocolSizes, Session, State, Work
from costmodel.task import Task
from costmodel.walk import play

Array = np.ndarray[Any, np.dtype[np.float64]]
Indices = np.ndarray[Any, np.dtype[np.int64]]


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
    sure: Indices


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
        self.reviews: dict[int, tuple[list[int], list[list[float]]]] = {}
        self.sure: list[int] = []

    def add_task(self, task: Task) -> int:
        """Replay every reachable round of a task; returns its first node."""
        first = Session(task, self.pricing.rules, self.sizes).state
        nodes = {first: self._new_node()}
        pending = [first]
        while pending:
            state = min(pending)
            pending.remove(state)
            for branch, after in self._branches(task, state):
                to = -1
                if after[0] < len(task.steps):
                    if after not in nodes:
                        nodes[after] = self._new_node()
                        pending.append(after)
                    to = nodes[after]
                self.by_level.setdefault(state[0], []).append((branch, nodes[state], to))
        return nodes[first]

    def _new_node(self) -> int:
        self.n_nodes += 1
        return self.n_nodes - 1

    def _branches(self, task: Task, state: State) -> list[tuple[int, State]]:
        seen: list[int] = []

        def all_valid(_start: int, n: int) -> int:
            seen.append(n)
            return n

        full = self._replay(task, state, all_valid)
        if not seen:
            self.sure.append(full[0])
            return [full]
        n = seen[0]
        partial = [self._replay(task, state, lambda _s, _n, a=a: a) for a in range(n)]
        branches, offsets = self.reviews.setdefault(n, ([], []))
        branches.append(full[0])
        effects = [task.steps[state[0] + m].effect for m in range(n)]
        offsets.append([self.law.offset(m, e) for m, e in enumerate(effects)])
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

    def _replay(self, task: Task, state: State, verdict: Any) -> tuple[int, State]:
        session = Session(task, self.pricing.rules, self.sizes, state)
        result, plans = play(session, self.strategy, verdict, self.pricing)
        branch = len(self.counts)
        self.counts.append(round_counts(result))
        which, entry, amount = self.coo
        for work, plan, wasted in zip(result.works, plans, result.wasted, strict=True):
            entries, amounts = self._use(work, plan, wasted)
            which += [branch] * len(entries)
            entry += entries
            amount += amounts
        return branch, session.state


def compile_tape(
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
        np.array(c.sure, dtype=int),
    )


def branch_weights(tape: Tape, shift: Array) -> Array:
    """Expected number of times each branch is taken per trajectory: array (n_samples, n_branches).

    `shift` holds one acceptance shift per sample. The branches of a reviewed node are numbered: all accepted first,
    then 0, 1, .. n-1 accepted.
    """
    shift = np.atleast_1d(np.asarray(shift, dtype=float))
    chance = np.zeros((len(shift), tape.n_branches))
    chance[:, tape.sure] = 1.0
    for n, (first, offsets) in tape.reviews.items():
        p = expit(shift[:, None, None] + offsets[None])
        survive = np.concatenate([np.ones((*p.shape[:2], 1)), np.cumprod(p, axis=2)], axis=2)
        chance[:, first] = survive[:, :, n]
        for a in range(n):
            chance[:, first + 1 + a] = survive[:, :, a] * (1.0 - p[:, :, a])
    occupancy = np.zeros((len(shift), tape.n_nodes + 1))
    occupancy[:, tape.starts] = 1.0 / tape.n_tasks
    for branch, origin, to in tape.levels:
        chance[:, branch] *= occupancy[:, origin]
        np.add.at(occupancy.T, to, chance[:, branch].T)
    return chance


def mean_acceptance(tape: Tape, shift: Array) -> Array:
    """Mean acceptance over the steps that reviews reach, per sample; NaN where nothing is reviewed."""
    shift = np.atleast_1d(np.asarray(shift, dtype=float))
    weights = branch_weights(tape, shift)
    kept = np.zeros(len(shift))
    reached = np.zeros(len(shift))
    for n, (first, _) in tape.reviews.items():
        for a in range(n + 1):
            w = weights[:, first if a == n else first + 1 + a].sum(axis=1)
            kept += w * a
            reached += w * (a + (a < n))
    with np.errstate(invalid="ignore"):
        return kept / reached


def fit_shift(tape: Tape, law: AcceptanceLaw, mean: Array) -> Array:
    """The shift per sample that gives `mean` acceptance over reviewed steps: exact for a flat law, else by iteration.

    On the logit scale the mean moves almost one for one with the shift, so each correction is the remaining error.

    Limits
    ------
    A mean of exactly 0 or 1 maps to an infinite shift.
    """
    mean = np.atleast_1d(np.asarray(mean, dtype=float))
    with np.errstate(divide="ignore"):
        guess = np.log(mean) - np.log1p(-mean)
    if law.is_flat or not tape.reviews:
        return guess
    shift, sure = guess.copy(), np.isinf(guess)
    for _ in range(60):
        reached = mean_acceptance(tape, shift)
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.where(sure, 0.0, np.log(reached) - np.log1p(-reached) - guess)
        if np.all(np.abs(error) < 1e-12):
            break
        shift = np.where(sure, guess, shift - error)
    return shift


def expect(tape: Tape, shift: Any, pricing: Pricing) -> Expected:
    """Expected ledger of a tape at given acceptance shifts and prices.

    Parameters
    ----------
    shift : float or array (n_samples,)
        Acceptance shift per sample.
    pricing : Pricing
        Scalar factors, or arrays (n_samples, 1) that pair with `shift`.
    """
    weights = branch_weights(tape, shift)
    used = np.asarray((tape.use.T @ weights.T).T)
    cost = pricing.rows(tape.rows)
    n = len(weights)
    if cost.ndim == 3 and cost.shape[1] != n:
        n = cost.shape[1]
        used = np.broadcast_to(used, (n, used.shape[1]))
    ledger = np.zeros((n, len(PHASES), len(COLUMNS)))
    for phase in range(len(PHASES)):
        mine = np.flatnonzero(tape.entries[:, 1] == phase)
        if len(mine):
            block = cost[..., tape.entries[mine, 0]]
            amounts = used[:, mine]
            ledger[:, phase, :] = (
                np.einsum("se,ce->sc", amounts, block) if block.ndim == 2 else np.einsum("se,cse->sc", amounts, block)
            )
    counts = np.asarray(np.broadcast_to(weights @ tape.counts, (n, len(COUNTS))))
    busy = cost[COLUMNS.index("busy_s")][..., tape.entries[:, 0]] * used
    of_role = {role: np.array([tape.rows[i].role is role for i in tape.entries[:, 0]]) for role in Role}
    return Expected(tape.strategy, ledger, counts, {role: busy[:, mine].sum(axis=1) for role, mine in of_role.items()})
