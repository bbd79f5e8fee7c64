"""Outcomes under load: simulated ledgers take the place of the idle ones, their spread scaled along."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from costmodel.cost import COLUMNS, PHASES
from costmodel.protocol import Role
from hwprofiles.errors import InputError
from simulator.baseline import baseline_of, plain_case
from simulator.case import Case
from simulator.outcome import Array, Evaluator, Outcome
from simulator.replication import level_of, replicate
from simulator.results import RunResult
from simulator.uncertain import Z95

_WALL = COLUMNS.index("wall_s")


def under_load(
    case: Case,
    ev: Evaluator,
    outcomes: Mapping[str, Outcome],
    *,
    progress: Callable[[str], None] | None = None,
    runs: Mapping[str, Sequence[RunResult]] | None = None,
) -> dict[str, Outcome]:
    """Simulate every strategy at the scenario's load, on common random numbers.

    The central ledger is the mean over counted trajectories and seeds. Each sampled cell keeps its idle ratio to the
    idle central value; wall time is spread besides by the standard error over seeds (of the paired log ratio to
    strong-only, so that ratios keep their pairing). `progress` is told in words which run is next. `runs` are
    those of `replicate`, where they have been simulated before.

    Raises
    ------
    InputError
        No trajectory finished within the scenario's horizon.
    """
    if runs is None:
        runs = _simulated(case, tuple(outcomes), None if progress is None else _told(case, progress))
    times = {name: _times(found, name) for name, found in runs.items()}
    rng = np.random.default_rng([case.scenario.run.seed, 1])
    base = baseline_of(tuple(outcomes))
    n = len(outcomes[base].spread.ledger)
    level = level_of(replace(case.scenario.run, confidence=None))
    shared = _standard_error(np.log(times[base]), level) * rng.standard_normal(n)
    out = {}
    for name, o in outcomes.items():
        own = _standard_error(np.log(times[name]) - np.log(times[base]), level) * rng.standard_normal(n)
        out[name] = _loaded(o, runs[name], np.exp(shared + own))
    return out


def _simulated(
    case: Case, names: tuple[str, ...], before: Callable[[str, int], None] | None
) -> dict[str, Sequence[RunResult]]:
    """Runs of every strategy; strong_only decodes plainly where it is not what the others are compared with."""
    if baseline_of(names) == "strong_only":
        return dict(replicate(case, names, before=before))
    drafting = tuple(n for n in names if n != "strong_only")
    found: dict[str, Sequence[RunResult]] = {**replicate(case, drafting, before=before)}
    n_seeds = len(next(iter(found.values())))
    return {**replicate(plain_case(case), ("strong_only",), seeds=n_seeds, before=before), **found}


def _told(case: Case, progress: Callable[[str], None]) -> Callable[[str, int], None]:
    run = case.scenario.run
    of = "" if run.precision else f" of {run.seeds}"
    return lambda name, seed: progress(f"simulating {name}, seed {seed - run.seed + 1}{of} ...")


def _times(runs: Sequence[RunResult], name: str) -> Array:
    means = [r.summary()["time_s"]["mean"] for r in runs]
    if any(m is None for m in means):
        raise InputError(f"{name}: no trajectory finished in the simulated time; raise run.horizon_s or lower the load")
    return np.array(means, dtype=float)


def _standard_error(values: Array, level: float) -> float:
    """Standard error of a mean, widened so that its 5 and 95 % points are the ends of Student's interval at `level`."""
    if len(values) < 2:
        return 0.0
    from scipy.stats import t

    return float(values.std(ddof=1) / np.sqrt(len(values)) * t.ppf((1.0 + level) / 2.0, len(values) - 1) / Z95)


def _loaded(o: Outcome, runs: Sequence[RunResult], noise: Array) -> Outcome:
    cells, busy = (np.mean(x, axis=0) for x in zip(*(_means(r) for r in runs), strict=True))
    idle = o.idle_central
    relative = _relative(o.idle_spread.ledger, idle.ledger[0])
    wall = np.where(idle.ledger[0, :, _WALL] > 0, relative[:, :, _WALL], _total_relative(o)[:, None])
    relative[:, :, _WALL] = wall * noise[:, None]
    central = replace(idle, ledger=cells[None], busy_s=dict(zip(Role, busy[:, None], strict=True)))
    spread = replace(
        o.idle_spread,
        ledger=cells[None] * relative,
        busy_s={r: central.busy_s[r] * _relative(o.idle_spread.busy_s[r][:, None], idle.busy_s[r])[:, 0] for r in Role},
    )
    return replace(o, central=central, spread=spread, simulated=True)


def _relative(samples: Array, central: Array) -> Array:
    known = central > 0
    return np.where(known, samples / np.where(known, central, 1.0), 1.0)


def _total_relative(o: Outcome) -> Array:
    """How the whole idle time is spread: for waiting, which has no idle counterpart."""
    return np.asarray(o.idle_spread.column("wall_s") / o.idle_central.column("wall_s")[0])


def _means(run: RunResult) -> tuple[Array, Array]:
    """Mean ledger and busy seconds by role over the counted trajectories of one run."""
    done = run.counted()
    phases = run.phases[run.phases["trajectory"].isin(done["trajectory"])]
    by_phase: Any = phases.groupby("phase")[list(COLUMNS)].sum().reindex(list(PHASES), fill_value=0.0)
    by_role: Any = phases.groupby("lane")["busy_s"].sum()
    busy = np.array([float(by_role.get(str(role), 0.0)) for role in Role]) / len(done)
    return by_phase.to_numpy() / len(done), busy
