"""Verdicts, deciding terms and the recommendation follow from the numbers beside them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costmodel.cost import PHASES
from costmodel.prediction import Prediction
from hwprofiles.errors import InputError
from simulator.outcome import objective_terms
from simulator.plan import recommend
from simulator.success import success_of
from simulator.verdict import PLAIN_TERMS, Verdict, decide, quantity

BUNDLED = ("autonomous-h200", "edge-cloud", "llama-a100", "retail-h200")
COLUMNS = {"time": "time_s", "traffic": "traffic_bytes", "flops": "flops", "energy": "energy_j", "money": "usd"}
UNITS = {"time": "s", "traffic": "bytes", "flops": "FLOP", "energy": "J", "money": "USD"}


def band(value, low, high):
    return Prediction(value=value, low=low, high=high)


@pytest.mark.parametrize(
    ("objective", "r", "word"),
    [
        ("time", band(0.9, 0.8, 0.999), "wins"),
        ("time", band(0.9, 0.8, 1.0), "cannot_tell"),
        ("time", band(1.1, 1.0, 1.2), "cannot_tell"),
        ("time", band(1.1, 1.001, 1.2), "loses"),
        ("time", band(1.0, 1.0, 1.0), "cannot_tell"),
        ("money", None, "cannot_tell"),
        ("success", band(0.99, 0.98, 1.0), "wins"),
        ("success", band(0.99, 0.9799, 1.0), "cannot_tell"),
        ("success", band(0.97, 0.95, 0.98), "cannot_tell"),
        ("success", band(0.97, 0.95, 0.9799), "loses"),
        ("success", band(1.2, 1.1, 1.3), "wins"),
    ],
)
def test_the_word_at_the_boundaries(objective, r, word):
    """An interval that touches 1 tells nothing; success may drop by two parts in a hundred here."""
    assert decide(objective, r, 0.02) == word


@pytest.mark.parametrize("name", BUNDLED)
def test_terms_sum_to_the_predictions(name, planned):
    found = planned(name)
    for strategy, o in found.outcomes.items():
        for objective, column in COLUMNS.items():
            p = found.predictions[strategy][column]
            if p is None:
                continue
            terms = objective_terms(found.case, o, objective, central=True, samples={})
            assert all(np.all(np.asarray(t) >= 0) for t in terms.values())
            assert float(sum(np.ravel(t)[0] for t in terms.values())) == pytest.approx(p.value, rel=1e-12)


@pytest.mark.parametrize("name", BUNDLED)
def test_phases_of_the_document_sum_to_its_totals(name, planned):
    document = planned(name).document()
    for s in document["strategies"]:
        mine = [row for row in document["phases"] if row["strategy"] == s["name"]]
        for column in ("time_s", "traffic_bytes", "flops"):
            if s[column] is not None:
                assert sum(row[column] for row in mine) == pytest.approx(s[column]["value"], rel=1e-12)


@pytest.mark.parametrize("name", BUNDLED)
def test_because_names_the_largest_saving_and_the_largest_cost(name, planned):
    found = planned(name)
    for objective, v in found.verdicts.items():
        if objective == "success" or v.ratio is None:
            continue
        mine, theirs = (
            objective_terms(found.case, found.outcomes[s], objective, central=True, samples={})
            for s in (v.strategy, "strong_only")
        )
        saved = {k: float(np.sum(theirs.get(k, 0.0)) - np.sum(mine.get(k, 0.0))) for k in {*mine, *theirs}}
        top, bottom = max(saved, key=saved.get), min(saved, key=saved.get)
        expected = []
        if saved[top] > 0:
            expected.append(f"saves {quantity(saved[top], UNITS[objective])} of {PLAIN_TERMS.get(top, top)} per task")
        if saved[bottom] < 0:
            expected.append(
                f"pays {quantity(-saved[bottom], UNITS[objective])} for {PLAIN_TERMS.get(bottom, bottom)} per task"
            )
        rest = sum(saved.values()) - max(saved[top], 0.0) - min(saved[bottom], 0.0)
        if abs(rest) > 0.02 * sum(float(np.sum(x)) for x in theirs.values()):
            word = "save" if rest > 0 else "cost"
            expected.append(f"all other terms {word} {quantity(abs(rest), UNITS[objective])}")
        assert v.because == tuple(expected)


@pytest.mark.parametrize("name", BUNDLED)
def test_a_verdict_is_for_the_reviewed_strategy_with_the_best_ratio(name, planned):
    found = planned(name)
    for objective, v in found.verdicts.items():
        sign = -1 if objective == "success" else 1
        known = {s: r[objective] for s, r in found.ratios.items() if s != "weak_only" and r[objective]}
        if known:
            assert sign * v.ratio.value == min(sign * r.value for r in known.values())
            assert v.ratio == known[v.strategy]


def _verdicts(word, ratio, success="wins", r=(1.0, 0.99, 1.0)):
    made = {"time": (word, band(*ratio)), "success": (success, band(*r))}
    return {
        k: Verdict(objective=k, strategy="spec_agent", verdict=w, ratio=p, because=(), critical={})
        for k, (w, p) in made.items()
    }


WINDOWS = tuple({"window": w, "time": t} for w, t in ((1, 0.9), (2, 0.7), (4, 0.8), (8, 0.85)))


def test_the_recommended_window_is_the_best_of_the_rows(planned):
    case = planned("llama-a100").case
    found = recommend(case, _verdicts("wins", (0.8, 0.7, 0.9)), {}, WINDOWS)
    assert (found["strategy"], found["window"], found["objective"]) == ("spec_agent", 2, "time")
    one = ({"window": 1, "time": 0.6}, *WINDOWS[1:])
    assert recommend(case, _verdicts("wins", (0.8, 0.7, 0.9)), {}, one)["strategy"] == "step_verification"
    tie = ({"window": 1, "time": 0.9}, {"window": 2, "time": 0.7001}, {"window": 4, "time": 0.7})
    assert recommend(case, _verdicts("wins", (0.8, 0.7, 0.9)), {}, tie)["window"] == 2


def test_no_window_below_one_means_strong_only(planned):
    rows = tuple({"window": w, "time": 1.0 + w / 100} for w in (1, 2, 4))
    found = recommend(planned("llama-a100").case, _verdicts("cannot_tell", (1.01, 0.9, 1.1)), {}, rows)
    assert found["strategy"] == "strong_only"


@pytest.mark.parametrize(
    ("verdicts", "strategy"),
    [
        (_verdicts("loses", (1.2, 1.1, 1.3)), "strong_only"),
        (_verdicts("cannot_tell", (1.01, 0.9, 1.1)), "spec_agent"),  # not at its own window, but at 2
        (_verdicts("cannot_tell", (0.99, 0.9, 1.1)), "spec_agent"),
        (_verdicts("wins", (0.5, 0.4, 0.6), "loses", (0.9, 0.85, 0.95)), "strong_only"),
        (_verdicts("wins", (0.5, 0.4, 0.6), "cannot_tell", (0.97, 0.9, 1.0)), "spec_agent"),
    ],
)
def test_what_is_recommended(verdicts, strategy, planned):
    found = recommend(planned("llama-a100").case, verdicts, {}, WINDOWS)
    assert found["strategy"] == strategy
    assert (found["window"] is None) == (strategy == "strong_only")
    if verdicts["success"].verdict == "cannot_tell":
        assert "success is not sure to hold" in found["why"]


@pytest.mark.parametrize("name", BUNDLED)
def test_a_whole_plan_recommends_what_its_rows_say(name, planned):
    found = planned(name)
    r, v = found.recommended, found.verdicts["time"]
    if v.verdict == "loses" or v.ratio.value >= 1:
        assert r["strategy"] == "strong_only"
    else:
        assert r["window"] == min(found.windows, key=lambda w: (round(w["time"], 3), w["window"]))["window"]
        assert r["strategy"] == ("step_verification" if r["window"] == 1 else "spec_agent")
    own = next(w for w in found.windows if w["window"] == found.case.scenario.protocol.window)
    assert own["time"] == pytest.approx(found.ratios["spec_agent"]["time"].value, rel=1e-12)


def test_without_spec_agent_the_recommendation_names_what_was_compared(planned):
    found = planned("llama-a100", 'strategies=["strong_only", "step_verification"]')
    assert found.windows == ()
    assert found.recommended["strategy"] == "step_verification"
    assert found.recommended["window"] == 1


def test_a_drop_in_success_may_be_allowed_or_not(planned):
    strict = planned(
        "llama-a100", "quality.detection=0.02", "quality.weak_hazard=0.25", "objective.success_drop_max=0.0"
    )
    assert strict.verdicts["success"].verdict == "loses"
    assert strict.recommended["strategy"] == "strong_only"
    assert "success" in strict.recommended["why"]
    mild = planned("llama-a100", "quality.detection=0.1", "objective.success_drop_max=0.9")
    assert mild.verdicts["success"].verdict == "wins"
    assert mild.recommended["strategy"] == "spec_agent"


def test_better_detection_never_lowers_success(planned):
    case = planned("llama-a100").case
    q = case.scenario.quality
    found = []
    for d in np.linspace(0, 1, 11):
        detection = replace(q.detection, value=d, low=d, high=d)
        scenario = replace(case.scenario, quality=replace(q, detection=detection))
        found.append(float(success_of(replace(case, scenario=scenario), "spec_agent", None)[0]))
    assert found == sorted(found)
    assert found[-1] > found[0]


def test_an_unknown_objective_is_named_with_the_nearest(planned):
    with pytest.raises(ValueError, match="money"):
        planned("llama-a100").verdict("mony")


@pytest.mark.parametrize("name", BUNDLED)
def test_a_verdict_reads_as_a_sentence(name, planned):
    found = planned(name)
    for objective, v in found.verdicts.items():
        text = found.verdict(objective)
        assert text.startswith(f"{objective}: ")
        assert v.verdict.replace("_", " ") in text
        assert all(reason in text for reason in v.because)
        assert v.because


def test_the_ledger_explained_has_phases_down_and_strategies_across(planned):
    found = planned("edge-cloud")
    table = found.explain()
    assert table.columns[0] == "strong_only"
    assert set(table.columns) == set(found.outcomes)
    assert set(table.index[:-1]) <= set(PHASES)
    for name, row in found.predictions.items():
        assert table.loc["total", name] == pytest.approx(row["time_s"].value, abs=0.001)
    assert found.explain("traffic_bytes")["strong_only"].isna().all()  # behind an API
    with pytest.raises(InputError, match="did you mean 'time_s'"):
        found.explain("times_s")
