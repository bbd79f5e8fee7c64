"""Points of a map: a case built, its tapes compiled and priced centrally and over samples."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from costmodel.expect import Race, Tape, compile_tape, expect, fit_shift
from costmodel.pricing import Pricing, central_factors
from costmodel.task import Task
from hwprofiles.errors import InputError
from simulator.case import Case, prepare, spread_over_length
from simulator.outcome import objective_terms, terms_of
from simulator.playing import match_of, playing
from simulator.sampling import STRUCTURAL, draw_samples, inputs, sampled
from simulator.scenario import Scenario

Array = np.ndarray[Any, np.dtype[np.float64]]

ACCEPTANCE = "protocol.acceptance"

_LEAST_TASKS = 8
_STRUCTURE_TASKS = 4
_BAND_KNOTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One point of the knots, or a row of them along acceptance: arrays (n,)."""

    terms: Mapping[str, tuple[Array, Array]]
    low: Array
    high: Array


class _Tapes(NamedTuple):
    """Tapes of a strategy and of strong-only, and the one that a mean acceptance refers to."""

    mine: Tape | Race
    theirs: Tape | Race
    reference: Any


class NodeMaker:
    """Makes nodes: builds the case, compiles two tapes over some tasks, prices them centrally and over samples."""

    def __init__(
        self,
        scenario: Scenario,
        objective: str,
        strategy: str,
        window: int | None,
        moved: Collection[str],
        n_tasks: int,
    ) -> None:
        self.scenario, self.objective, self.strategy, self.window = scenario, objective, strategy, window
        self.moved = set(moved)
        self.n_tasks = self.n_all_tasks = 0
        self.wanted = max(_LEAST_TASKS, n_tasks)
        self._structural: tuple[Array, Array] | None = None

    def case(self, change: Mapping[str, Any], along: Array | None = None) -> Case:
        """The scenario so changed, made ready over a sample of its tasks; `along` as in `node`.

        Raises
        ------
        InputError
            The scenario cannot be so: with the place.
        """
        if along is not None:
            change = {**change, ACCEPTANCE: float(along[len(along) // 2])}
        try:
            return self._fewer(prepare(self.scenario.with_(**change)))
        except InputError as error:
            place = ", ".join(f"{k} = {v:g}" for k, v in change.items() if not isinstance(v, str))
            raise InputError(f"at {place}: {error}; narrow the axes") from None

    def node(self, case: Case, along: Array | None, *, banded: bool) -> Node:
        """Evaluate a case of `case`; `along` holds acceptances, None takes the case's own; `banded` fills the band."""
        pricing = Pricing(case.sites)
        tapes = self._tapes(case, case.tasks, pricing)
        values = np.array([case.acceptance.value]) if along is None else along
        central = self._terms(case, tapes, values, pricing, None)
        if not banded:
            return Node(terms=central, low=np.zeros(len(values)), high=np.zeros(len(values)))
        known = tuple(i for i in inputs(case) if along is None or i.name != "acceptance")
        samples = draw_samples(known, case.scenario.run.samples, case.scenario.run.seed)
        spread = {k: v[:, None] for k, v in samples.items() if k in central_factors(case.sites)}
        low, high = self._bands(case, tapes, samples, (pricing, Pricing(case.sites, spread)), along)
        return Node(terms=central, low=low, high=high)

    def _fewer(self, case: Case) -> Case:
        """The case with a sample of its tasks, evenly spread over their length."""
        self.n_all_tasks = len(case.tasks)
        if len(case.tasks) > self.wanted:
            case = replace(case, tasks=tuple(case.tasks[i] for i in spread_over_length(case.tasks, self.wanted)))
        self.n_tasks = len(case.tasks)
        return case

    def _tapes(self, case: Case, tasks: tuple[Task, ...], pricing: Pricing) -> _Tapes:
        """Tapes of the strategy and of strong-only, and the one of `spec_agent` that acceptance refers to."""

        def compiled(name: str, window: int | None = None) -> Any:
            return compile_tape(playing(case.scenario, name, window), tasks, case.law, pricing, case.sizes)

        mine, theirs = compiled(self.strategy, self.window), compiled("strong_only")
        own = self.strategy == "spec_agent" and self.window in (None, case.scenario.protocol.window)
        return _Tapes(mine, theirs, mine if own or case.law.is_flat else compiled("spec_agent"))

    def _terms(
        self,
        case: Case,
        tapes: _Tapes,
        acceptance: Array,
        pricing: Pricing,
        samples: Mapping[str, Array] | None,
    ) -> dict[str, tuple[Array, Array]]:
        shift = fit_shift(tapes.reference, case.law, acceptance)
        match: Any = match_of(case.scenario).value
        if samples is not None:
            match = sampled(samples, "match", match)
        mine, theirs = (
            terms_of(case, tape.strategy, expect(tape, shift, pricing, match), self.objective, samples)
            for tape in (tapes.mine, tapes.theirs)
        )
        zero = np.zeros(len(np.atleast_1d(next(iter(mine.values())))))
        return {name: (zero + mine.get(name, 0.0), zero + theirs.get(name, 0.0)) for name in {**mine, **theirs}}

    def _bands(
        self,
        case: Case,
        tapes: _Tapes,
        samples: Mapping[str, Array],
        pricing: tuple[Pricing, Pricing],
        along: Array | None,
    ) -> tuple[Array, Array]:
        """5 % and 95 % points of the log ratio relative to the central one."""
        if along is None:
            values = [sampled(samples, "acceptance", case.acceptance.value)]
            centre = np.array([case.acceptance.value])
        else:
            few = np.unique(np.linspace(0, len(along) - 1, _BAND_KNOTS).astype(int))
            centre = along[few]
            n = len(next(iter(samples.values()))) if samples else 1
            values = [np.full(n, a) for a in centre]
        middle = self._log_ratio(self._terms(case, tapes, centre, pricing[0], None))
        structural = self._structure(case, samples)
        low, high = [], []
        for acceptance, mid in zip(values, middle, strict=True):
            terms = self._terms(case, tapes, acceptance, pricing[1], samples)
            off = self._log_ratio(terms) - mid + structural
            low.append(min(0.0, float(np.quantile(off, 0.05))))
            high.append(max(0.0, float(np.quantile(off, 0.95))))
        if along is None:
            return np.array(low), np.array(high)
        return np.interp(along, centre, low), np.interp(along, centre, high)

    @staticmethod
    def _log_ratio(terms: Mapping[str, tuple[Array, Array]]) -> Array:
        mine, theirs = (np.sum([t[i] for t in terms.values()], axis=0) for i in (0, 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.log(mine) - np.log(theirs)
        if not np.all(np.isfinite(found)):
            raise InputError("the objective is zero for strong_only or for the strategy, so there is no ratio to map")
        return np.asarray(found)

    def _structure(self, case: Case, samples: Mapping[str, Array]) -> Array:
        """What verdict length, verbosity and thinking add to the log ratio, per sample, at the scenario's own point."""
        keys = [k for k in STRUCTURAL if k in samples and not {f"protocol.{k}", f"workload.{k}"} & self.moved]
        n = len(next(iter(samples.values()))) if samples else 1
        if not keys:
            return np.zeros(n)
        if self._structural is None:
            from simulator.outcome import Evaluator

            own = self._fewer(prepare(self.scenario))
            few = own.tasks[:: max(1, len(own.tasks) // _STRUCTURE_TASKS)]
            ev = Evaluator(replace(own, tasks=few), samples)
            outs = [
                ev.outcome(name, self.window or own.scenario.protocol.window) for name in (self.strategy, "strong_only")
            ]
            total = [
                sum(objective_terms(own, o, self.objective, central=False, samples=samples).values()) for o in outs
            ]
            plain = Evaluator(replace(own, tasks=few), {k: v for k, v in samples.items() if k not in keys})
            outs = [plain.outcome(o.strategy, o.window) for o in outs]
            bare = [sum(objective_terms(own, o, self.objective, central=False, samples=samples).values()) for o in outs]
            change = np.log(np.asarray(total[0]) / np.asarray(total[1])) - np.log(
                np.asarray(bare[0]) / np.asarray(bare[1])
            )
            self._structural = (np.zeros(n) + change, np.zeros(n))
        return self._structural[0]
