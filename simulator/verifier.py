"""How well a verifier judges, from steps whose validity is known: detection d(m, n) and false rejection f(m, n).

    d(m, n) = P(rejected | invalid),   f(m, n) = P(rejected | valid)

at offset m of a drafted segment of n steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from simulator.rates import Rate, Trial, rate

LEAST_CASES = 20
"""Fewer invalid (or valid) steps are no measurement: `VerifierCurves.toml` writes no line from them."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One judged step: task number, offset m, segment length n (None if not told), rejected, valid."""

    task: int
    position: int
    length: int | None
    rejected: bool
    valid: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Detection and false rejection at one offset of segments of one length; None without such steps."""

    position: int
    length: int | None
    detection: Rate | None
    false_reject: Rate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierCurves:
    """Curves of a verifier with 90 % intervals.

    Parameters
    ----------
    cells : d and f by offset and length
    detection, false_reject : over all steps
    weak_hazard : share of drafted steps that were invalid
    """

    source: str
    cells: tuple[Cell, ...]
    detection: Rate | None
    false_reject: Rate | None
    weak_hazard: Rate

    def toml(self) -> str:
        """Lines for the [quality] section of a scenario; only of what enough steps stand behind."""
        lines = []
        for name in ("weak_hazard", "detection", "false_reject"):
            found: Rate | None = getattr(self, name)
            if found is not None and found.n >= LEAST_CASES:
                band = f"value = {found.value:.4g}, low = {found.low:.4g}, high = {found.high:.4g}"
                lines.append(f'{name} = {{ {band}, tier = "measured", source = "{self._source(found)}" }}\n')
        return "".join(lines)

    def _source(self, found: Rate) -> str:
        text = "".join(c if c.isprintable() else "?" for c in f"judgements: {self.source}; {found.n} steps")
        return text.replace("\\", "/").replace('"', "'")


def verifier_curves(steps: Sequence[Judged], source: str) -> VerifierCurves:
    """The curves of judged steps whose validity is known."""
    places = sorted({(s.position, s.length) for s in steps}, key=lambda p: (p[1] or 0, p[0]))
    cells = []
    for position, length in places:
        here = [s for s in steps if (s.position, s.length) == (position, length)]
        cells.append(
            Cell(
                position=position,
                length=length,
                detection=_share(s for s in here if not s.valid),
                false_reject=_share(s for s in here if s.valid),
            )
        )
    invalid = [Trial(s.task, s.position, "", not s.valid) for s in steps]
    return VerifierCurves(
        source=source,
        cells=tuple(cells),
        detection=_share(s for s in steps if not s.valid),
        false_reject=_share(s for s in steps if s.valid),
        weak_hazard=rate(invalid),
    )


def _share(steps: Iterable[Judged]) -> Rate | None:
    trials = [Trial(s.task, s.position, "", s.rejected) for s in steps]
    return rate(trials) if trials else None
