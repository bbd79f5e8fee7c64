"""How a law draws one trajectory's steps: their number, effects, and tokens relative to the mean."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from costmodel.trajectory import Effect, ToolCall

if TYPE_CHECKING:
    import numpy as np

    from simulator.law import WorkloadLaw

MAX_STEPS = 10_000


def step_count(law: WorkloadLaw, u: float, rng: np.random.Generator) -> int:
    """2 + Poisson((steps - 2) G) from a uniform, G gamma of mean 1 and variance `steps_spread`; below 2, 1 or 2."""
    if law.steps < 2:
        return 1 + (u < law.steps - 1)
    shape = math.inf if law.steps_spread == 0 else 1 / law.steps_spread
    mixed = 1.0 if math.isinf(shape) else float(rng.gamma(shape, 1 / shape))
    return min(MAX_STEPS, 2 + poisson((law.steps - 2) * mixed, u))


def relative(law: WorkloadLaw, what: str, effects: list[Effect]) -> list[float]:
    """Each step's mean relative to the mean over all: `f_e / sum_e share_e f_e`, f = 1 for a read.

    The last step replies whatever the shares, and no observation follows it.
    """
    write, reply = getattr(law, f"write_{what}"), getattr(law, f"reply_{what}")
    last = min(1.0, 1 / law.steps)
    shares = (law.write_share, max(law.reply_share, last))
    if what == "observation" and last < 1:
        shares = (shares[0] / (1 - last), (shares[1] - last) / (1 - last))
    mean = 1 + shares[0] * (write - 1) + shares[1] * (reply - 1)
    return [{Effect.WRITE: write, Effect.REPLY: reply}.get(e, 1.0) / mean for e in effects]


def poisson(mean: float, u: float) -> int:
    """The Poisson quantile of a uniform; a normal approximation for large means."""
    if mean <= 0:
        return 0
    if mean > 500:
        from statistics import NormalDist

        return max(0, round(mean + math.sqrt(mean) * NormalDist().inv_cdf(min(max(u, 1e-12), 1 - 1e-12))))
    k, p = 0, math.exp(-mean)
    total = p
    while u > total and k < 10 * mean + 100:
        k += 1
        p *= mean / k
        total += p
    return k


def lognormal(mean: float, sigma: float, z: list[float]) -> list[float]:
    """Lognormal values with the given mean: mean * exp(sigma z - sigma^2 / 2)."""
    return [mean * math.exp(sigma * x - sigma * sigma / 2) for x in z]


def effects_of(law: WorkloadLaw, count: int, u: list[float]) -> list[Effect]:
    """Reads, with writes at the ends of equal stretches, replies in the middle of the rest, and a last reply."""
    effects = [Effect.READ] * (count - 1) + [Effect.REPLY]
    writes = min(count - 1, math.floor(law.write_share * count + u[-1]))
    for k in range(writes):
        effects[(k + 1) * (count - 1) // writes - 1] = Effect.WRITE
    free = [j for j in range(count - 1) if effects[j] is Effect.READ]
    replies = min(len(free), max(0, math.floor(law.reply_share * count + u[-2]) - 1))
    for j in sorted(free, key=lambda j: (u[j], j))[:replies]:
        effects[j] = Effect.REPLY
    return effects


def calls(effect: Effect, count: int, latency_s: float) -> tuple[ToolCall, ...]:
    """Equal calls of one tool."""
    name = f"{effect.value}_tool"
    return (ToolCall(name=name, effect=effect, latency_s=latency_s),) * count
