"""Measured beside predicted: each measured path walked through the cost model with its own sizes and verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodel.draws import Draws
from costmodel.prediction import Prediction, predict
from costmodel.pricing import Pricing, central_factors
from costmodel.protocol import Role, Strategy
from costmodel.session import EngineRequest, ProtocolSizes, first_state
from costmodel.task import Task, TaskStep
from costmodel.trajectory import Effect
from costmodel.walk import Walk, forced, walk
from hwprofiles.errors import InputError
from simulator.case import Case
from simulator.playing import playing
from simulator.sampling import draw_samples, inputs
from validate.design import SIGMA
from validate.journal import Journal

METRICS: tuple[str, ...] = ("time_s", "strong_output_tokens", "weak_output_tokens", "requests")
"""What is compared, per finished task."""

_SAMPLES = 16
RESIDUAL = SIGMA
"""Standard deviation of log(measured / predicted) under the right factors: what the step model misses on a device that
it was calibrated on, the noise that a calibration grants each of its points."""
_NODES = (np.arange(9) + 0.5) / 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """One finished task as it went: its steps as a `Task`, what was measured, and what chance decided of each step.

    `kept` are accepted drafts, `weak` steps that the weak model wrote, `matched` ones whose call had been guessed.
    `held_tokens` is what each role's first request found in the cache, which an earlier task may have filled.
    """

    name: str
    task: Task
    kept: tuple[bool, ...]
    weak: tuple[bool, ...]
    matched: tuple[bool, ...]
    sizes: ProtocolSizes
    held_tokens: Mapping[Role, int]
    measured: Mapping[str, float]


def paths(journal: Journal, repair_mode: str = "fresh") -> tuple[Path, ...]:
    """The finished tasks of a journal, with the token counts that the engines reported.

    Limits
    ------
    Visible tokens are the decoded ones less the thinking that the engine reports (`thinking_tokens`), if it does. A
    position drafted more than once is given the length of its last draft each time.
    """
    by_task: dict[str, list[dict[str, Any]]] = {}
    for event in journal.events():
        by_task.setdefault(event["task"], []).append(event)
    found = (_path(name, events, repair_mode) for name, events in by_task.items())
    return tuple(p for p in found if p is not None)


def _path(name: str, events: Sequence[Mapping[str, Any]], repair_mode: str) -> Path | None:
    end = next((e for e in events if e["kind"] == "finished" and e["status"] == "finished"), None)
    if end is None:
        return None
    asked = [e for e in events if e["kind"] == "asked"]
    committed = [
        s for e in sorted((e for e in events if e["kind"] == "committed"), key=lambda e: e["round"]) for s in e["steps"]
    ]
    intents = {e["slot"]: e for e in events if e["kind"] == "intent"}
    wrote = {(a["round"], a["slot"]): a for a in asked}
    decoded = {(a["role"], a["step"]): max(1, a["output_tokens"]) for a in asked if a["ask"] != "verify"}
    prompts = _prompts(asked, len(committed))
    steps = []
    for j, s in enumerate(committed):
        intent = intents[s["keys"][0]]
        answer = wrote[intent.get("asked_in", intent["round"]), intent["asked"]]
        thinking = int(answer["server"].get("thinking_tokens", 0))
        own = max(1, s["output_tokens"])
        visible = max(1, own - thinking)
        grown = prompts[j + 1] - prompts[j] - visible if j + 1 < len(committed) else 0
        weak, strong = (own if s["author"] == r else decoded.get((r, j), own) for r in ("weak", "strong"))
        steps.append(TaskStep(j, Effect(s["effect"]), visible, weak, strong, max(0, grown), _tool_s(events, s["keys"])))
    kept = tuple(intents[s["keys"][0]]["origin"] == "d" for s in committed)
    task = Task(name, ((Role.WEAK, prompts[0]), (Role.STRONG, prompts[0])), 0, tuple(steps))
    start_s = next(e["at_s"] for e in events if e["kind"] == "task")
    tokens = {r: sum(a["output_tokens"] for a in asked if a["role"] == r) for r in ("weak", "strong")}
    measured = {
        "time_s": end["at_s"] - start_s,
        "strong_output_tokens": float(tokens["strong"]),
        "weak_output_tokens": float(tokens["weak"]),
        "requests": float(len(asked)),
    }
    verdicts = [e for e in events if e["kind"] == "verdict"]
    sizes = _sizes(asked, verdicts, task, repair_mode)
    reused = {e["slot"] for e in events if e["kind"] == "reused"}
    return Path(
        name=name,
        task=task,
        kept=kept,
        weak=tuple(s["author"] == "weak" for s in committed),
        matched=tuple(s["keys"][0] in reused for s in committed),
        sizes=sizes,
        held_tokens={role: _held(asked, role) for role in Role},
        measured=measured,
    )


def _held(asked: Sequence[Mapping[str, Any]], role: Role) -> int:
    """Cached tokens of a role's first request, 0 where it made none or the engine does not tell."""
    first = next((a for a in asked if a["role"] == role), None)
    return 0 if first is None else int(first["cached_tokens"] or 0)


def _prompts(asked: Sequence[Mapping[str, Any]], n: int) -> list[int]:
    """Prompt tokens before each committed step: of the last request that wrote it on the plain chat."""
    found: dict[int, int] = {}
    for a in asked:
        if a["ask"] in ("write", "draft") or a["step"] not in found:
            found[a["step"]] = a["prompt_tokens"]
    return [found[j] for j in range(n)]


def _tool_s(events: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> float:
    mine = [e for e in events if e["kind"] == "effect" and e["slot"] in keys and "start_s" in e]
    return float(sum(e["end_s"] - e["start_s"] for e in mine))


def _sizes(
    asked: Sequence[Mapping[str, Any]], verdicts: Sequence[Mapping[str, Any]], task: Task, repair_mode: str
) -> ProtocolSizes:
    """Instruction and verdict tokens as measured: what a review's prompt holds beyond its segment.

    The segment's length is known where all of it was accepted and so stands in the task; without such a review, that
    of the steps in its place is taken.
    """
    reviews = [a for a in asked if a["ask"] == "verify"]
    if not reviews:
        return ProtocolSizes(repair_mode=repair_mode)
    verdict = int(np.median([a["output_tokens"] for a in reviews]))
    contexts = task.contexts[Role.STRONG]
    said = {(v["round"], v["slot"]): v for v in verdicts}
    whole = [a for a in reviews if (v := said[a["round"], a["slot"]])["accepted"] == v["reviewed"]]
    beyond = []
    for a in whole or reviews:
        last = a["step"] + said[a["round"], a["slot"]]["reviewed"] - 1
        if last < len(task.steps):
            held = task.steps[last].effect not in (Effect.READ, Effect.PURE)
            end = contexts[last] + task.steps[last].visible if held else contexts[last + 1]
            beyond.append(a["prompt_tokens"] - end)
    instruction = int(np.median(beyond)) if beyond else 0
    return ProtocolSizes(max(0, instruction), max(1, verdict), repair_mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Per metric: measured and predicted means, their errors, share inside the band, and all (measured, predicted).

    `bands` are the 90 % bands of each task's time.
    """

    measured: Mapping[str, float]
    predicted: Mapping[str, Prediction]
    errors: Mapping[str, Mapping[str, float]]
    in_band: Mapping[str, float]
    pairs: Mapping[str, tuple[tuple[float, float], ...]]
    bands: tuple[tuple[float, float], ...]
    n: int


def compare(case: Case, strategy: str, found: Sequence[Path]) -> Comparison:
    """Walk every measured path with its own verdicts and compare.

    Raises
    ------
    InputError
        No task finished.
    """
    if not found:
        raise InputError(f"{strategy}: no task finished, so there is nothing to compare")
    how = playing(case.scenario, strategy)
    samples = draw_samples(inputs(case), _SAMPLES, case.scenario.run.seed)
    names = central_factors(case.sites)
    central = Pricing(case.sites)
    spread = [Pricing(case.sites, {k: float(v[i]) for k, v in samples.items() if k in names}) for i in range(_SAMPLES)]
    guesses = {m: [_walked(p, how, central, m) for p in found] for m in METRICS}
    bands = [[_walked(p, how, s, "time_s") for s in spread] for p in found]
    predicted, inside, means, pairs = {}, {}, {}, {}
    edges: tuple[tuple[float, float], ...] = ()
    for m in METRICS:
        x = np.array([p.measured[m] for p in found])
        y = np.array(guesses[m])
        per_task = [
            predict(y[i], with_residual(bands[i])) if m == "time_s" else predict(y[i], [y[i]])
            for i in range(len(found))
        ]
        means[m] = float(x.mean())
        if m == "time_s":
            edges = tuple((p.low, p.high) for p in per_task)
        predicted[m] = predict(float(y.mean()), with_residual(np.mean(bands, axis=0)) if m == "time_s" else [y.mean()])
        pairs[m] = tuple(zip(x.tolist(), y.tolist(), strict=True))
        inside[m] = float(
            np.mean([p.low * (1 - 1e-9) <= v <= p.high * (1 + 1e-9) for p, v in zip(per_task, x, strict=True)])
        )
    errors = {m: errors_of(p) for m, p in pairs.items()}
    return Comparison(
        measured=means, predicted=predicted, errors=errors, in_band=inside, pairs=pairs, bands=edges, n=len(found)
    )


def with_residual(times_s: Any) -> Any:
    """Times under draws of the factors, (n, ...), each with what the step model itself may miss, (9 n, ...).

    t exp(RESIDUAL z),  z at nine points of equal share of the normal distribution
    """
    from scipy.special import ndtri

    off = np.exp(RESIDUAL * ndtri(_NODES))
    spread = np.multiply.outer(off, np.asarray(times_s, dtype=float))
    return spread.reshape(-1, *spread.shape[2:])


def errors_of(pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Median absolute relative error, and bias `sum(predicted) / sum(measured) - 1`, of (measured, predicted) pairs.

    Where nothing was measured, nothing predicted is no error and anything else is one of 1.
    """
    x, y = np.array(pairs).T
    relative = np.where(x > 0, np.abs(y - x) / np.where(x > 0, x, 1.0), np.where(y > 0, 1.0, 0.0))
    return {"median_ape": float(np.median(relative)), "bias": float(y.sum() / x.sum() - 1.0) if x.sum() else 0.0}


def walk_of(p: Path, how: Strategy, pricing: Pricing) -> Walk:
    """A measured path walked through the cost model: its own sizes, and what chance had decided of each step."""
    draws = Draws(forced(p.kept), lambda i: p.matched[i], lambda i, _share: p.weak[i])
    return walk(p.task, how, draws, pricing, p.sizes, first_state(pricing.rules, p.held_tokens))


def _walked(p: Path, how: Strategy, pricing: Pricing, metric: str) -> float:
    done = walk_of(p, how, pricing)
    if metric == "time_s":
        return done.wall_s
    works = [w for r in done.rounds for w in r.works if isinstance(w, EngineRequest)]
    if metric == "requests":
        return float(len(works))
    role = Role.STRONG if metric.startswith("strong") else Role.WEAK
    return float(sum(w.output_tokens for w in works if w.role is role))
