"""What tools and users take: attempts under a latency law, failures, hangs, time-outs, retries, and slots to wait for.

`Rule.mean_s` is the closed form that `walk` and `expect` use; `Rule.attempts` draws what a simulation lives through.
Waiting for a slot exists in simulation only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hwprofiles.errors import InputError
from simulator.latency import Law

MAX_RETRIES = 100


class Attempt(NamedTuple):
    """One attempt: `wait_s` before it (back-off), how long it takes (inf: it never ends) and whether it worked."""

    wait_s: float
    seconds: float
    worked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How runs of one kind of tool go.

    An attempt hangs with probability `hang`, fails with probability `failure` (after `failure_s`, or after the time
    an answer would have taken), else answers after its time under `law`. What takes longer than `timeout_s` has failed
    then. A failed attempt is tried again up to `retries` times, `backoff_s * 2^(k-1)` before the k-th retry. After the
    last one the agent gets the error in place of an answer, and goes on.

    Parameters
    ----------
    name : str
        Runs of one name share the `concurrency` slots; an attempt holds one, a back-off none.
    """

    name: str
    law: Law
    timeout_s: float = math.inf
    retries: int = 0
    backoff_s: float = 0.0
    failure: float = 0.0
    failure_s: float | None = None
    hang: float = 0.0
    concurrency: int | None = None

    def __post_init__(self) -> None:
        if self.failure + self.hang > 1:
            raise InputError(f"{self.name}: failure + hang must be at most 1, got {self.failure + self.hang:g}")

    @property
    def can_hang_for_ever(self) -> bool:
        """Whether a run can fail to end."""
        return self.hang > 0 and math.isinf(self.timeout_s)

    def mean_s(self, mean_s: float) -> float:
        """Mean time of a run whose answers take `mean_s` on average, without waiting for slots.

        With q and s the probabilities that an attempt fails and works, F and S their mean times and B_k the back-off
        before k retries,

            sum_{k<=R} q^k s (k F + S + B_k) + q^(R+1) ((R+1) F + B_R),

        over the probability of all these cases, which is 1 unless a hang has no time-out: then it is the mean of the
        runs that end.
        """
        cut = self.timeout_s / mean_s if mean_s > 0 else math.inf
        taken_s = mean_s * self.law.mean_below(cut) if mean_s > 0 else 0.0
        late = 0.0 if math.isinf(cut) else self.law.beyond(cut)
        late_s = late * self.timeout_s if late else 0.0
        error_s = taken_s if self.failure_s is None else min(self.failure_s, self.timeout_s)
        good = max(0.0, 1.0 - self.hang - self.failure)
        hang, hang_s = (
            (0.0, 0.0) if self.can_hang_for_ever or not self.hang else (self.hang, self.hang * self.timeout_s)
        )
        fails, works = hang + self.failure + good * late, good * (1.0 - late)
        failed_s = (hang_s + self.failure * error_s + good * late_s) / fails if fails else 0.0
        worked_s = good * (taken_s - late_s) / works if works else 0.0
        total = weight = pauses_s = 0.0
        for k in range(self.retries + 1):
            pauses_s += self.backoff_s * 2.0 ** (k - 1) if k else 0.0
            chance = fails**k * works
            weight += chance
            total += chance * (k * failed_s + worked_s + pauses_s)
        all_fail = fails ** (self.retries + 1)
        weight += all_fail
        total += all_fail * ((self.retries + 1) * failed_s + pauses_s)
        return total / weight if weight else 0.0

    def attempts(self, mean_s: float, uniforms: Sequence[float]) -> Iterator[Attempt]:
        """The attempts of a run, from two uniforms each (`2 * (retries + 1)` of them)."""
        for k in range(self.retries + 1):
            kind, u = uniforms[2 * k], uniforms[2 * k + 1]
            wait_s = self.backoff_s * 2.0 ** (k - 1) if k else 0.0
            seconds = mean_s * self.law.quantile(u)
            worked = kind >= self.hang + self.failure
            if kind < self.hang:
                seconds = math.inf
            elif not worked and self.failure_s is not None:
                seconds = self.failure_s
            if seconds > self.timeout_s:
                seconds, worked = self.timeout_s, False
            yield Attempt(wait_s, seconds, worked)
            if worked:
                return


class Timed(NamedTuple):
    """A step's tool run: its rule, and the mean time of its answers."""

    rule: Rule
    mean_s: float


ToolTable = Sequence[Sequence[Timed | None]]
"""Per task and step: how its tools run, None where it has none."""


@dataclass(frozen=True, slots=True)
class Gaps:
    """User think time: mean seconds before each step of each task, and the law they follow."""

    law: Law
    mean_s: tuple[tuple[float, ...], ...]
