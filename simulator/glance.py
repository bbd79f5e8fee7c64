"""A plan at a glance: a few tasks, few samples, idle engines; fast enough to follow a slider."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from costmodel.acceptance import AcceptanceLaw
from costmodel.expect import compile_tape
from costmodel.pricing import Pricing
from costmodel.protocol import Strategy
from costmodel.races import Race
from costmodel.session import ProtocolSizes
from costmodel.tape import Expected, Tape
from costmodel.task import Task
from hwprofiles.errors import InputError
from simulator.baseline import baseline_of
from simulator.case import Case, prepare, spread_over_length
from simulator.outcome import OBJECTIVES, Evaluator, Outcome, why_unknown
from simulator.plan import Plan, is_loaded, predictions_of
from simulator.sampling import STRUCTURAL, draw_samples, inputs
from simulator.scenario import Scenario
from simulator.verdict import Verdict, because, decide, ratio

Array = np.ndarray[Any, np.dtype[np.float64]]

_TASKS, _SAMPLES = 4, 32
_MOST_KEPT = 64
_MOST_TAPES = 256
_REVIEWED = ("step_verification", "spec_agent", "spec_agent_pipelined")


@dataclass(frozen=True, slots=True)
class _Factor:
    """What the spread of the token counts multiplies a strategy's sampled expectation by."""

    ledger: Array
    counts: Array
    busy_s: Mapping[Any, Array]

    def on(self, e: Expected) -> Expected:
        busy = {role: b * self.busy_s.get(role, 1.0) for role, b in e.busy_s.items()}
        return replace(e, ledger=e.ledger * self.ledger, counts=e.counts * self.counts, busy_s=busy)


class _Tapes:
    """Compiles tapes and keeps the latest: a knob that leaves their tokens and rules alone need not replay rounds."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Hashable, ...], Tape | Race] = OrderedDict()

    def __call__(
        self, strategy: Strategy, tasks: Sequence[Task], law: AcceptanceLaw, pricing: Pricing, sizes: ProtocolSizes
    ) -> Tape | Race:
        """As `costmodel.expect.compile_tape`; of `pricing` only what a tape rests on tells two of them apart."""
        rests_on = (*pricing.rules.items(), *pricing.shapes.items())
        key = (repr(strategy), repr(law), sizes, rests_on, tuple(tasks))
        if key not in self._kept:
            self._kept[key] = compile_tape(strategy, tasks, law, pricing, sizes)
            while len(self._kept) > _MOST_TAPES:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]


@dataclass(slots=True)
class Glancer:
    """Makes plans at a glance; keeps tapes, and what token counts add to the spread per set of uncertain inputs.

    Limits
    ------
    Four tasks evenly spread over their length stand for the workload, 32 samples for the band. How verdict length,
    verbosity and thinking spread a ratio is taken from the first scenario seen with the same uncertain inputs.
    """

    _factors: dict[tuple[str, ...], dict[str, _Factor]] = field(default_factory=dict)
    _tapes: _Tapes = field(default_factory=_Tapes)

    def glance(self, scenario: Scenario) -> Plan:
        """The plan of a scenario on idle engines, without windows, critical values and advice.

        Raises
        ------
        InputError
            A scenario that is wrong, lacks `strong_only`, or whose strategy has no expectation.
        """
        if baseline_of(scenario.strategies) != "strong_only":
            raise InputError(
                "strategies: token_speculation makes strong_only decode plainly, and a glance has one strong model for "
                "all strategies; ask for the full plan, or leave token_speculation out"
            )
        case = fewer(prepare(scenario))
        samples = draw_samples(inputs(case), _SAMPLES, scenario.run.seed)
        window = scenario.protocol.window
        ev = Evaluator(case, {k: v for k, v in samples.items() if k not in STRUCTURAL}, self._tapes)
        names = tuple(dict.fromkeys(("strong_only", *scenario.strategies)))
        bare: dict[str, Outcome] = {name: ev.outcome(name, window) for name in names}
        return _plan(case, ev, self._spread(case, samples, bare))

    def _spread(self, case: Case, samples: Mapping[str, Array], outcomes: Mapping[str, Outcome]) -> dict[str, Outcome]:
        if not any(k in samples for k in STRUCTURAL):
            return dict(outcomes)
        key = (*samples, *outcomes, case.workload.name)
        if key not in self._factors:
            if len(self._factors) >= _MOST_KEPT:
                self._factors.pop(next(iter(self._factors)))
            full = Evaluator(case, samples, self._tapes)
            self._factors[key] = {n: _factor(full.outcome(n, o.window).spread, o.spread) for n, o in outcomes.items()}
        found = {}
        for name, o in outcomes.items():
            spread = self._factors[key][name].on(o.spread)
            found[name] = replace(o, spread=spread, idle_spread=spread)
        return found


def _factor(full: Expected, bare: Expected) -> _Factor:
    def over(a: Array, b: Array) -> Array:
        return np.divide(a, b, out=np.ones(np.broadcast(a, b).shape), where=b != 0)

    busy = {role: over(b, bare.busy_s[role]) for role, b in full.busy_s.items()}
    return _Factor(over(full.ledger, bare.ledger), over(full.counts, bare.counts), busy)


def fewer(case: Case) -> Case:
    """The case with the few tasks that stand for its workload."""
    kept = spread_over_length(case.tasks, _TASKS)
    work = replace(case.workload, trajectories=tuple(case.workload.trajectories[i] for i in kept))
    return replace(case, tasks=tuple(case.tasks[i] for i in kept), workload=work)


def _plan(case: Case, ev: Evaluator, outcomes: Mapping[str, Outcome]) -> Plan:
    base = outcomes["strong_only"]
    predictions = {n: predictions_of(case, ev, o) for n, o in outcomes.items()}
    reasons = {n: {k: why for k in OBJECTIVES if (why := why_unknown(case, n, k))} for n in outcomes}
    ratios = {
        n: {k: ratio(case, ev, o, base, k) for k in OBJECTIVES} for n, o in outcomes.items() if n != "strong_only"
    }
    names = [n for n in _REVIEWED if n in outcomes] or list(ratios)
    verdicts = {k: _verdict(case, ev, outcomes, ratios, names, k) for k in OBJECTIVES if names}
    notes = ["idle engines: queues are not in these numbers"] if is_loaded(case.scenario) else []
    return Plan(
        case, outcomes, predictions, reasons, ratios, verdicts, {}, (), (), tuple(notes), {}
    )  # fmt: skip


def _verdict(
    case: Case,
    ev: Evaluator,
    outcomes: Mapping[str, Outcome],
    ratios: Mapping[str, Mapping[str, Any]],
    names: list[str],
    objective: str,
) -> Verdict:
    sign = -1.0 if objective == "success" else 1.0
    known = [n for n in names if ratios[n][objective] is not None]
    if not known:
        why = why_unknown(case, names[0], objective) or why_unknown(case, "strong_only", objective)
        reason = why or f"{objective} of strong_only is zero"
        return Verdict(
            objective=objective, strategy=names[0], verdict="cannot_tell", ratio=None, because=(reason,), critical={}
        )
    best = min(known, key=lambda n: sign * ratios[n][objective].value)
    r = ratios[best][objective]
    return Verdict(
        objective=objective,
        strategy=best,
        verdict=decide(objective, r, case.scenario.objective.success_drop_max),
        ratio=r,
        because=because(case, ev, outcomes[best], outcomes["strong_only"], objective),
        critical={},
    )
