"""Keys of [quality] beyond the hazards: the chain agrees with the closed form, each key counts, nonsense is refused."""

from __future__ import annotations

import csv
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from costmodel.chain import authored, reviewed
from costmodel.hazards import Hazards
from hwprofiles.errors import InputError
from simulator.case import Case, prepare
from simulator.gap import gap_recovered, trials_for, trials_needed
from simulator.review_curves import curves
from simulator.sampling import draw_samples, inputs
from simulator.scenario_file import load_scenario
from simulator.scenario_goals import Quality
from simulator.success import success_of
from simulator.success_chain import chain_success, is_extended, odds, step_risks

STRATEGIES = (
    "strong_only",
    "token_speculation",
    "weak_only",
    "task_router",
    "step_router",
    "step_speculation",
    "step_verification",
    "spec_agent",
    "spec_agent_pipelined",
    "spec_agent_adaptive",
)


def _case(*settings: str, name: str = "llama-a100") -> Case:
    return prepare(load_scenario(name, ["run.samples=16", "workload.n=6", *settings]))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("settings", [(), ("acceptance=0.8",)])
def test_the_chain_is_the_closed_form_where_that_holds(strategy: str, settings: tuple[str, ...]) -> None:
    case = _case(*settings)
    assert not is_extended(case.scenario.quality)
    samples = draw_samples(inputs(case), 16, 0)
    kept = {k: np.minimum(v, 0.94) if k == "acceptance" else v for k, v in samples.items()}
    for s in (None, kept):
        assert chain_success(case, strategy, s) == pytest.approx(success_of(case, strategy, s), rel=1e-9)


def test_a_router_by_length_is_the_chain_too() -> None:
    case = _case('strategies=["strong_only", "task_router"]', "protocol.router_most_steps=12")
    assert chain_success(case, "task_router", None) == pytest.approx(success_of(case, "task_router", None))


@pytest.mark.parametrize(
    "settings",
    [
        ("quality.recovery_mode=immediate",),
        ("quality.recovery_strong=0.6",),
        ("quality.recovery_weak=0.05",),
        ("quality.heterogeneity=0.3",),
        ("quality.heterogeneity=0.3", "quality.reviewer_correlation=0.7"),
        ("quality.irreversible=0.3",),
        ("quality.hold_failure=0.3",),
        ("quality.detection_depth_steps=1",),
    ],
)
def test_each_key_moves_success_and_its_interval(settings: tuple[str, ...]) -> None:
    case, bare = _case(*settings), _case(*settings[:-1])
    assert is_extended(case.scenario.quality)
    samples = draw_samples(inputs(case), 16, 0)
    assert success_of(case, "spec_agent", None) != pytest.approx(success_of(bare, "spec_agent", None), abs=1e-9)
    spread = success_of(case, "spec_agent", samples)
    assert spread.shape == (16,)
    assert np.all((spread >= 0) & (spread <= 1))


def test_the_keys_leave_acceptance_as_it_was() -> None:
    """Only hazards imply an acceptance; heterogeneity alone does not take the place of the prior."""
    assert _case("quality.heterogeneity=0.2").rung == _case().rung
    assert _case("quality.weak_hazard=0.2").rung == "implied by [quality]"


def test_a_difficulty_has_its_mean_in_the_middle() -> None:
    case = _case("quality.heterogeneity=0.4", "quality.reviewer_correlation=1")
    o = odds(case, None, 4, n_steps=20)
    assert o.mean(o.hazards.weak)[0] == pytest.approx(0.1)
    assert o.mean(o.hazards.detection)[0] == pytest.approx(0.55)
    assert np.all(np.diff(o.hazards.weak) > 0)
    assert np.all(np.diff(o.hazards.detection) < 0)


def test_a_correlated_reviewer_recovers_less() -> None:
    found = [
        float(
            success_of(_case("quality.heterogeneity=0.4", f"quality.reviewer_correlation={c}"), "spec_agent", None)[0]
        )
        for c in (0, 0.5, 1)
    ]
    assert found[0] > found[1] > found[2]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("quality.reviewer_correlation=0.5", "no effect without quality.heterogeneity"),
        ("quality.heterogeneity=1", "quality.heterogeneity"),
        ("quality.heterogeneity=0.2|quality.weak_hazard=0.6", "0 to 0.5"),
        ("quality.judgements=x.csv|quality.detection_depth_steps=3", "two sources"),
        (
            "quality.recovery=0.3|quality.recovery_weak=0.1|quality.recovery_strong=0.1",
            "quality.recovery has no effect",
        ),
        ("quality.recovery_weak=1.5", "quality.recovery_weak: must be 0 to 1"),
        ("quality.hold_failure=-0.1", "quality.hold_failure"),
        ("quality.recovery_mode=later", "quality.recovery_mode"),
        ("quality.detection_depth_steps=0", "quality.detection_depth_steps"),
        ("quality.heterogenity=0.1", "heterogeneity"),
    ],
)
def test_what_contradicts_or_is_out_of_range_is_refused(settings: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        load_scenario("llama-a100", settings.split("|"))


def _judged(path: Path, *, truth: bool = True) -> Path:
    """Wrong drafts are caught 9 times in 10 at the first place, 3 in 10 at the second; false alarms are 1 in 10."""
    with path.open("w", newline="") as f:
        rows = csv.writer(f)
        rows.writerow(["task", "step", "position", "effect", "accepted", *(["valid"] if truth else [])])
        for k in range(200):
            for m, caught in ((0, 9), (1, 3)):
                wrong = k < 100
                rejected = k % 10 < (caught if wrong else 1)
                rows.writerow([f"t{k}", m, m, "read", int(not rejected), *([int(not wrong)] if truth else [])])
    return path


def test_judgements_give_the_shape_and_the_hazards_the_level(tmp_path: Path) -> None:
    q = replace(Quality(), judgements=str(_judged(tmp_path / "j.csv")))
    d, f = curves(q, np.array([0.6, 0.3]), np.array([0.1, 0.1]), 4)
    assert d.shape == (2, 2, 1)
    assert d[0, 0, 0] == pytest.approx(0.9, abs=0.01)  # all wrong drafts are caught in 0.6, as here
    assert d[0, 1, 0] == pytest.approx(0.3, abs=0.01)
    assert d[1, 1, 0] < d[0, 1, 0]
    assert f[0, :, 0] == pytest.approx(0.1, abs=0.005)
    case = _case(f"quality.judgements={tmp_path / 'j.csv'}")
    assert success_of(case, "step_verification", None) > success_of(case, "spec_agent", None)


def test_judgements_need_the_truth(tmp_path: Path) -> None:
    case = _case(f"quality.judgements={_judged(tmp_path / 'j.csv', truth=False)}")
    with pytest.raises(InputError, match="valid"):
        success_of(case, "spec_agent", None)
    with pytest.raises(InputError, match="cannot be read"):
        success_of(_case("quality.judgements=nowhere.csv"), "spec_agent", None)


def test_detection_falls_by_the_stated_law() -> None:
    q = replace(Quality(), detection_depth_steps=2.0)
    d, _ = curves(q, np.array([0.5]), np.array([0.1]), 4)
    assert d[0, :, 0] == pytest.approx(0.5 * np.exp(-np.arange(4) / 2))


def test_a_stated_acceptance_says_how_often_the_strong_model_writes() -> None:
    case = _case("acceptance=0.7")
    h = odds(case, None, 4, n_steps=9).hazards
    assert (1 - h.weak) * (1 - h.false_reject) + h.weak * (1 - h.detection) == pytest.approx(0.7)


def test_limits_are_exact() -> None:
    """A perfect reviewer of a perfect author succeeds surely; one that accepts all is the weak model; one that rejects
    all is the strong one."""
    steps = step_risks(_case())[0]
    h = Hazards(weak=0.2, strong=0.05, detection=0.5, false_reject=0.1, recovery_weak=0.3, recovery_strong=0.3)
    n = len(steps)
    assert reviewed(steps, 4, replace(h, detection=1.0, strong=0.0)).success == 1
    weak = authored(steps, [1.0] * n, h).success
    assert reviewed(steps, 4, replace(h, detection=0.0, false_reject=0.0)).success == pytest.approx(weak, rel=1e-12)
    strong = authored(steps, [0.0] * n, h).success
    assert reviewed(steps, 4, replace(h, detection=1.0, false_reject=1.0)).success == pytest.approx(strong, rel=1e-12)
    assert reviewed(steps, 4, replace(h, weak=0.0, strong=0.0)).success == 1


def test_gap_recovered_rises_with_detection_and_is_not_clipped() -> None:
    found = []
    for d in (0.0, 0.25, 0.5, 0.75, 1.0):
        case = _case(f"quality.detection={d}", "quality.heterogeneity=0.2")
        gap = gap_recovered(case, "spec_agent", draw_samples(inputs(case), 16, 0))
        assert gap is not None
        assert gap.low <= gap.value <= gap.high
        found.append(gap.value)
    assert all(b > a for a, b in pairwise(found))
    assert found[-1] > 1  # independent errors: right drafts stand where the strong model would err


def test_no_gap_no_share_of_it() -> None:
    case = _case("quality.weak_hazard=0.05", "quality.strong_hazard=0.05")
    assert gap_recovered(case, "spec_agent", {}) is None


def test_trials_follow_the_formula() -> None:
    """n = ((1.645 s(0.02) + 0.842 s(0.01)) / 0.01)^2 at p = 0.9."""
    found = trials_needed(0.9)
    s = [np.sqrt(0.9 * 0.1 + (0.9 - d) * (0.1 + d)) for d in (0.02, 0.01)]
    assert found.unpaired == found.paired == int(np.ceil(((1.644854 * s[0] + 0.841621 * s[1]) / 0.01) ** 2))
    assert trials_needed(0.9, 0.03).paired < found.paired
    assert trials_needed(0.9, power=0.9).unpaired > found.unpaired


def test_trials_hold_their_level_and_power() -> None:
    """Drawn experiments of that size: the test errs in 5 % and tells in 80 %."""
    n, rng = trials_needed(0.9).unpaired, np.random.default_rng(1)
    strong = rng.binomial(n, 0.9, 4000) / n
    for drop, share in ((0.02, 0.05), (0.01, 0.8)):
        spec = rng.binomial(n, 0.9 - drop, 4000) / n
        error = np.sqrt((strong * (1 - strong) + spec * (1 - spec)) / n)
        assert np.mean((strong - spec - 0.02) / error < -1.644854) == pytest.approx(share, abs=0.025)


def test_tasks_in_common_save_trials_where_difficulties_differ() -> None:
    alike, unlike = (trials_for(_case(*s), "spec_agent") for s in ((), ("quality.heterogeneity=0.5",)))
    assert unlike.covariance > alike.covariance >= -1e-12
    assert unlike.paired < unlike.unpaired


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"strong": 1.2}, "success"),
        ({"strong": 0.9, "within": 0.03}, "within < worse"),
        ({"strong": 0.9, "power": 1}, "power"),
    ],
)
def test_impossible_trials_are_refused(arguments: dict[str, float], says: str) -> None:
    with pytest.raises(InputError, match=says):
        trials_needed(**arguments)
