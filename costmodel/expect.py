"""`expect`: the exact expectation of a trajectory's ledger under a strategy, on idle engines.

Each round is replayed once per possible verdict into a hardware-free *tape* of rows (`compile_tape`); a forward pass
over reachable session states gives each branch's expected count for any number of acceptance values at once, and
pricing the rows gives the ledger:

    V(i, r) = sum_{a=0..n} P(a) [ C(i, r, a) + V(i + a + [a < n], [a < n]) ],   P(a) = prod_{m<a} p_m (1 - p_a)

with the state r generalised to what both caches hold, so that block flooring and saved recurrent states are exact, and
to what the strategy remembers. A router's coin is a branching like a verdict. Where the models work at the same time,
which of them is first depends on the prices: `costmodel.races`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from costmodel.acceptance import MATCH_PRIOR, AcceptanceLaw, expit
from costmodel.cost import COLUMNS, PHASES
from costmodel.overlapping import Pipelined, StepSpeculation
from costmodel.pricing import Pricing
from costmodel.protocol import Role, Strategy
from costmodel.race_expect import expect_race
from costmodel.races import Race
from costmodel.round_result import COUNTS
from costmodel.session import ProtocolSizes
from costmodel.strategies import SpecAgent
from costmodel.tape import Array, Expected, Tape, compile_rounds
from costmodel.task import Task

__all__ = ["Expected", "Race", "Tape", "branch_weights", "compile_tape", "expect", "fit_shift", "mean_acceptance"]


def compile_tape(
    strategy: Strategy, tasks: Sequence[Task], law: AcceptanceLaw, pricing: Pricing, sizes: ProtocolSizes
) -> Tape | Race:
    """Replay a strategy over all reachable states of all tasks, or get ready to where its models work at once.

    `pricing` supplies cache rules and row shapes only: the result holds no seconds, so it serves any factors and any
    acceptance of the same law's shape.

    Raises
    ------
    InputError
        What the strategy does depends on elapsed time: its expectation is not available.
    """
    if isinstance(strategy, Pipelined | StepSpeculation):
        return Race(strategy, tuple(tasks), law, pricing, sizes)
    return compile_rounds(strategy, tasks, law, pricing, sizes)


def branch_weights(tape: Tape, shift: Array) -> Array:
    """Expected number of times each branch is taken per trajectory: array (n_samples, n_branches).

    `shift` holds one acceptance shift per sample. The branches of a reviewed node are numbered: all accepted first,
    then 0, 1, .. n-1 accepted.
    """
    shift = np.atleast_1d(np.asarray(shift, dtype=float))
    chance = np.zeros((len(shift), tape.n_branches))
    chance[:, tape.sure] = 1.0
    for n, (first, offsets) in tape.reviews.items():
        p = expit(shift[:, None, None] + offsets[None])
        survive = np.concatenate([np.ones((*p.shape[:2], 1)), np.cumprod(p, axis=2)], axis=2)
        chance[:, first] = survive[:, :, n]
        for a in range(n):
            chance[:, first + 1 + a] = survive[:, :, a] * (1.0 - p[:, :, a])
    heads, share = tape.coins
    chance[:, heads], chance[:, heads + 1] = share, 1.0 - share
    occupancy = np.zeros((len(shift), tape.n_nodes + 1))
    occupancy[:, tape.starts] = 1.0 / tape.n_tasks
    for branch, origin, to in tape.levels:
        chance[:, branch] *= occupancy[:, origin]
        np.add.at(occupancy.T, to, chance[:, branch].T)
    return chance


def mean_acceptance(tape: Tape, shift: Array) -> Array:
    """Mean acceptance over the steps that reviews reach, per sample; NaN where nothing is reviewed."""
    shift = np.atleast_1d(np.asarray(shift, dtype=float))
    weights = branch_weights(tape, shift)
    kept = np.zeros(len(shift))
    reached = np.zeros(len(shift))
    for n, (first, _) in tape.reviews.items():
        for a in range(n + 1):
            w = weights[:, first if a == n else first + 1 + a].sum(axis=1)
            kept += w * a
            reached += w * (a + (a < n))
    with np.errstate(invalid="ignore"):
        return kept / reached


def fit_shift(tape: Tape | Race, law: AcceptanceLaw, mean: Array) -> Array:
    """The shift per sample that gives `mean` acceptance over reviewed steps: exact for a flat law, else by iteration.

    For overlapping strategies the steps are those that `spec_agent` has reviewed at the same window.
    On the logit scale the mean moves almost one for one with the shift, so each correction is the remaining error.

    Limits
    ------
    A mean of exactly 0 or 1 maps to an infinite shift.
    """
    mean = np.atleast_1d(np.asarray(mean, dtype=float))
    with np.errstate(divide="ignore"):
        guess = np.log(mean) - np.log1p(-mean)
    if law.is_flat:
        return guess
    if isinstance(tape, Race):
        reference = SpecAgent("spec_agent", tape.playing.window if isinstance(tape.playing, Pipelined) else 1)
        tape = compile_rounds(reference, tape.tasks, law, tape.pricing, tape.sizes)
    if not tape.reviews:
        return guess
    shift, sure = guess.copy(), np.isinf(guess)
    for _ in range(60):
        reached = mean_acceptance(tape, shift)
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.where(sure, 0.0, np.log(reached) - np.log1p(-reached) - guess)
        if np.all(np.abs(error) < 1e-12):
            break
        shift = np.where(sure, guess, shift - error)
    return shift


def expect(tape: Tape | Race, shift: Any, pricing: Pricing, match: Any = MATCH_PRIOR[0]) -> Expected:
    """Expected ledger of a tape at given acceptance shifts and prices.

    Parameters
    ----------
    shift : float or array (n_samples,)
        Acceptance shift per sample.
    pricing : Pricing
        Scalar factors, or arrays (n_samples, 1) that pair with `shift`.
    match : float or array (n_samples,)
        Probability of a literal match, for `step_speculation` alone.
    """
    if isinstance(tape, Race):
        return expect_race(tape, shift, pricing, match)
    weights = branch_weights(tape, shift)
    used = np.asarray((tape.use.T @ weights.T).T)
    cost = pricing.rows(tape.rows)
    n = len(weights)
    if cost.ndim == 3 and cost.shape[1] != n:
        n = cost.shape[1]
        used = np.broadcast_to(used, (n, used.shape[1]))
    ledger = np.zeros((n, len(PHASES), len(COLUMNS)))
    for phase in range(len(PHASES)):
        mine = np.flatnonzero(tape.entries[:, 1] == phase)
        if len(mine):
            block = cost[..., tape.entries[mine, 0]]
            amounts = used[:, mine]
            ledger[:, phase, :] = (
                np.einsum("se,ce->sc", amounts, block) if block.ndim == 2 else np.einsum("se,cse->sc", amounts, block)
            )
    counts = np.asarray(np.broadcast_to(weights @ tape.counts, (n, len(COUNTS))))
    busy = cost[COLUMNS.index("busy_s")][..., tape.entries[:, 0]] * used
    of_role = {role: np.array([tape.rows[i].role is role for i in tape.entries[:, 0]]) for role in Role}
    return Expected(tape.strategy, ledger, counts, {role: busy[:, mine].sum(axis=1) for role, mine in of_role.items()})
