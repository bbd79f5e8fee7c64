"""Which pieces of work a round's end had to wait for.

Whoever plays a round goes from one resumption to the next: each comes when some work ends (or at once, if that work
had ended before), and work begins at one. Going back from the last resumption, from the end of a work to the
resumption at which it began, gives the works that cover the time without gap or overlap. The rest was hidden.
"""

from __future__ import annotations


class CriticalPath:
    """The resumptions of one round in progress, and the works that brought them about."""

    __slots__ = ("_begun", "_cause")

    def __init__(self) -> None:
        self._cause: list[int | None] = []
        self._begun: dict[int, int] = {}

    @classmethod
    def in_turn(cls, n: int) -> CriticalPath:
        """The path so far where `n` works were done one after the other."""
        path = cls()
        path._cause = list(range(n))
        path._begun = {number: number for number in range(n)}
        return path

    def begin(self, number: int) -> None:
        """Work `number` begins now."""
        self._begun[number] = len(self._cause)

    def resume(self, number: int | None) -> None:
        """Go on because work `number` has ended just now; None: at once, for something that had ended before."""
        self._cause.append(number)

    def found(self) -> frozenset[int]:
        """The works on the critical path up to now."""
        at, path = len(self._cause), set()
        while at:
            number = self._cause[at - 1]
            at = at - 1 if number is None else self._begun[number]
            if number is not None:
                path.add(number)
        return frozenset(path)
