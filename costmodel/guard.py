"""What the protocol allows in one round, kept in one place for every driver: simulated, expected or real.

No held step runs before a verdict accepts it or a repair wrote it; at most one step per round is written or repaired;
a round commits a prefix of its segment and the step it had written.
"""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.trajectory import RUNS_FREELY, Effect


class HoldViolation(RuntimeError):
    """A strategy asked to run a held step before a verdict; the protocol forbids it."""


class RoundGuard:
    """The books of one round of strategy `name`; offsets count from the committed steps.

    `carried` are the effects of drafted steps left by the round before, whose reads have run. Every method raises
    `HoldViolation` or `ValueError` where the strategy breaks the protocol. A tool may run while a review is pending:
    it must run freely all the same.
    """

    def __init__(self, name: str, carried: Sequence[Effect] = ()) -> None:
        self.name = name
        self.effects: list[Effect] = list(carried)
        self.ran: set[int] = {o for o, effect in enumerate(carried) if effect in RUNS_FREELY}
        self.reviewed = 0
        self.accepted: int | None = None
        self.written: int | None = None
        self.reused = False

    @property
    def drafted(self) -> int:
        """Steps drafted so far, carried ones included."""
        return len(self.effects)

    def before_draft(self, offset: int) -> None:
        """The next draft sees the observations of the `offset` steps before it, so their tools must have run."""
        self._need_run(offset)

    def after_draft(self, offset: int, effect: Effect) -> None:
        """A step of this effect stands at `offset` of the segment; what was run or accepted there before is void."""
        if offset < len(self.effects):
            del self.effects[offset:]
        self.effects.append(effect)
        if self.ran and max(self.ran) >= offset:
            self.ran = {o for o in self.ran if o < offset}
        if self.accepted is not None:
            self.accepted = min(self.accepted, offset)

    def before_call(self, offset: int) -> None:
        """A drafted step's tools run now: only if it runs freely."""
        if offset >= len(self.effects) or self.effects[offset] not in RUNS_FREELY:
            effect = self.effects[offset] if offset < self.drafted else "not drafted"
            raise HoldViolation(f"{self.name}: step {offset} of the segment ({effect}) is held until a verdict")

    def after_call(self, offset: int) -> None:
        """The tools of a drafted step have answered."""
        self.ran.add(offset)

    def before_review(self, n: int) -> None:
        """`n` drafted steps go to the reviewer; all but a held last one must have run."""
        if not 1 <= n <= len(self.effects):
            raise ValueError(f"{self.name}: {self.drafted} steps are drafted, so {n} cannot be reviewed")
        self._need_run(n if self.effects[n - 1] in RUNS_FREELY else n - 1)
        self.reviewed = n

    def after_review(self, accepted: int) -> None:
        """The verdict: how many steps are valid."""
        most = self.reviewed or self.drafted
        if not 0 <= accepted <= most:
            raise ValueError(f"{self.name}: a verdict accepts between 0 and {most} steps, got {accepted}")
        self.accepted = accepted

    def before_write(self) -> None:
        """A model writes a step to be committed as it is, with nothing drafted before it."""
        self._write_once(0)

    def before_repair(self, offset: int) -> None:
        """A model writes the step at `offset`, behind accepted ones only."""
        if self.accepted is None or not 0 <= offset <= self.accepted:
            raise ValueError(f"{self.name}: a repair needs a verdict that accepts the {offset} steps before it")
        self._write_once(offset)

    def before_reuse(self, offset: int) -> None:
        """The written step takes over what was run for the draft in its place: same call, and one that runs freely."""
        if self.written != offset or offset >= self.drafted or self.effects[offset] not in RUNS_FREELY:
            raise HoldViolation(f"{self.name}: no free draft stands where step {offset} was written")
        self.reused = True

    def before_carry(self, n_committed: int, offsets: Sequence[int]) -> None:
        """Drafted steps go on to the next round: only behind a whole accepted segment, one after the other."""
        if not offsets:
            return
        follows = list(offsets) == list(range(n_committed, n_committed + len(offsets)))
        last = offsets[-1]
        if self.written is not None or not follows or last >= self.drafted:
            raise ValueError(f"{self.name}: only drafted steps right behind an accepted segment can be carried on")
        self._need_run(last)
        if self.effects[last] in RUNS_FREELY and last not in self.ran:
            raise HoldViolation(f"{self.name}: the read of carried step {last} has not run")

    def before_commit(self, offsets: Sequence[int]) -> tuple[int, list[int]]:
        """Check a commit; returns how many drafted steps it keeps, and the offsets whose tools run now."""
        n = len(offsets)
        ends_written = self.written is not None and self.written == n - 1
        kept = n - 1 if ends_written else n
        allowed = self.accepted or 0
        if n == 0:
            raise ValueError(f"{self.name}: a round must commit between 1 step and its whole segment, got none")
        if list(offsets) != list(range(n)) or kept > allowed:
            raise ValueError(
                f"{self.name}: a round commits a prefix of its segment: {allowed} steps are accepted, {n} came"
            )
        if self.reused and n - 1 not in self.ran:
            raise HoldViolation(f"{self.name}: the tool run that the written step takes over has not ended")
        return kept, [o for o in offsets if o not in self.ran or (ends_written and o == n - 1 and not self.reused)]

    def _write_once(self, offset: int) -> None:
        if self.written is not None:
            raise ValueError(f"{self.name}: at most one step per round may be written or repaired")
        self.written = offset

    def _need_run(self, n: int) -> None:
        for offset in range(n):
            if offset not in self.ran:
                raise HoldViolation(
                    f"{self.name}: drafted step {offset} of the segment has not run, so nothing can follow it"
                )
