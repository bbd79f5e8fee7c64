"""How far a draft came before it was rejected, and what took its place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One task's first difference: calls kept before it, calls of the weak model from it on, tokens written instead."""

    kept_calls: int
    dropped_calls: int
    output_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Mean, median and 90th percentile of n lengths (nearest rank)."""

    mean: float
    p50: int
    p90: int
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejections:
    """Over the tasks in which a draft was rejected.

    Parameters
    ----------
    tasks, rejected : tasks compared, and those with a difference
    kept_calls : calls of the weak model that agreed before it
    dropped_calls : calls of the weak model from it on, which a rejection throws away
    output_tokens : tokens of the strong model's step in that place; None where no trace has token counts
    """

    tasks: int
    rejected: int
    kept_calls: Lengths | None
    dropped_calls: Lengths | None
    output_tokens: Lengths | None


def rejections(found: Sequence[Difference | None]) -> Rejections:
    """The lengths of the first differences; None stands for a task without one."""
    some = [d for d in found if d is not None]
    return Rejections(
        tasks=len(found),
        rejected=len(some),
        kept_calls=_lengths([d.kept_calls for d in some]),
        dropped_calls=_lengths([d.dropped_calls for d in some]),
        output_tokens=_lengths([d.output_tokens for d in some if d.output_tokens is not None]),
    )


def _lengths(values: Sequence[int]) -> Lengths | None:
    if not values:
        return None
    ranked, n = sorted(values), len(values)
    p50, p90 = (ranked[math.ceil(q * n) - 1] for q in (0.5, 0.9))
    return Lengths(mean=sum(ranked) / n, p50=p50, p90=p90, n=n)
