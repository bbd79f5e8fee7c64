"""`validate --replay` as one call: both servers, every strategy, measured beside simulated."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.deployment import Deployment
from costmodel.prediction import Prediction, predict
from costmodel.pricing import Pricing, central_factors
from costmodel.protocol import Role
from costmodel.strategies import STRATEGY_NAMES
from hwprofiles.errors import InputError, unknown_name
from simulator.case import Case
from simulator.results import RunResult
from simulator.run import acceptance_shift, simulate
from simulator.sampling import draw_samples, inputs
from simulator.scenario_file import to_document
from validate.calibrate_targets import HttpTarget
from validate.compare import errors_of, with_residual
from validate.counters_server import Counted
from validate.phases import beside, measured_phases
from validate.replay import Lane, Replay
from validate.replay_lanes import HttpLane, Stage, VirtualLane
from validate.report_engines import FAKE

METRICS = ("time_s", "strong_output_tokens", "weak_output_tokens", "n_rounds")
_SAMPLES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One strategy: the measured run, the simulated one, and per metric all (measured, predicted) pairs.

    `bands` are the 90 % bands of the time of each trajectory, (n, 2), and `predicted` the means with their bands;
    `counters` by role what `validate.counters_server.compared` says, None where a server does not count.
    """

    run: RunResult
    simulated: RunResult
    pairs: Mapping[str, tuple[tuple[float, float], ...]]
    bands: Any
    predicted: Mapping[str, Prediction]
    counters: Mapping[str, dict[str, Any] | None]

    @property
    def in_band(self) -> float:
        """Share of trajectories whose time lies in its band."""
        x = np.array([m for m, _ in self.pairs["time_s"]])
        return float(np.mean((self.bands[:, 0] <= x) & (x <= self.bands[:, 1])))


def replay(
    case: Case,
    weak: str,
    strong: str,
    *,
    strategies: Sequence[str] | None = None,
    agents: int = 1,
    n: int = 10,
    out: Path | None = None,
    samples: int = _SAMPLES,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Replayed]:
    """Force the scenario's trajectories onto servers and simulate the same ones.

    Parameters
    ----------
    weak, strong : str
        URLs of servers that take token ids and honour `ignore_eos`, or both `fake:`, fake servers on a virtual clock.
    agents, n : int
        Agents at once, and trajectories that count.
    out : Path or None
        Folder for the measured runs.
    samples : int
        Factor sets behind the bands.

    Raises
    ------
    InputError
        Arguments that do not go together, or a scenario that cannot be replayed.
    EngineError
        A server fails.
    """
    names = tuple(dict.fromkeys(map(str, strategies or case.scenario.strategies)))
    for name in names:
        if name not in STRATEGY_NAMES:
            raise unknown_name("strategy", name, STRATEGY_NAMES)
    if (weak == FAKE) != (strong == FAKE):
        raise InputError("--weak and --strong are both URLs or both 'fake:'; one clock cannot be real and virtual")
    load = replace(case.scenario.load, concurrency=agents, n_trajectories=n, arrival_rate_per_s=None, arrivals=None)
    case = replace(case, scenario=replace(case.scenario, load=load), arrivals=None)
    central = Pricing(case.sites)
    shift = acceptance_shift(case, central)
    found = {}
    for name in names:
        progress(f"{name}: {n} trajectories, {agents} at once")
        run, counted = asyncio.run(_play(case, name, (weak, strong), agents, n, shift))
        if out is not None:
            run.save(out / name)
        found[name] = _compared(case, name, run, counted, samples, central, shift)
    return found


async def _play(
    case: Case, name: str, urls: tuple[str, str], agents: int, n: int, shift: float
) -> tuple[RunResult, dict[str, dict[str, Any] | None]]:
    if urls[0] == FAKE:
        stage = Stage()
        lanes: dict[Role, Lane] = {role: VirtualLane(_deployment(case, role), stage) for role in Role}
        run = await stage.play(Replay(case, name, lanes, agents, shift=shift).run(n))
        return run, {str(role): None for role in Role}
    async with AsyncExitStack() as stack:
        lanes, targets = {}, {}
        for role, url in zip((Role.WEAK, Role.STRONG), urls, strict=True):
            target = HttpTarget(url, tell_ids=True)
            stack.push_async_callback(target.close)
            targets[role] = Counted(target)
            lanes[role] = HttpLane(targets[role])
            await targets[role].begin()
        fresh = secrets.token_hex(4)
        run = await Replay(case, name, lanes, agents, shift=shift, salt=fresh).run(n)
        return run, {str(role): await target.compared(_deployment(case, role)) for role, target in targets.items()}


def _deployment(case: Case, role: Role) -> Deployment:
    server = case.sites[role].server
    if not isinstance(server, Deployment):
        raise InputError(f"the {role} side is an API; a replay needs servers whose token counts can be forced")
    return server


def _compared(
    case: Case,
    name: str,
    run: RunResult,
    counted: Mapping[str, dict[str, Any] | None],
    samples: int,
    central: Pricing,
    shift: float,
) -> Replayed:
    simulated = simulate(case, name, pricing=central, shift=shift)
    names = central_factors(case.sites)
    drawn = draw_samples(inputs(case), samples, case.scenario.run.seed)
    mine = _finished(run)
    at = [t for t in _finished(simulated).index if t in set(mine.index)]
    if not at:
        raise InputError(f"{name}: no trajectory finished both for real and in the simulation")
    spread = []
    for i in range(samples):
        pricing = Pricing(case.sites, {k: float(v[i]) for k, v in drawn.items() if k in names})
        other = _finished(simulate(case, name, details=False, pricing=pricing, shift=shift))
        spread.append(other["time_s"].reindex(at).to_numpy(dtype=float))
    guesses = _finished(simulated)
    times = np.array(spread)
    times = np.where(np.isfinite(times), times, guesses["time_s"].loc[at].to_numpy(dtype=float)[None, :])
    pairs = {}
    predicted = {}
    for metric in METRICS:
        x, y = (frame[metric].loc[at].to_numpy(dtype=float) for frame in (mine, guesses))
        pairs[metric] = tuple(zip(x.tolist(), y.tolist(), strict=True))
        predicted[metric] = predict(
            float(y.mean()), with_residual(times.mean(axis=1)) if metric == "time_s" else [y.mean()]
        )
    each = [predict(y, with_residual(times[:, i])) for i, (_, y) in enumerate(pairs["time_s"])]
    return Replayed(
        run=run,
        simulated=simulated,
        pairs=pairs,
        bands=np.array([[p.low, p.high] for p in each]),
        predicted=predicted,
        counters=counted,
    )


def _finished(run: RunResult) -> Any:
    frame = run.trajectories
    return frame[frame["counted"] & (frame["status"] == "finished")].set_index("trajectory")


def document(case: Case, found: Mapping[str, Replayed]) -> dict[str, Any]:
    """Everything as plain values, in the layout of `validate`'s JSON."""
    pooled = {m: [pair for r in found.values() for pair in r.pairs[m]] for m in METRICS}
    n = sum(len(r.bands) for r in found.values())
    return {
        "mode": "replay",
        "scenario": to_document(case.scenario),
        "measured": {s: {m: float(np.mean([x for x, _ in r.pairs[m]])) for m in METRICS} for s, r in found.items()},
        "predicted": {s: {m: p.to_dict() for m, p in r.predicted.items()} for s, r in found.items()},
        "errors": {m: errors_of(p) for m, p in pooled.items()},
        "in_band": {"time_s": sum(r.in_band * len(r.bands) for r in found.values()) / n},
        "phases": {s: beside(measured_phases(r.run), measured_phases(r.simulated)) for s, r in found.items()},
        "requests": {s: _requests(r) for s, r in found.items()},
        "counters": {s: dict(r.counters) for s, r in found.items()},
        "held": None,
        "ranking": ranking({s: r.predicted["time_s"] for s, r in found.items()}, _means(found)),
        "strategies": {
            s: {
                "errors": {m: errors_of(p) for m, p in r.pairs.items()},
                "in_band": {"time_s": r.in_band},
                "n": len(r.bands),
                "pairs": {"time_s": [[*p, *b] for p, b in zip(r.pairs["time_s"], r.bands.tolist(), strict=True)]},
            }
            for s, r in found.items()
        },
    }


def _means(found: Mapping[str, Replayed]) -> dict[str, float]:
    return {s: float(np.mean([x for x, _ in r.pairs["time_s"]])) for s, r in found.items()}


def _requests(r: Replayed) -> dict[str, dict[str, float]]:
    """By role and kind of request: mean seconds to the first token and from there on, measured and simulated."""
    out: dict[str, dict[str, float]] = {}
    for label, run in (("measured", r.run), ("predicted", r.simulated)):
        frame = run.frames["requests"]
        frame = frame[~frame["cancelled"]]
        first = frame["first_token_s"] - frame["submit_s"]
        rest = frame["finish_s"] - frame["first_token_s"]
        names = frame["role"] + " " + frame["kind"]
        for name in sorted(set(names)):
            own = out.setdefault(name, {})
            own[f"{label}_first_token_s"] = float(first[names == name].mean())
            own[f"{label}_decode_s"] = float(rest[names == name].mean())
    return out


def ranking(predicted: Mapping[str, Prediction], measured: Mapping[str, float]) -> dict[str, int]:
    """Pairs of strategies whose predicted bands of mean time do not overlap, and how many of them are ranked right."""
    names = list(predicted)
    apart = [
        (a, b)
        for i, a in enumerate(names)
        for b in names[i + 1 :]
        if predicted[a].high < predicted[b].low or predicted[b].high < predicted[a].low
    ]
    right = sum((predicted[a].value < predicted[b].value) == (measured[a] < measured[b]) for a, b in apart)
    return {"pairs_apart": len(apart), "ranked_right": right}
