"""A calibration from end to end: of a server that answers, or of times that somebody else measured."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from costmodel.deployment import Deployment, cache_rule, kv_capacity_tokens
from hwprofiles.errors import InputError
from validate.accuracy.tables import Row
from validate.calibrate import Evidence, Fitted, felt, fit
from validate.calibrate_missing import missing
from validate.calibrate_model import Pricer
from validate.calibrate_prior import prior
from validate.calibrate_probe import Prober, ServerFacts, Target, arrays, limits
from validate.calibrate_tables import evidence_of
from validate.design import Limits, candidates, choose

_ANY = Limits(max_model_tokens=40_000, kv_tokens=400_000)
"""A server that would be measured to fill the gaps of a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """A calibration: the fit, what it could not tell and what is missing for it, and what else there is to say."""

    deployment: Deployment
    fitted: Fitted
    missing: dict[str, str]
    facts: ServerFacts | None = None
    notes: list[str] = field(default_factory=list)


async def calibrate_target(
    dep: Deployment, target: Target, budget_s: float, *, seed: int = 0, progress: Callable[[str], None] = lambda _: None
) -> Calibrated:
    """Choose what to measure on a server, measure it and fit.

    Parameters
    ----------
    dep : Deployment
        What runs there; its block size gives way to the server's own.
    budget_s : float
        Seconds of the target's clock for all measurements.

    Raises
    ------
    InputError
        The budget is too short for any point, or nothing could be identified.
    EngineError
        The server fails.
    """
    facts = target.facts
    dep = _with_blocks(dep, facts)
    room = limits(facts, kv_capacity_tokens(dep), dep.model.max_context_tokens or 1 << 20, dep.engine.max_seqs)
    points = candidates(room)
    if not points:
        raise InputError(f"{dep.label}: the server takes requests of {room.max_model_tokens} tokens, too few to time")
    known = felt(prior(dep), [Pricer(dep, points).seconds])
    chosen = choose(dep, known, room, budget_s)
    if not chosen:
        raise InputError(f"{dep.label}: no measurement fits into a budget of {budget_s:g} s; give a longer --budget")
    prober = Prober(target, dep.model.vocab, cache_rule(dep).block_tokens, seed)
    samples, notes = await prober.measure(chosen, budget_s, progress)
    if not samples:
        raise InputError(f"nothing was measured within the budget of {budget_s:g} s; give a longer --budget")
    measured_s, sigma = arrays(samples)
    served = [s.point for s in samples]
    pricer = Pricer(dep, served)
    evidence = Evidence(
        seconds=pricer.seconds, measured_s=measured_s, sigma=sigma, labels=tuple(p.label for p in served)
    )
    fitted = await asyncio.to_thread(fit, known, [evidence])
    return _checked(dep, fitted, room, facts, [*notes, *_room(dep, facts)])


def calibrate_rows(dep: Deployment, rows: Sequence[Row], facts: ServerFacts | None = None) -> Calibrated:
    """Fit to measured rows of a table; raises `InputError` where nothing in it can be used or identified."""
    evidence, left = evidence_of(rows, dep)
    known = felt(prior(dep), [Pricer(dep, candidates(_ANY)).seconds, *(e.seconds for e in evidence)])
    notes = [f"{n} rows left out: {reason}" for reason, n in left.items()]
    return _checked(dep, fit(known, evidence), _ANY, facts, notes)


def _checked(dep: Deployment, fitted: Fitted, room: Limits, facts: ServerFacts | None, notes: list[str]) -> Calibrated:
    lacking = missing(dep, fitted, room)
    if len(lacking) == len(fitted.prior.names):
        worst = "; ".join(f"{name}: {text}" for name, text in list(lacking.items())[:3])
        raise InputError(f"{fitted.n} measured times identify no factor of {dep.label}: {worst}")
    if fitted.misfit > 2.0:
        notes.append(
            f"the times scatter {fitted.misfit:.1f} times more than a quiet server's; was something else running, or "
            "is the model, the device or its number another one?"
        )
    return Calibrated(deployment=dep, fitted=fitted, missing=lacking, facts=facts, notes=notes)


def _with_blocks(dep: Deployment, facts: ServerFacts) -> Deployment:
    """The deployment with the server's block size, where prefixes are found by pages."""
    if facts.block_tokens is None or cache_rule(dep).state_aligned:
        return dep
    return replace(dep, engine=replace(dep.engine, page_tokens=facts.block_tokens))


def _room(dep: Deployment, facts: ServerFacts) -> list[str]:
    """A note where the server's KV cache is another size than planning takes it to be."""
    if not facts.kv_blocks or not facts.block_tokens:
        return []
    told, planned = facts.kv_blocks * facts.block_tokens, kv_capacity_tokens(dep)
    if 0.8 < told / planned < 1.25:
        return []
    return [f"the server's KV cache holds {told} tokens, planning takes it to hold {planned}"]
