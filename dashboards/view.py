"""From the JSON document of `plan` to the words, numbers and marks that the report's page shows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import tomli_w

from dashboards.names import (
    COLUMN_LABELS,
    COLUMN_NOTES,
    HIGHER_IS_BETTER,
    OBJECTIVE_LABELS,
    STRATEGY_LABELS,
    TIER_NOTES,
    in_order,
    label,
)
from dashboards.template import FALLBACK_COLOUR, STRATEGY_COLOURS
from dashboards.units import compact, digits, interval, is_number, shown, unit_for
from hwprofiles.errors import unknown_name

VERDICT_WORDS: dict[str, str] = {"wins": "wins", "loses": "loses", "cannot_tell": "cannot tell"}
RUNGS: dict[str, str] = {"prior": "Prior", "trace pair": "Trace pair", "judgements": "Judgements"}
_PHRASES: dict[str, str] = {
    "time": "takes {} the time of strong\u00a0only",
    "time_alone": "takes {} the time of strong\u00a0only on idle engines",
    "traffic": "moves {} the memory traffic of strong\u00a0only",
    "flops": "does {} the floating-point work of strong\u00a0only",
    "energy": "uses {} the energy of strong\u00a0only",
    "usd": "costs {} what strong\u00a0only costs",
    "money": "costs {} what strong\u00a0only costs",
    "strong_output_tokens": "has the strong model write {} the tokens of strong\u00a0only",
    "success": "succeeds {} as often as strong\u00a0only",
}
_GLYPH_MOST = 8.0
_GLYPH_WIDTH = 180.0


def verdicts(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One card per objective: the word, the sentence, the interval and its mark, the reasons, the critical values.

    Raises
    ------
    InputError
        When a verdict is none of `VERDICT_WORDS`.
    """
    found: Mapping[str, Mapping[str, Any]] = document.get("verdicts") or {}
    reach = _glyph_reach(list(found.values()))
    cards = []
    for objective in in_order(list(found), OBJECTIVE_LABELS):
        verdict = found[objective]
        kind = str(verdict["verdict"])
        if kind not in VERDICT_WORDS:
            raise unknown_name(f"verdict of {objective}", kind, VERDICT_WORDS)
        strategy = label(str(verdict["strategy"]), STRATEGY_LABELS)
        phrase = _PHRASES.get(objective, f"has {{}} the {label(objective, OBJECTIVE_LABELS)} of strong\u00a0only")
        ratio, low, high = (verdict.get(key) for key in ("ratio", "low", "high"))
        times = f"{digits(ratio)}\u202f×" if is_number(ratio) else None
        ends = f"{digits(low)} – {digits(high)}" if is_number(low) and is_number(high) else ""
        cards.append(
            {
                "objective": label(objective, OBJECTIVE_LABELS),
                "kind": kind,
                "word": VERDICT_WORDS[kind],
                "strategy": strategy,
                "sentence": f"{strategy} {phrase.format(times)}" if times else f"{strategy}: the ratio is not known",
                "interval": ends,
                "because": [str(reason) for reason in verdict.get("because") or ()],
                "critical": [(label(k, {}), _turn(v)) for k, v in (verdict.get("critical") or {}).items()],
                "glyph": _glyph(ratio, low, high, reach, wins_left=objective not in HIGHER_IS_BETTER),
            }
        )
    return cards


def strategy_table(document: Mapping[str, Any]) -> dict[str, Any]:
    """The table of strategies: one row per quantity in one unit, one column per strategy, reasons numbered below."""
    strategies: Sequence[Mapping[str, Any]] = document["strategies"]
    reasons: list[str] = []
    rows = []
    for column in COLUMN_LABELS:
        if not any(column in s for s in strategies):
            continue
        estimates = [_estimate(s.get(column)) for s in strategies]
        unit = unit_for(column, [e.get("value") for e in estimates])
        cells = [
            {
                "value": shown(e.get("value"), unit),
                "ends": interval(e, unit) if e.get("low") != e.get("high") else "",
                "note": None if is_number(e.get("value")) else _note(s, column, e, reasons),
            }
            for s, e in zip(strategies, estimates, strict=True)
        ]
        rows.append(
            {
                "name": COLUMN_LABELS[column],
                "unit": unit.symbol,
                "hint": COLUMN_NOTES.get(column, ""),
                "cells": cells,
            }
        )
    heads = [
        {
            "name": label(str(s["name"]), STRATEGY_LABELS),
            "method": str(s.get("method") or ""),
            "colour": STRATEGY_COLOURS.get(str(s["name"]), FALLBACK_COLOUR),
        }
        for s in strategies
    ]
    return {"heads": heads, "rows": rows, "reasons": reasons}


def recommendation(document: Mapping[str, Any]) -> dict[str, str] | None:
    """The recommended strategy, window and objective in words, or None when the plan recommends nothing."""
    chosen = document.get("recommended")
    if not chosen or not chosen.get("strategy"):
        return None
    window = chosen.get("window")
    return {
        "strategy": label(str(chosen["strategy"]), STRATEGY_LABELS),
        "window": f"window {window:g}" if is_number(window) else "",
        "objective": label(str(chosen.get("objective") or ""), OBJECTIVE_LABELS).lower(),
        "why": str(chosen.get("why") or ""),
    }


def rungs(document: Mapping[str, Any]) -> dict[str, Any]:
    """The ladder of acceptance with the rung this plan stands on, and the plan's own words about it."""
    text = str(document.get("acceptance_rung") or "")
    folded = text.casefold().replace("_", " ")
    steps = [{"name": words, "here": folded.startswith(rung)} for rung, words in RUNGS.items()]
    return {"text": text, "steps": steps}


def provenance(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The inputs by tier, from the firmest to the softest."""
    rows: Sequence[Mapping[str, Any]] = document.get("provenance") or ()
    tiers = in_order([str(row.get("tier") or "not stated") for row in rows], TIER_NOTES)
    return [
        {
            "tier": tier,
            "note": TIER_NOTES.get(tier, ""),
            "rows": [
                {"input": str(r["input"]), "value": compact(r.get("value")), "source": str(r.get("source") or "–")}
                for r in rows
                if str(r.get("tier") or "not stated") == tier
            ],
        }
        for tier in tiers
    ]


def scenario_toml(document: Mapping[str, Any]) -> str:
    """The effective scenario as TOML; keys without a value are named in a comment at the end."""
    unset: list[str] = []
    kept = _without_none(document.get("scenario") or {}, "", unset)
    tail = f"\n# not set: {', '.join(unset)}\n" if unset else ""
    return tomli_w.dumps(kept) + tail


def _turn(value: object) -> str:
    if value is None:
        return "nowhere in its range"
    return f"{value:.3g}" if is_number(value) else compact(value)


def _without_none(value: Any, path: str, unset: list[str]) -> Any:
    if isinstance(value, Mapping):
        kept = {}
        for key, item in value.items():
            place = f"{path}.{key}" if path else str(key)
            if item is None:
                unset.append(place)
            else:
                kept[str(key)] = _without_none(item, place, unset)
        return kept
    if isinstance(value, list | tuple):
        return ["not set" if item is None else _without_none(item, path, unset) for item in value]
    return value


def _estimate(cell: object) -> Mapping[str, Any]:
    if isinstance(cell, Mapping):
        return cell
    return {"value": cell}


def _note(strategy: Mapping[str, Any], column: str, estimate: Mapping[str, Any], reasons: list[str]) -> int:
    known = strategy.get("reasons") or {}
    reason = str(known.get(column) or estimate.get("reason") or "not known; no reason was given")
    if reason not in reasons:
        reasons.append(reason)
    return reasons.index(reason) + 1


def _glyph_reach(found: Sequence[Mapping[str, Any]]) -> float:
    """The ratio at the right end of every verdict's mark (its inverse at the left), so that marks can be compared."""
    values = [v for verdict in found for v in (verdict.get("ratio"), verdict.get("low"), verdict.get("high"))]
    spread = [max(v, 1 / v) for v in values if is_number(v) and v > 0]
    return min(_GLYPH_MOST, max([1.5, *spread]) * 1.08)


def _glyph(ratio: object, low: object, high: object, reach: float, *, wins_left: bool) -> dict[str, Any]:
    def place(value: float) -> float:
        share = math.log(max(value, 1e-12)) / math.log(reach)
        return round((min(1.0, max(-1.0, share)) + 1) / 2 * _GLYPH_WIDTH, 1)

    ends = (place(low), place(high)) if is_number(low) and is_number(high) else None
    return {
        "width": _GLYPH_WIDTH,
        "dot": place(ratio) if is_number(ratio) else None,
        "ends": ends,
        "wins_from": 0.0 if wins_left else _GLYPH_WIDTH / 2,
        "left": f"{digits(1 / reach, 2)}\u202f×",
        "right": f"{digits(reach, 2)}\u202f×",
    }
