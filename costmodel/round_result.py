"""What a round did, what it leaves to the next one, and what is counted of it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from costmodel.protocol import Role
from costmodel.session import EngineRequest, ToolRun, Work
from costmodel.task import TaskStep


class Carry(NamedTuple):
    """What a round leaves to the next: drafted steps behind the committed ones, a memory, and works yet unjudged.

    `open` holds such works in the order they were begun, each with its step's offset from the committed ones.
    """

    n_steps: int = 0
    memory: Hashable = None
    open: tuple[tuple[Work, int], ...] = ()


START = Carry()
"""Before the first round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResult:
    """What a round did.

    Parameters
    ----------
    committed : tuple of TaskStep
        Accepted drafts except, when `written_by` is not None, the last one.
    drafted, accepted, discarded : int
        Steps drafted in this round; drafts committed; drafts thrown away (both may stem from the round before).
    works : tuple of Work
        All work in the order it was begun.
    wasted : tuple of (bool or None)
        Whether it belongs to a discarded draft; None while its step is carried on.
    on_path : tuple of bool
        Whether the round's end waited for it: the wall time is theirs, the others ran in their shadow.
    cut : tuple of bool
        Whether it was cancelled while it ran.
    before, earlier : tuples of Work and of (bool or None)
        Works that earlier rounds left open, and whether they were wasted.
    carry : Carry
        What the next round begins with.
    """

    committed: tuple[TaskStep, ...]
    drafted: int
    accepted: int
    discarded: int
    verified: bool
    written_by: Role | None
    works: tuple[Work, ...]
    wasted: tuple[bool | None, ...]
    on_path: tuple[bool, ...]
    cut: tuple[bool, ...]
    before: tuple[Work, ...]
    earlier: tuple[bool | None, ...]
    carry: Carry

    @property
    def repaired(self) -> bool:
        """True when the reviewer wrote the last committed step."""
        return self.verified and self.written_by is not None


COUNTS: tuple[str, ...] = (
    "rounds",
    "steps",
    "drafted_steps",
    "reviews",
    "repairs",
    "wasted_steps",
    "wasted_tool_calls",
    "strong_output_tokens",
    "weak_output_tokens",
)
"""Counts per trajectory beside the ledger."""


def round_counts(result: RoundResult) -> tuple[float, ...]:
    """The `COUNTS` of one round, but for the tokens of requests that were cancelled."""
    whole = [w for w, cut in zip(result.works, result.cut, strict=True) if not cut and isinstance(w, EngineRequest)]
    judged = [*zip(result.before, result.earlier, strict=True), *zip(result.works, result.wasted, strict=True)]
    return (
        1.0,
        float(len(result.committed)),
        float(result.drafted),
        float(result.verified),
        float(result.repaired),
        float(result.discarded),
        float(sum(isinstance(w, ToolRun) and x is True for w, x in judged)),
        float(sum(w.output_tokens for w in whole if w.role is Role.STRONG)),
        float(sum(w.output_tokens for w in whole if w.role is Role.WEAK)),
    )
