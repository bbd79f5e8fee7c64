"""`spec_agent` whose window follows what it has seen of this task, down to 0: the strong model writes by itself."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from costmodel.protocol import Commit, Observe, Request, Role, Round, View, Write
from costmodel.segment import draft, repair, review

Rule = Literal["rate", "counts"]
"""How the window is chosen: by committed steps per second, or by accepted and rejected steps alone."""

GROWTH = 2
"""Steps that the window gains with a whole accepted segment under the rule "counts"; it loses one otherwise. As the
heuristic schedule of assisted generation in Hugging Face Transformers does with drafted tokens; assumed for steps."""

PRIOR_JUDGED, PRIOR_ACCEPTED = 4.0, 3.6
"""Judged and accepted steps that the estimate of acceptance starts with: the prior mean 0.90, worth four steps;
assumed."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the rule "rate" remembers: judged and accepted steps, and how long drafts, reviews and writes took."""

    judged: int = 0
    accepted: int = 0
    drafts: int = 0
    draft_s: float = 0.0
    reviews: int = 0
    review_s: float = 0.0
    writes: int = 0
    write_s: float = 0.0

    def acceptance(self) -> float:
        """Estimated acceptance: the prior's steps and those judged."""
        return (self.accepted + PRIOR_ACCEPTED) / (self.judged + PRIOR_JUDGED)

    def steps_per_s(self, window: int) -> float:
        """Expected committed steps per second of a round without holds: E / (K t_d + t_v + (1 - p^K) t_w).

        E = (1 - p^K) / (1 - p) steps for a window K, 1 / t_w for window 0; the times are means over this task so far.
        """
        write_s = self.write_s / self.writes
        if window == 0:
            return 1.0 / write_s if write_s > 0 else float("inf")
        p = self.acceptance()
        kept = p**window
        took_s = window * self.draft_s / self.drafts + self.review_s / self.reviews + (1.0 - kept) * write_s
        return (1.0 - kept) / (1.0 - p) / took_s if took_s > 0 else float("inf")

    def window(self, least: int, most: int) -> int:
        """The window with the most committed steps per second; the largest until every time has been seen once."""
        if not (self.drafts and self.reviews and self.writes):
            return most
        return max(range(least, most + 1), key=self.steps_per_s)


@dataclass(frozen=True, slots=True)
class Adaptive:
    """`spec_agent` with a window between `least` and `most` chosen anew for every round.

    The rule "rate" maximises committed steps per second from this task's own times (queues included) and verdicts;
    once it stops drafting, nothing it sees brings drafting back but slower writes. The rule "counts" begins at `most`,
    adds `GROWTH` after a whole accepted segment and takes 1 off after a rejection; after a round at window 0 comes 1.
    """

    name: str
    least: int
    most: int
    rule: Rule = "rate"

    def round(self, view: View) -> Round:
        """Choose a window; go on as `spec_agent`, or as `strong_only` at window 0."""
        if self.rule == "rate":
            return (yield from self._by_rate(view, cast("Seen | None", view.memory) or Seen()))
        return (yield from self._by_counts(view, self.most if view.memory is None else cast(int, view.memory)))

    def _by_counts(self, view: View, window: int) -> Round:
        if window == 0:
            step = yield Write(Role.STRONG)
            return Commit((cast(Any, step),), memory=min(1, self.most))
        segment = yield from draft(view, (), window)
        accepted = yield from review(segment)
        if accepted == len(segment):
            return Commit(segment, memory=min(self.most, window + GROWTH))
        commit = yield from repair(segment, accepted)
        return commit._replace(memory=max(self.least, window - 1))

    def _by_rate(self, view: View, seen: Seen) -> Round:
        window = seen.window(self.least, self.most)
        began_s = yield from _now_s()
        if window == 0:
            step = yield Write(Role.STRONG)
            ended_s = yield from _now_s()
            seen = replace(seen, writes=seen.writes + 1, write_s=seen.write_s + ended_s - began_s)
            return Commit((cast(Any, step),), memory=seen)
        segment = yield from draft(view, (), window)
        drafted_s = yield from _now_s()
        accepted = yield from review(segment)
        reviewed_s = yield from _now_s()
        seen = replace(
            seen,
            judged=seen.judged + min(accepted + 1, len(segment)),
            accepted=seen.accepted + accepted,
            drafts=seen.drafts + len(segment),
            draft_s=seen.draft_s + drafted_s - began_s,
            reviews=seen.reviews + 1,
            review_s=seen.review_s + reviewed_s - drafted_s,
        )
        if accepted == len(segment):
            return Commit(segment, memory=seen)
        commit = yield from repair(segment, accepted)
        ended_s = yield from _now_s()
        seen = replace(seen, writes=seen.writes + 1, write_s=seen.write_s + ended_s - reviewed_s)
        return commit._replace(memory=seen)


def _now_s() -> Generator[Request, object, float]:
    return cast(float, (yield Observe()))
