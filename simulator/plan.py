"""The main job: compare the strategies of one scenario; say what decides, how sure that is, what would settle it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.expect import Expected
from costmodel.prediction import Prediction, predict
from costmodel.protocol import Role
from hwprofiles.errors import unknown_name
from simulator.baseline import baseline_of, plain_case, with_baseline
from simulator.case import Case, prepare
from simulator.critical import critical_values
from simulator.outcome import OBJECTIVES, Evaluator, Outcome, objective_terms, why_unknown
from simulator.pictures import roofline, timelines
from simulator.sampling import draw_samples, inputs, tiers_of
from simulator.scenario import Scenario
from simulator.scenario_file import load_scenario
from simulator.settle import settle
from simulator.success import success_of
from simulator.surroundings import must_be_simulated, notes
from simulator.verdict import Verdict, because, decide, ratio, with_band

WINDOWS: tuple[int, ...] = (1, 2, 4, 8)
"""Windows compared for the recommendation, the scenario's own beside them."""

_COLUMN_OF = {"traffic": "traffic_bytes", "flops": "flops", "energy": "energy_j", "money": "usd"}
_REVIEWED = ("step_verification", "spec_agent", "spec_agent_pipelined")


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer to one scenario: strategies x objectives with intervals, verdicts, and what they rest on."""

    case: Case
    outcomes: Mapping[str, Outcome]
    predictions: Mapping[str, Mapping[str, Prediction | None]]
    reasons: Mapping[str, Mapping[str, str]]
    ratios: Mapping[str, Mapping[str, Prediction | None]]
    verdicts: Mapping[str, Verdict]
    recommended: Mapping[str, Any]
    windows: tuple[Mapping[str, Any], ...]
    settle: tuple[str, ...]
    warnings: tuple[str, ...]
    pictures: Mapping[str, Any] = field(repr=False)

    def verdict(self, objective: str) -> str:
        """One objective's verdict as a sentence."""
        if objective not in self.verdicts:
            raise unknown_name("objective", objective, self.verdicts)
        v = self.verdicts[objective]
        if v.ratio is None:
            return "; ".join((f"{objective}: cannot tell", *v.because))
        word = {"wins": "wins", "loses": "loses", "cannot_tell": "cannot tell"}[v.verdict]
        text = f"{objective}: {v.strategy} {word}; ratio {with_band(v.ratio)}"
        for reason in v.because:
            text += f"; {reason}"
        edge = v.critical.get("acceptance")
        return text + (f"; pays from acceptance {edge:.2f}" if edge is not None else "")

    def explain(self, quantity: str = "time_s") -> Any:
        """Where a quantity goes per task: `time_s`, `traffic_bytes` or `flops`, phases by strategies (DataFrame)."""
        from simulator.plan_document import phase_table

        return phase_table(self, quantity)

    @property
    def critical(self) -> dict[str, dict[str, float | None]]:
        """Where each objective's ratio crosses 1 in each main unknown."""
        return {o: dict(v.critical) for o, v in self.verdicts.items()}

    def document(self) -> dict[str, Any]:
        """Everything as plain values, in the layout of the command line's JSON."""
        from simulator.plan_document import plan_document

        return plan_document(self)

    def to_json(self) -> str:
        """The document as JSON text."""
        import json

        return json.dumps(self.document(), allow_nan=False, indent=2)

    def __rich__(self) -> Any:
        from simulator.plan_text import plan_table

        return plan_table(self)

    def _repr_html_(self) -> str:
        import pandas as pd

        rows = {
            n: {k: "-" if p is None else f"{p.value:.3g} [{p.low:.3g}, {p.high:.3g}]" for k, p in row.items()}
            for n, row in self.predictions.items()
        }
        return str(pd.DataFrame(rows).T.to_html())


def plan(scenario: Scenario | str | Path, *, progress: Callable[[str], None] | None = None) -> Plan:
    """Plan a draft-and-verify deployment.

    Parameters
    ----------
    scenario : Scenario, bundled name or path of a TOML file
    progress : is told in words which simulated run begins (under load only)

    Raises
    ------
    InputError
        A scenario that is wrong, or that names something unknown or impossible.
    """
    case = prepare(scenario if isinstance(scenario, Scenario) else load_scenario(scenario))
    return plan_case(case, progress=progress)


def plan_case(case: Case, *, progress: Callable[[str], None] | None = None) -> Plan:
    """Plan a prepared case: expected on idle engines, simulated besides when several agents share them."""
    s = with_baseline(case.scenario)
    case = replace(case, scenario=s)
    samples = draw_samples(inputs(case), s.run.samples, s.run.seed)
    ev = Evaluator(case, samples)
    outcomes: dict[str, Outcome] = {name: ev.outcome(name, s.protocol.window) for name in s.strategies}
    baseline = baseline_of(s.strategies)
    if baseline != "strong_only":
        outcomes["strong_only"] = Evaluator(plain_case(case), samples).outcome("strong_only", s.protocol.window)
    if is_loaded(s):
        from simulator.loaded import under_load

        outcomes = under_load(case, ev, outcomes, progress=progress)
    base = outcomes[baseline]
    predictions = {n: predictions_of(case, ev, o) for n, o in outcomes.items()}
    reasons = {n: _reasons(case, n) for n in outcomes}
    ratios: dict[str, dict[str, Prediction | None]] = {
        n: {k: ratio(case, ev, o, base, k) for k in OBJECTIVES} for n, o in outcomes.items() if n != baseline
    }
    windows = _windows(case, ev, base, outcomes["spec_agent"]) if "spec_agent" in outcomes else ()
    verdicts = {k: _verdict(case, ev, outcomes, ratios, k) for k in OBJECTIVES if _reviewed(outcomes)}
    recommended = recommend(case, verdicts, ratios, windows)
    goal = s.objective.minimise
    advice: tuple[str, ...] = ()
    if goal in verdicts:
        v = verdicts[goal]
        advice = settle(case, ev, outcomes[v.strategy], base, v)
    return Plan(
        case,
        outcomes,
        predictions,
        reasons,
        ratios,
        verdicts,
        recommended,
        windows,
        advice,
        _warnings(case),
        {"roofline": roofline(case, ev, outcomes), "timeline": timelines(case, ev, outcomes)},
    )


def is_loaded(s: Scenario) -> bool:
    """Whether several agents share the engines, or something else is to be waited for."""
    return s.load.arrival_rate_per_s is not None or (s.load.concurrency or 1) > 1 or must_be_simulated(s)


def _reviewed(outcomes: Mapping[str, Outcome]) -> list[str]:
    return [n for n in _REVIEWED if n in outcomes]


def _records_thinking(case: Case) -> bool:
    return any(
        s.visible_tokens is not None and s.output_tokens is not None and s.output_tokens > s.visible_tokens
        for t in case.workload.trajectories
        for s in t.steps
    )


def predictions_of(case: Case, ev: Evaluator, o: Outcome) -> dict[str, Prediction | None]:
    """A strategy's row of the table, by column; None where it cannot be known."""
    tiers = tiers_of(case)
    found: dict[str, Prediction | None] = {
        "time_s": predict(*o.time_s(), tiers),
        "time_alone_s": predict(*o.alone_s(), tiers),
    }
    for objective, column in _COLUMN_OF.items():
        if why_unknown(case, o.strategy, objective):
            found[column] = None
            continue
        both = [
            np.asarray(sum(objective_terms(case, o, objective, central=c, samples=ev.samples).values()))
            for c in (True, False)
        ]
        found[column] = predict(float(np.ravel(both[0])[0]), both[1])
    found["success"] = predict(float(success_of(case, o.strategy, None)[0]), success_of(case, o.strategy, ev.samples))
    tokens = o.central.count("strong_output_tokens")[0]
    found["strong_output_tokens"] = predict(float(tokens), o.spread.count("strong_output_tokens"))
    return found


def _reasons(case: Case, strategy: str) -> dict[str, str]:
    found = {column: why_unknown(case, strategy, objective) for objective, column in _COLUMN_OF.items()}
    return {k: v for k, v in found.items() if v}


def _verdict(
    case: Case,
    ev: Evaluator,
    outcomes: Mapping[str, Outcome],
    ratios: Mapping[str, Mapping[str, Prediction | None]],
    objective: str,
) -> Verdict:
    """The verdict for the reviewed strategy with the best central ratio."""
    names = _reviewed(outcomes)
    known = [n for n in names if ratios[n][objective] is not None]
    sign = -1.0 if objective == "success" else 1.0

    def rank(name: str) -> tuple[float, bool]:
        r = ratios[name][objective]
        return (sign * r.value if r else np.inf, name != "spec_agent")

    best = min(known or names, key=rank)
    r = ratios[best][objective]
    word = decide(objective, r, case.scenario.objective.success_drop_max)
    if r is None:
        reason = why_unknown(case, best, objective) or why_unknown(case, "strong_only", objective)
        known_why = reason or f"{objective} of {baseline_of(list(outcomes))} is zero"
        return Verdict(objective=objective, strategy=best, verdict=word, ratio=None, because=(known_why,), critical={})
    o, base = outcomes[best], outcomes[baseline_of(list(outcomes))]
    return Verdict(
        objective=objective,
        strategy=best,
        verdict=word,
        ratio=r,
        because=because(case, ev, o, base, objective),
        critical=critical_values(case, ev, o, base, objective),
    )


def _windows(case: Case, ev: Evaluator, base: Outcome, own: Outcome) -> tuple[Mapping[str, Any], ...]:
    """Central ratios of spec_agent at several windows (idle engines).

    The scenario's own window is evaluated over all tasks; the others relative to it, over a few tasks.
    """
    goals = [
        k
        for k in OBJECTIVES
        if k != "success"
        and not why_unknown(case, "spec_agent", k)
        and not why_unknown(case, "strong_only", k)
        and _central(case, base, k) > 0
    ]
    exact = {k: _central(case, own, k) / _central(case, base, k) for k in goals}
    few = {w: ev.few_tasks("step_verification" if w == 1 else "spec_agent", w) for w in {*WINDOWS, own.window}}
    rows = []
    for window, e in sorted(few.items()):
        row: dict[str, Any] = {"window": window}
        for k in OBJECTIVES[:-1]:
            change = _central(case, own, k, e) / _central(case, own, k, few[own.window]) if k in goals else None
            row[k] = None if change is None else exact[k] * change
        rows.append(row)
    return tuple(rows)


def _central(case: Case, o: Outcome, objective: str, e: Expected | None = None) -> float:
    alone = o.at(e or o.idle_central)
    return float(np.ravel(sum(objective_terms(case, alone, objective, central=True, samples={}).values()))[0])


def recommend(
    case: Case,
    verdicts: Mapping[str, Verdict],
    ratios: Mapping[str, Mapping[str, Prediction | None]],
    windows: tuple[Mapping[str, Any], ...],
) -> dict[str, Any]:
    """The strategy and window to use for the scenario's objective, and why."""
    goal = case.scenario.objective.minimise
    v = verdicts.get(goal)
    stay = {"strategy": baseline_of(case.scenario.strategies), "window": None, "objective": goal}
    if v is None or v.ratio is None:
        return stay | {"why": f"{goal} of no reviewed strategy is known"}
    if verdicts["success"].verdict == "loses":
        return stay | {"why": "every reviewed strategy loses more success than success_drop_max allows"}
    shown = f"{v.strategy} has {goal} ratio {with_band(v.ratio)}"
    usable = [w for w in windows if w.get(goal) is not None]
    best = min(usable, key=lambda w: (round(w[goal], 3), w["window"])) if usable else None
    if v.verdict == "loses" or min(v.ratio.value, best[goal] if best else 1.0) >= 1.0:
        return stay | {"why": shown}
    window = best["window"] if best else 1
    name = "step_verification" if window == 1 else "spec_agent"
    if v.strategy == "spec_agent_pipelined":
        best, name, window = None, v.strategy, case.scenario.protocol.window
    why = f"{'clearly' if v.verdict == 'wins' else 'probably, not surely,'} less {goal} than strong-only: {shown}"
    if best:
        flat = max(w[goal] for w in usable if w["window"] > 1) - min(w[goal] for w in usable if w["window"] > 1)
        alike = window > 1 and flat < 0.01
        why += "; windows of 2 and more are alike here" if alike else f"; window {window} is best of those tried"
        why += ", on idle engines" if is_loaded(case.scenario) else ""
    success = verdicts["success"]
    if success.verdict == "cannot_tell" and success.ratio is not None:
        why += f"; its success is not sure to hold: ratio {with_band(success.ratio)}"
    return {"strategy": name, "window": window, "objective": goal, "why": why}


def _warnings(case: Case) -> tuple[str, ...]:
    found = []
    unknown = sum(s.effect == "unknown" for t in case.tasks for s in t.steps)
    steps = sum(len(t.steps) for t in case.tasks)
    named = any(s.tools for t in case.workload.trajectories for s in t.steps)
    if unknown and named:
        found.append(
            f"{unknown} of {steps} steps have tools of unknown effect, so they are held; name them under [effects.map]"
        )
    elif unknown:
        found.append(
            f"the workload names no tools, so {unknown} of {steps} steps are held: nothing can run while drafting"
        )
    thinks = [r for r in Role if case.side(r).thinking]
    if thinks and case.scenario.workload.thinking_tokens is None and not _records_thinking(case):
        found.append(
            f"{' and '.join(thinks)} should think, but the workload records no thinking tokens, so none are priced; "
            "set workload.thinking_tokens, or thinking = false"
        )
    outcomes = [t.outcome for t in case.workload.trajectories if t.outcome is not None]
    if outcomes:
        found.append(
            f"the recorded runs succeeded in {np.mean(outcomes):.0%} (their model, their judge); success here comes "
            "from [quality], not from them"
        )
    money = case.scenario.objective.money
    if case.arrival_rate_per_s is not None and money == "dedicated":
        found.append(
            "with arrivals, dedicated money is the fleet's price over the arrival rate whatever the strategy; "
            "size the fleet for each strategy, or set objective.money = 'shared'"
        )
    if (
        case.scenario.tools.latency_s is None
        and case.tools is None
        and named
        and all(s.tool_s < 0.005 for t in case.tasks for s in t.steps)
    ):
        found.append("tool times in this workload are under 5 ms (in-process tools); set tools.latency_s to your own")
    found += notes(case.scenario, case.tools, simulated=is_loaded(case.scenario))
    return tuple(found)
