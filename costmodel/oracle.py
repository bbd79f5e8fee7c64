"""A bound for every rule that chooses windows: the best windows in hindsight.

The oracle knows all draws of a task beforehand and picks, round by round, the window 0 .. most (0: the strong model
writes a step) that makes the whole task shortest on idle engines:

    V(s) = min_k [ C(s, k, a_k) + V(s'(s, k, a_k)) ]

with s the session's state and a_k the verdict that the draws give a segment of window k. No rule for windows is
faster on the same draws; a fixed window is one such rule.
"""

from __future__ import annotations

from costmodel.draws import VerdictRule
from costmodel.ledger import work_shares
from costmodel.pricing import WALL, Pricing
from costmodel.protocol import Role, Strategy
from costmodel.session import EngineRequest, ProtocolSizes, Session, State
from costmodel.strategies import OneModel, SpecAgent
from costmodel.tape import play
from costmodel.task import Task
from costmodel.trajectory import RUNS_FREELY


class Oracle:
    """Shortest times of one task over all windows; what a round costs is kept from one path to the next.

    Parameters
    ----------
    most : int
        Largest window.
    """

    def __init__(self, task: Task, most: int, pricing: Pricing, sizes: ProtocolSizes) -> None:
        self.task, self.most, self.pricing, self.sizes = task, most, pricing, sizes
        self._rounds: dict[tuple[State, int, int], tuple[float, State]] = {}

    def wall_s(self, verdict: VerdictRule) -> float:
        """The shortest time of the path that these verdicts give."""
        levels: dict[int, dict[State, float]] = {i: {} for i in range(len(self.task.steps) + 1)}
        levels[0][Session(self.task, self.pricing.rules, self.sizes).state] = 0.0
        for at in range(len(self.task.steps)):
            for state, spent_s in levels[at].items():
                for n in self._lengths(at):
                    seconds, after = self._round(state, n, verdict(at, n) if n else 0)
                    known = levels[after[0]].get(after)
                    if known is None or spent_s + seconds < known:
                        levels[after[0]][after] = spent_s + seconds
        return min(levels[len(self.task.steps)].values())

    def _lengths(self, at: int) -> range:
        """Lengths of the segments that windows 0 .. most give from a step on."""
        n = 0
        for step in self.task.steps[at : at + self.most]:
            n += 1
            if step.effect not in RUNS_FREELY:
                break
        return range(n + 1)

    def _round(self, state: State, n: int, accepted: int) -> tuple[float, State]:
        key = (state, n, accepted)
        found = self._rounds.get(key)
        if found is None:
            how: Strategy = SpecAgent("oracle", n) if n else OneModel("oracle", Role.STRONG)
            session = Session(self.task, self.pricing.rules, self.sizes, state)
            result, plans = play(session, how, lambda _start, _n: accepted, self.pricing)
            seconds = 0.0
            for work, plan in zip(result.works, plans, strict=True):
                shape = self.pricing.shapes[work.role] if isinstance(work, EngineRequest) else None
                shares = work_shares(work, plan, shape, wasted=False)
                seconds += sum(float(self.pricing.row(s.row)[WALL]) * s.count for s in shares)
            found = self._rounds[key] = (seconds, session.state)
        return found
