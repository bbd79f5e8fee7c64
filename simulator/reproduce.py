"""Published figures of SpecAgent against what the model predicts from stated priors, and what they imply.

Every draw of the unknowns is priced exactly by `expect`. Draws that come near all published figures of a setting say
which region of the unknowns the figures imply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from costmodel.expect import compile_tape, expect, fit_shift
from costmodel.pricing import Pricing
from costmodel.quality import step_hazard, success
from costmodel.strategies import strategy as make_strategy
from hwprofiles.errors import CapacityError, InputError, unknown_name
from simulator.case import Case, prepare, spread_over_length
from simulator.outcome import terms_of
from simulator.reproduce_priors import Figure, Prior, Setting, published
from simulator.sampling import deployment_inputs, draw_samples
from simulator.scenario_file import from_document

Array = np.ndarray[Any, np.dtype[np.float64]]

N_DRAWS = 128
_N_TASKS = 6
_NEAR: Mapping[str, float] = {"success_difference": 0.01}
_NEAR_ELSE = 0.05
"""Width of the kernel that weighs draws by their distance to a published interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduced:
    """Figures (published and predicted), the implied region of the unknowns, and the assumptions behind both."""

    figures: tuple[dict[str, Any], ...]
    implied: tuple[dict[str, Any], ...]
    assumptions: tuple[dict[str, Any], ...]
    n_draws: int
    seed: int

    def document(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "source": published()[0],
            "n_draws": self.n_draws,
            "seed": self.seed,
            "figures": list(self.figures),
            "implied": list(self.implied),
            "assumptions": list(self.assumptions),
        }


def reproduce(
    settings: Sequence[str] = (),
    *,
    n_draws: int = N_DRAWS,
    seed: int = 0,
    changes: Mapping[str, Any] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Reproduced:
    """Predict the published figures from the priors, and invert them.

    Parameters
    ----------
    settings : names; empty takes all
    n_draws : points over the unknowns of each setting
    changes : prior name -> a number or choice, exact, or {value, low, high}; in place of the data file's
    progress : is told in words what is under way

    Raises
    ------
    InputError
        An unknown setting or prior.

    Limits
    ------
    Idle engines, one agent; six tasks a setting; the first published interval is not used to choose any prior. Success
    is the closed form of the clean/tainted chain with hazards solved from each model's published success alone.
    """
    _, known, figures = published()
    names = [s.name for s in known]
    for name in settings:
        if name not in names:
            raise unknown_name("setting", name, names)
    chosen = [_changed(s, changes or {}) for s in known if not settings or s.name in settings]
    _no_stray(changes or {}, chosen)
    rows: list[dict[str, Any]] = []
    implied: list[dict[str, Any]] = []
    for s in chosen:
        if progress is not None:
            progress(f"{s.title}: {n_draws} draws ...")
        drawn = _draws(s, n_draws, seed)
        found = _predict(s, drawn, seed)
        own = [f for f in figures if f.setting == s.name]
        rows += [_figure_row(s, f, found[f.quantity]) for f in own]
        implied += _implied(s, own, drawn, found)
    return Reproduced(
        figures=tuple(rows),
        implied=tuple(implied),
        assumptions=tuple({"setting": s.name, **p.document()} for s in chosen for p in s.priors.values()),
        n_draws=n_draws,
        seed=seed,
    )


def _changed(s: Setting, changes: Mapping[str, Any]) -> Setting:
    new = {name: _given(s.priors[name], change) for name, change in changes.items() if name in s.priors}
    return replace(s, priors={**s.priors, **new})


def _given(prior: Prior, change: Any) -> Prior:
    """A prior as the user gives it: exact, or a band."""
    said = replace(prior, tier="assumed", source="given by the user")
    if prior.choices:
        kind = type(prior.choices[0])
        if not isinstance(change, kind) or isinstance(change, bool):
            raise InputError(f"prior {prior.name}: expected one value such as {prior.choices[0]!r}, got {change!r}")
        return replace(said, choices=(change,))
    row = change if isinstance(change, Mapping) else {"value": change, "low": change, "high": change}
    if set(row) != {"value", "low", "high"} or not all(_is_number(v) for v in row.values()):
        raise InputError(f"prior {prior.name}: expected a number or {{value, low, high}}, got {change!r}")
    if not 0 <= row["low"] <= row["value"] <= row["high"]:
        raise InputError(f"prior {prior.name}: must hold 0 <= low <= value <= high, got {change!r}")
    if prior.is_share and row["high"] > 1:
        raise InputError(f"prior {prior.name}: a probability is at most 1, got {row['high']:g}")
    return replace(said, value=float(row["value"]), low=float(row["low"]), high=float(row["high"]))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))


def _no_stray(changes: Mapping[str, Any], chosen: Sequence[Setting]) -> None:
    every = {name for s in chosen for name in s.priors}
    for name in changes:
        if name not in every:
            raise unknown_name("prior", name, sorted(every))


def _draws(s: Setting, n: int, seed: int) -> list[dict[str, Any]]:
    from scipy.stats import qmc

    names = list(s.priors)
    size = 1 << max(4, (n - 1).bit_length())
    points = qmc.Sobol(d=len(names), scramble=True, rng=np.random.default_rng(seed)).random(size)
    columns = {name: s.priors[name].draw(points[:, i]) for i, name in enumerate(names)}
    return [{name: columns[name][j] for name in names} for j in range(size)]


def _predict(s: Setting, drawn: Sequence[Mapping[str, Any]], seed: int) -> dict[str, Array]:
    """Quantity -> one value per draw."""
    factors: dict[str, Mapping[str, Array]] = {}
    rows = [_one(s, d, j, len(drawn), factors, seed) for j, d in enumerate(drawn)]
    return {key: np.array([row[key] for row in rows]) for key in rows[0]}


def _one(
    s: Setting, d: Mapping[str, Any], j: int, n: int, factors: dict[str, Mapping[str, Array]], seed: int
) -> dict[str, float]:
    case = _case(s, d)
    hazards = _success(case, d)
    spread: dict[str, Any] = {}
    for role, site in case.sites.items():
        dep = site.server
        if s.strong_api is not None and role.value == "strong":
            continue
        if dep.label not in factors:
            factors[dep.label] = draw_samples(tuple(deployment_inputs(dep)), n, seed)  # type: ignore[arg-type]
        spread |= {k: float(v[j]) for k, v in factors[dep.label].items()}
    pricing = Pricing(case.sites, spread)
    mine, theirs = (
        compile_tape(make_strategy(name, int(d["window"])), case.tasks, case.law, pricing, case.sizes)
        for name in ("spec_agent", "strong_only")
    )
    shift = fit_shift(mine, case.law, np.array([hazards["acceptance"]]))
    spec, strong = expect(mine, shift, pricing), expect(theirs, shift, pricing)
    objectives = ("time",) if s.strong_api is not None else ("time", "traffic", "flops")
    found = {
        o: float(
            np.ravel(sum(terms_of(case, "spec_agent", spec, o, None).values()))[0]
            / np.ravel(sum(terms_of(case, "strong_only", strong, o, None).values()))[0]
        )
        for o in objectives
    }
    found["strong_tokens"] = float(spec.count("strong_output_tokens")[0] / strong.count("strong_output_tokens")[0])
    if s.strong_api is not None:
        found["api_cost"] = float(spec.column("api_usd")[0] / strong.column("api_usd")[0])
    return found | {k: hazards[k] for k in ("gap", "success_difference")}


def _case(s: Setting, d: Mapping[str, Any]) -> Case:
    weak: dict[str, Any] = {"model": s.weak, "weight_dtype": "bf16", "thinking": s.thinks}
    strong: dict[str, Any] = {"thinking": s.thinks}
    kind = "trace" if s.workload in ("retail", "airline") else "law"
    work: dict[str, Any] = {kind: s.workload, "verbosity": float(d["verbosity"])}
    if s.thinks:
        work["thinking_tokens"] = float(d["strong_thinking_tokens"])
    if kind == "law":
        work["n"] = _N_TASKS
    if s.strong_api is not None:
        weak["hardware"] = s.weak_hardware
        strong["api"] = s.strong_api
    else:
        weak |= {"hardware": d["hardware"], "n_devices": int(d["weak_devices"])}
        strong |= {"model": s.strong, "hardware": d["hardware"], "weight_dtype": d["strong_dtype"]}
    protocol = {
        "window": int(d["window"]),
        "verdict_tokens": max(1, round(float(d["verdict_tokens"]))),
        "acceptance": float(d["acceptance"]),
    }
    document = {"title": s.title, "weak": weak, "strong": strong, "workload": work, "protocol": protocol}
    for devices in (8, 16):
        if s.strong_api is None:
            strong["n_devices"] = devices
        try:
            return _few(prepare(from_document(document, f"setting {s.name}")))
        except CapacityError:
            if s.strong_api is not None or devices == 16:
                raise
    raise AssertionError("unreachable")


def _few(case: Case) -> Case:
    return replace(case, tasks=tuple(case.tasks[i] for i in spread_over_length(case.tasks, _N_TASKS)))


def _success(case: Case, d: Mapping[str, Any]) -> dict[str, float]:
    """Hazards that give each model's own success; then acceptance, gap recovered and difference.

    An acceptance beyond 1 - w d, the most that detection allows, is lowered to it.
    """
    lengths = [len(t.steps) for t in case.workload.trajectories]
    recovery = float(d["recovery"])
    w, u = (_hazard(float(d[k]), recovery, lengths) for k in ("weak_success", "strong_success"))
    detection = float(d["detection"])
    a = min(float(d["acceptance"]), 1.0 - w * detection)
    q = float(step_hazard("spec_agent", w, u, detection, 0.0, a))
    spec, weak, strong = (_mean_success(h, recovery, lengths) for h in (q, w, u))
    gap = (spec - weak) / (strong - weak) if strong > weak else float("nan")
    return {"acceptance": a, "gap": gap, "success_difference": spec - strong}


def _hazard(target: float, recovery: float, lengths: Sequence[int]) -> float:
    """The hazard at which one author alone succeeds with probability `target`."""
    from scipy.optimize import brentq

    if _mean_success(1.0, recovery, lengths) >= target:
        return 1.0
    return float(brentq(lambda h: _mean_success(h, recovery, lengths) - target, 0.0, 1.0, xtol=1e-10))


def _mean_success(hazard: float, recovery: float, lengths: Sequence[int]) -> float:
    return float(np.mean([success(hazard, recovery, n) for n in lengths]))


def _figure_row(s: Setting, f: Figure, values: Array) -> dict[str, Any]:
    known = values[np.isfinite(values)]
    mid, low, high = (float(q) for q in np.quantile(known, (0.5, 0.05, 0.95)))
    return {
        "id": f.id,
        "setting": s.title,
        "metric": f.metric,
        "published": [f.low, f.high],
        "predicted": mid,
        "low": low,
        "high": high,
        "overlaps": f.overlaps(low, high),
    }


def _implied(
    s: Setting, own: Sequence[Figure], drawn: Sequence[Mapping[str, Any]], found: Mapping[str, Array]
) -> list[dict[str, Any]]:
    """Each unknown's range over all draws and over those near every published figure of the setting."""
    away = sum((f.distance(found[f.quantity]) / _NEAR.get(f.quantity, _NEAR_ELSE)) ** 2 for f in own)
    weight = np.exp(-0.5 * np.nan_to_num(np.asarray(away), nan=1e9))
    effective = float(weight.sum() ** 2 / (weight**2).sum()) if weight.sum() > 0 else 0.0
    share = float(np.mean(np.asarray(away) == 0))
    rows = []
    for name, prior in s.priors.items():
        values = [d[name] for d in drawn]
        row: dict[str, Any] = {"setting": s.name, "unknown": name, "draws_inside": share, "effective_draws": effective}
        if prior.choices:
            row["prior"] = {str(c): 1 / len(prior.choices) for c in prior.choices}
            total = weight.sum() or 1.0
            row["implied"] = {str(c): float(weight[[v == c for v in values]].sum() / total) for c in prior.choices}
        else:
            numbers = np.array(values, dtype=float)
            row["prior"] = [float(q) for q in np.quantile(numbers, (0.05, 0.95))]
            row["implied"] = _weighted(numbers, weight) if effective >= 3 else None
        rows.append(row)
    return rows


def _weighted(values: Array, weight: Array) -> list[float]:
    order = np.argsort(values)
    cumulative = np.cumsum(weight[order]) / weight.sum()
    return [float(np.interp(q, cumulative, values[order])) for q in (0.05, 0.95)]
