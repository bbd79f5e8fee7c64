"""Success of a trajectory as a chain of clean and tainted states, in closed form.

    q_weak = w,   q_strong = u,   q_spec = w (1 - d) + (1 - a) u,   a = (1 - w)(1 - f) + w (1 - d)
    S_N = g/(g+q) + q/(g+q) (1 - q - g)^N

A committed step taints a clean trajectory with hazard q; a tainted one is mended with probability g per step; a
trajectory that is clean at its end succeeds. q_spec holds for any window when detection and false rejection do not
depend on the position in the segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Num = Any


def implied_acceptance(weak_hazard: Num, detection: Num, false_reject: Num) -> Num:
    """Acceptance that a reviewer's errors imply: (1 - w)(1 - f) + w (1 - d)."""
    return (1.0 - weak_hazard) * (1.0 - false_reject) + weak_hazard * (1.0 - detection)


def step_hazard(
    strategy: str,
    weak_hazard: Num,
    strong_hazard: Num,
    detection: Num,
    false_reject: Num,
    acceptance: Num | None = None,
) -> Num:
    """Probability that a committed step is wrong.

    A known `acceptance` takes the place of the implied one: what it lacks is put down to valid steps rejected, so it
    changes how often the strong model writes, not how often a wrong draft slips through.

    Limits
    ------
    Errors of drafter, reviewer and strong author are taken as independent given the hazards. Steps that
    `spec_agent_adaptive` lets the strong model write unreviewed count as reviewed ones. Routers have no hazard of
    their own: each step has its author's (`success_along`).
    """
    if strategy in ("strong_only", "token_speculation", "step_speculation"):
        return strong_hazard
    if strategy == "weak_only":
        return weak_hazard
    accepted = implied_acceptance(weak_hazard, detection, false_reject) if acceptance is None else acceptance
    return weak_hazard * (1.0 - detection) + (1.0 - accepted) * strong_hazard


def success(hazard: Num, recovery: Num, n_steps: Num) -> Num:
    """S_N of the chain; hazard and recovery both 0 give 1."""
    total = np.asarray(hazard, dtype=float) + recovery
    share = np.where(total > 0, hazard / np.where(total > 0, total, 1.0), 0.0)
    return 1.0 - share * (1.0 - (1.0 - total) ** n_steps)


def success_along(hazards: Sequence[Num], recovery: Num) -> Num:
    """The chain with a hazard per step: C_j = C_{j-1} (1 - q_j) + (1 - C_{j-1}) g from C_0 = 1; S_N = C_N.

    Exact for authors that are drawn step by step: q_j is then the mean of theirs.
    """
    clean: Num = 1.0
    for q in hazards:
        clean = clean * (1.0 - q) + (1.0 - clean) * recovery
    return np.asarray(clean, dtype=float)
