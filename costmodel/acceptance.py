"""How likely a drafted step is to be kept, given that all before it in its segment were.

    p(m, effect) = expit(shift + position_logits[m] + effect_logits[effect])

`shift` moves all positions and effects by one logit; a scenario's acceptance is the mean of p over the steps that a
review reaches, and `fit_shift` finds the shift that gives it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from costmodel.trajectory import Effect

Array = np.ndarray[Any, np.dtype[np.float64]]


def logit(p: float) -> float:
    """log(p / (1 - p)); infinite at 0 and 1."""
    if p in (0.0, 1.0):
        return math.inf if p else -math.inf
    return math.log(p / (1.0 - p))


def expit(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(-np.asarray(x, dtype=float)))


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceLaw:
    """The shape of acceptance over the offset in the segment (the last entry holds beyond) and over effects."""

    position_logits: tuple[float, ...] = (0.0,)
    effect_logits: Mapping[Effect, float] = field(default_factory=dict)

    @property
    def is_flat(self) -> bool:
        """True when every step has the same acceptance."""
        return not any(self.position_logits) and not any(self.effect_logits.values())

    def offset(self, m: int, effect: Effect) -> float:
        """Logit relative to the shift, for the step at offset `m` of its segment."""
        position = self.position_logits[min(m, len(self.position_logits) - 1)]
        return position + self.effect_logits.get(effect, 0.0)

    def probabilities(self, shift: float, effects: Sequence[Effect]) -> Array:
        """p of each step of a segment with these effects."""
        return np.asarray(expit(np.array([shift + self.offset(m, e) for m, e in enumerate(effects)])))


PRIOR_MEAN = (0.90, 0.78, 0.97)
"""Acceptance when nothing is known: value, 5 % and 95 % points; tier assumed. Literal agreement of recorded model
pairs lies between 0.81 and 0.96 per call, and a model agrees with its own rerun only 0.87 to 0.93."""

PRIOR_LAW = AcceptanceLaw(
    position_logits=(-0.35, 0.15),
    effect_logits={Effect.WRITE: logit(0.80) - logit(0.90)},
)
"""Writes are kept less often (0.80 beside 0.90), the first step of a segment a little less than later ones; assumed."""

MATCH_PRIOR = (0.85, 0.70, 0.93)
"""Probability that a draft makes literally the call that the strong model makes: value, 5 % and 95 % points.

0.85 per call for gpt-4.1-mini beside gemini-3-flash on tau2 recordings; between 0.81 and 0.93 for other pairs there,
0.3 to 0.5 where arguments are free text; a model repeats its own call 0.87 to 0.93 of the time. Below acceptance: a
reviewer also keeps valid steps that it would have written otherwise."""
