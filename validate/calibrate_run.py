"""A calibration from end to end: of a server that answers, or of times that somebody else measured."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from costmodel.deployment import Deployment, cache_rule, kv_capacity_tokens
from hwprofiles.errors import InputError
from validate.accuracy.tables import Row
from validate.calibrate import Evidence, Fitted, felt, fit
from validate.calibrate_missing import missing
from validate.calibrate_model import Pricer
from validate.calibrate_prior import prior
from validate.calibrate_probe import Prober, Sample, ServerFacts, Target, arrays, limits
from validate.calibrate_tables import evidence_of
from validate.design import Limits, candidates, choose
from validate.engine import EngineError
from validate.held_out import checked, random_points

_ANY = Limits(max_model_tokens=40_000, kv_tokens=400_000)
"""A server that would be measured to fill the gaps of a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """A calibration: the fit, what it could not tell and what is missing for it, and what else there is to say.

    `counters` is what `validate.counters_server.compared` says of a server that counts FLOPs and bytes, `check` what
    `validate.held_out.checked` says of points outside the fit.
    """

    deployment: Deployment
    fitted: Fitted
    missing: dict[str, str]
    facts: ServerFacts | None = None
    notes: list[str] = field(default_factory=list)
    counters: dict[str, Any] | None = None
    check: dict[str, Any] | None = None


async def calibrate_target(
    dep: Deployment,
    target: Target,
    budget_s: float,
    *,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
    each: Callable[[Sample], None] = lambda _: None,
    check: int = 0,
) -> Calibrated:
    """Choose what to measure on a server, measure it and fit.

    Parameters
    ----------
    dep : Deployment
        What runs there; its block size gives way to the server's own.
    budget_s : float
        Seconds of the target's clock for all measurements.
    each : callable
        Told of every sample as soon as it is there.
    check : int
        Points drawn at random that are timed after the fit, which does not see them; they come on top of the budget.

    Raises
    ------
    InputError
        The budget is too short for any point, or nothing could be identified.
    EngineError
        The server fails.
    """
    facts = target.facts
    dep = _with_blocks(dep, facts)
    room = _limits(dep, facts)
    points = candidates(room)
    if not points:
        raise InputError(f"{dep.label}: the server takes requests of {room.max_model_tokens} tokens, too few to time")
    known = felt(prior(dep), [Pricer(dep, points).seconds])
    chosen = choose(dep, known, room, budget_s)
    if not chosen:
        raise InputError(f"{dep.label}: no measurement fits into a budget of {budget_s:g} s; give a longer --budget")
    prober = Prober(target, dep.model.vocab, cache_rule(dep).block_tokens, seed)
    samples, notes = await prober.measure(chosen, budget_s, progress, each)
    if not samples:
        raise InputError(f"nothing was measured within the budget of {budget_s:g} s; give a longer --budget")
    found = await asyncio.to_thread(calibrate_samples, [(dep, samples)], facts, notes)
    if not check:
        return found
    try:
        others, more = await prober.measure(random_points(room, check, seed), budget_s, progress)
    except EngineError as error:
        return replace(found, notes=[*found.notes, f"the fit is not checked on other points: {error}"])
    return replace(found, check=checked(dep, found.fitted, others), notes=[*found.notes, *more])


def calibrate_samples(
    parts: Sequence[tuple[Deployment, Sequence[Sample]]], facts: ServerFacts, notes: Sequence[str] = ()
) -> Calibrated:
    """Fit to points timed on a device, of one model or of several; the first deployment gives the calibration its name.

    Parameters
    ----------
    parts : sequence of (Deployment, samples)
        All on one device and engine.
    facts : ServerFacts
        Of the first; the block size gives way to the server's own.

    Raises
    ------
    InputError
        Nothing could be identified.
    """
    parts = [(_with_blocks(dep, facts), samples) for dep, samples in parts]
    dep = parts[0][0]
    room = _limits(dep, facts)
    evidence = []
    for one, samples in parts:
        measured_s, sigma = arrays(samples)
        served = [s.point for s in samples]
        mark = f"{one.model.name.split('/')[-1]}: " if len(parts) > 1 else ""
        labels = tuple(f"{mark}{p.label}" for p in served)
        seconds = Pricer(one, served).seconds
        evidence.append(Evidence(seconds=seconds, measured_s=measured_s, sigma=sigma, labels=labels))
    known = felt(prior(dep), [Pricer(dep, candidates(room)).seconds])
    return _checked(dep, fit(known, evidence), room, facts, [*notes, *_room(dep, facts)])


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


def _limits(dep: Deployment, facts: ServerFacts) -> Limits:
    return limits(facts, kv_capacity_tokens(dep), dep.model.max_context_tokens or 1 << 20, dep.engine.max_seqs)


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
