"""Which inputs the spread of a verdict comes from, and which single measurement would narrow it most."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hwprofiles.errors import InputError
from simulator.case import Case, prepare, spread_over_length
from simulator.outcome import OBJECTIVES, Evaluator, terms_of, why_unknown
from simulator.sampling import QUALITY, Input, draw_samples, inputs
from simulator.scenario import Scenario
from simulator.scenario_file import load_scenario, to_document
from simulator.uncertain import Z95

Array = np.ndarray[Any, np.dtype[np.float64]]

_N_TASKS = 12
_N_SAMPLES = 512
_TWIN = "twin:"

_MEASURES: Mapping[str, str] = {
    "acceptance": "judge drafted steps on your own tasks (specroof acceptance)",
    "verdict_tokens": "count the tokens of some twenty real verdicts of your reviewer",
    "verbosity": "count both models' tokens for the same twenty steps",
    "thinking_tokens": "count the thinking tokens of the strong model on some twenty steps",
    "link.rtt_s": "measure the round-trip time between the two sites",
    "weak.request_s": "time some twenty short requests to the weak model's API",
    "strong.request_s": "time some twenty short requests to the strong model's API",
    "weak.output_token_s": "time long answers of the weak model's API",
    "strong.output_token_s": "time long answers of the strong model's API",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One input, or all factors of one device or engine.

    Parameters
    ----------
    first, total : Sobol indices of the log ratio
    settles : probability that knowing it alone would decide the verdict
    measure : what to measure, in words
    """

    name: str
    first: float
    total: float
    settles: float
    measure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """Sobol indices of log ratios; `sources` by objective, largest total index first."""

    scenario: Scenario
    strategy: str
    n_samples: int
    central: Mapping[str, float]
    spread: Mapping[str, float]
    sources: Mapping[str, tuple[Source, ...]]

    def advice(self, objective: str) -> str:
        """The single measurement that would narrow an objective's verdict most, in words."""
        if objective not in self.sources:
            raise InputError(f"objective {objective} is not known here; known are {', '.join(self.sources)}")
        found = self.sources[objective]
        if not found:
            return f"{objective}: nothing uncertain moves the ratio"
        top = max(found, key=lambda s: s.first)
        width = 1.0 - math.sqrt(max(0.0, 1.0 - min(1.0, top.first)))
        return (
            f"{objective}: {top.measure}; knowing {top.name} alone narrows the band of the ratio by about {width:.0%} "
            f"and decides the verdict with probability {top.settles:.0%}"
        )

    def document(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "strategy": self.strategy,
            "n_samples": self.n_samples,
            "objectives": {
                o: {
                    "ratio": math.exp(self.central[o]),
                    "log_ratio_sd": self.spread[o],
                    "sources": [
                        {"name": s.name, "first": s.first, "total": s.total, "settles": s.settles, "measure": s.measure}
                        for s in found
                    ],
                    "advice": self.advice(o),
                }
                for o, found in self.sources.items()
            },
            "scenario": to_document(self.scenario),
        }


def sensitivity(
    scenario: Scenario | str | Path, *, strategy: str = "spec_agent", n_samples: int = _N_SAMPLES
) -> Sensitivity:
    """Sobol indices of the log ratio to strong-only, per objective, over all uncertain inputs.

    S_i = Var(E[y | x_i]) / Var(y),   T_i = 1 - Var(E[y | all but x_i]) / Var(y),   y = log(cost / strong-only cost)

    (Saltelli 2010, by `scipy.stats.sobol_indices`). Factors of one device or engine are one input: they are measured
    together.

    Parameters
    ----------
    n_samples : whole number
        Points of each of the two base samples; raised to a power of two.

    Raises
    ------
    InputError
        A scenario that is wrong, or a strategy that is not known.

    Limits
    ------
    Idle engines; a sample of twelve tasks evenly spread over their length; inputs taken as independent.
    """
    from scipy.stats import sobol_indices

    scenario = scenario if isinstance(scenario, Scenario) else load_scenario(scenario)
    case = _fewer(prepare(scenario))
    known = tuple(i for i in inputs(case) if not i.band.is_exact and i.name not in QUALITY)
    a, b = _two_draws(known, n_samples, scenario.run.seed)
    objectives = [o for o in OBJECTIVES if o != "success" and not _unknown(case, strategy, o)]
    ev = Evaluator(case, a)
    groups = _groups(a)
    f_a, f_b = (_log_ratios(ev.resampled(s), strategy, objectives) for s in (a, b))
    f_ab = [
        _log_ratios(ev.resampled({**a, **{n: b[n] for n in names}}), strategy, objectives) for names in groups.values()
    ]
    moves = f_a.var(axis=1) > 1e-18
    central = _log_ratios(ev.resampled({}), strategy, objectives)[:, 0]
    sources: dict[str, tuple[Source, ...]] = {}
    for row, objective in enumerate(objectives):
        if not groups or not moves[row]:
            sources[objective] = ()
            continue
        found = sobol_indices(
            func={
                "f_A": f_a[row : row + 1],
                "f_B": f_b[row : row + 1],
                "f_AB": np.array([f[row : row + 1] for f in f_ab]),
            },
            n=f_a.shape[1],
        )
        sd = float(np.concatenate([f_a[row], f_b[row]]).std())
        rows = [
            Source(
                name=name,
                first=float(first),
                total=float(total),
                settles=_settles(float(central[row]), sd, float(first)),
                measure=_MEASURES.get(name, f"time five engine steps on your own server ({name})"),
            )
            for name, first, total in zip(groups, np.ravel(found.first_order), np.ravel(found.total_order), strict=True)
        ]
        sources[objective] = tuple(sorted(rows, key=lambda s: (-s.total, s.name)))
    return Sensitivity(
        scenario=scenario,
        strategy=strategy,
        n_samples=f_a.shape[1],
        central=dict(zip(objectives, central.tolist(), strict=True)),
        spread={o: float(np.concatenate([f_a[i], f_b[i]]).std()) for i, o in enumerate(objectives)},
        sources=sources,
    )


def _two_draws(known: tuple[Input, ...], n: int, seed: int) -> tuple[dict[str, Array], dict[str, Array]]:
    """Two independent base samples: the halves of one Sobol sequence in twice the dimensions.

    Shares of a variance are those of independent inputs, so correlations of a calibration are left out here.
    """
    known = tuple(replace(i, joint=None) for i in known)
    twins = tuple(replace(i, name=f"{_TWIN}{i.name}") for i in known)
    both = draw_samples((*known, *twins), n, seed)
    first = {k: v for k, v in both.items() if not k.startswith(_TWIN)}
    return first, {k.removeprefix(_TWIN): v for k, v in both.items() if k.startswith(_TWIN)}


def _fewer(case: Case) -> Case:
    kept = spread_over_length(case.tasks, _N_TASKS)
    work = replace(case.workload, trajectories=tuple(case.workload.trajectories[i] for i in kept))
    return replace(case, tasks=tuple(case.tasks[i] for i in kept), workload=work)


def _unknown(case: Case, strategy: str, objective: str) -> bool:
    return any(why_unknown(case, name, objective) for name in (strategy, "strong_only"))


def _groups(samples: Mapping[str, Array]) -> dict[str, list[str]]:
    """Inputs by what one would measure: a behaviour each, all factors of a device or engine together."""
    found: dict[str, list[str]] = {}
    for name in samples:
        found.setdefault(name if name in _MEASURES else f"{name.rpartition('.')[0]} factors", []).append(name)
    return found


def _log_ratios(ev: Evaluator, strategy: str, objectives: list[str]) -> Array:
    """Log ratios, array (n_objectives, n_samples)."""
    window = ev.case.scenario.protocol.window
    mine, theirs = (ev.outcome(name, window).spread for name in (strategy, "strong_only"))
    rows = []
    for objective in objectives:
        total = [
            np.asarray(sum(terms_of(ev.case, name, e, objective, ev.samples).values()))
            for name, e in ((strategy, mine), ("strong_only", theirs))
        ]
        rows.append(np.log(total[0]) - np.log(total[1]) + np.zeros(len(mine.ledger)))
    return np.array(rows)


def _settles(central: float, sd: float, share: float) -> float:
    """P(|m| > z sqrt(1 - S) sd), m ~ N(central, S sd^2): the 90 % band that is left lies on one side of 1."""
    from scipy.stats import norm

    share = min(1.0, max(0.0, share))
    left = Z95 * math.sqrt(1.0 - share) * sd
    if share == 0.0 or sd == 0.0:
        return float(abs(central) > left)
    moved = math.sqrt(share) * sd
    return float(norm.sf((left - central) / moved) + norm.cdf((-left - central) / moved))
