"""The long questions that the app asks in the background, by name; answers are documents of the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Tell = Callable[[str], None]
Question = Mapping[str, Any]


def _plan(q: Question, tell: Tell) -> Mapping[str, Any]:
    from simulator.plan import plan
    from simulator.scenario_file import from_document

    return plan(from_document(q["scenario"], "scenario"), progress=tell).document()


def _breakeven(q: Question, tell: Tell) -> Mapping[str, Any]:
    from simulator.breakeven import breakeven
    from simulator.scenario_file import from_document

    tell("drawing the map")
    scenario = from_document(q["scenario"], "scenario")
    return breakeven(scenario, q["x"], q["y"], objective=q["objective"], strategy=q["strategy"]).document()


def _sensitivity(q: Question, tell: Tell) -> Mapping[str, Any]:
    from simulator.scenario_file import from_document
    from simulator.sensitivity import sensitivity

    tell("sampling the inputs")
    return sensitivity(from_document(q["scenario"], "scenario"), strategy=q["strategy"]).document()


def _size(q: Question, tell: Tell) -> Mapping[str, Any]:
    from simulator.scenario_file import from_document
    from simulator.size import size

    found = size(
        from_document(q["scenario"], "scenario"),
        q["slos"],
        q["rate"],
        strategies=q["strategies"] or None,
        max_replicas=q["max_replicas"],
        workers=1,
        progress=tell,
    )
    return found.document()


def _risk(q: Question, tell: Tell) -> Mapping[str, Any]:
    from simulator.risk import risk
    from simulator.scenario_file import from_document

    tell("following the chain of success and damage")
    scenario = from_document(q["scenario"], "scenario")
    return risk(scenario, hold_failures=q["hold_failures"], damage_budget=q["damage_budget"]).document()


def _balance(q: Question, tell: Tell) -> Mapping[str, Any]:
    from simulator.balance import balance
    from simulator.scenario_file import from_document

    tell("trying the devices")
    scenario = from_document(q["scenario"], "scenario")
    return balance(scenario, q["hardware"], objective=q["objective"], strategy=q["strategy"]).document()


QUESTIONS: dict[str, Callable[[Question, Tell], Mapping[str, Any]]] = {
    "plan": _plan,
    "breakeven": _breakeven,
    "sensitivity": _sensitivity,
    "size": _size,
    "risk": _risk,
    "balance": _balance,
}
