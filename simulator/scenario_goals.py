"""Sections of a scenario about hazards, what to minimise, and how much to sample and simulate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.scenario_keywords import (
    STRICT,
    BelowOne,
    Level,
    OpenShare,
    Positive,
    Samples,
    Seeds,
    Share,
    Text,
    Tokens,
    Utilisation,
    key,
)
from simulator.uncertain import Band, Uncertain


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Per-step hazards behind success: a chain of clean and tainted states.

    The hazards alone give a closed form; with any of the keys behind them, the exact programme of `costmodel.chain`.
    """

    __pydantic_config__ = STRICT

    weak_hazard: Band = key(
        "1",
        "probability that a weak step is wrong",
        Uncertain(value=0.10, low=0.04, high=0.19, source="AgentProcessBench tau2 labels, weak policies"),
    )
    strong_hazard: Band = key(
        "1",
        "probability that a strong step is wrong",
        Uncertain(value=0.03, low=0.015, high=0.09, source="AgentProcessBench tau2 labels, best policy"),
    )
    detection: Band = key(
        "1",
        "probability that a review rejects a wrong step",
        Uncertain(value=0.55, low=0.4, high=0.65, source="AgentProcessBench judges on tau2"),
    )
    false_reject: Band = key(
        "1",
        "probability that a review rejects a valid step",
        Uncertain(value=0.04, low=0.02, high=0.11, source="AgentProcessBench judges on tau2"),
    )
    recovery: Band = key(
        "1",
        "probability per step that an earlier error is mended",
        Uncertain(value=0.25, low=0.1, high=0.5, source="no published figure; spans tau2 success at these hazards"),
    )
    recovery_weak: Band | None = key("1", "recovery by a step of the weak model; unset: recovery", None)
    recovery_strong: Band | None = key("1", "recovery by a step of the strong model; unset: recovery", None)
    recovery_mode: Literal["chain", "immediate"] = key(
        "", "a later step may mend an error (chain), or only the step that makes it (immediate)", "chain"
    )
    heterogeneity: BelowOne = key(
        "1", "rho of the tasks' difficulty, Beta with variance rho/4: 0 all alike, to 1 surely easy or hard", 0.0
    )
    reviewer_correlation: Share = key(
        "1", "degree to which detection falls with difficulty, as hazards rise with it", 0.0
    )
    irreversible: Share = key("1", "share of harmful writes that fail the task at once", 0.0)
    hold_failure: Share = key("1", "probability that a write is taken for a read and runs before its review", 0.0)
    hold_failure_sticky: bool = key(
        "", "a tool's hold fails for a whole task or not at all; false: drawn anew per call", True
    )
    detection_depth_steps: Positive | None = key(
        "steps", "detection at offset m of a segment is detection * exp(-m / this); unset: alike", None
    )
    judgements: Text | None = key(
        "", "judged drafts (CSV) whose truth is known: how detection and false_reject vary by position", None
    )


HAZARDS: tuple[str, ...] = ("weak_hazard", "strong_hazard", "detection", "false_reject", "recovery")
"""Keys of [quality] that always count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What a plan minimises and how money is counted."""

    __pydantic_config__ = STRICT

    minimise: Literal["time", "traffic", "flops", "energy", "money"] = key(
        "", "objective of the recommendation", "time"
    )
    success_drop_max: Share = key(
        "1",
        "acceptable drop in success against strong-only; a plan stays with strong-only where it surely drops more",
        0.02,
    )
    money: Literal["dedicated", "shared"] = key(
        "", "reserved devices for the wall time, or the busy share", "dedicated"
    )
    target_utilisation: Utilisation = key("1", "busy share a shared fleet is sized for", 0.6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Seeds and limits of sampling and simulation."""

    __pydantic_config__ = STRICT

    seed: Tokens = key("", "seed of every random stream", 0)
    seeds: Seeds = key("runs", "independent simulated runs", 5)
    precision: OpenShare | None = key(
        "1", "add seeds until means and ratios are known to this relative half-width; unset: run.seeds only", None
    )
    seeds_max: Seeds | None = key("runs", "most seeds under run.precision; unset: 50", None)
    confidence: Level | None = key("1", "level of simulated intervals; unset: 0.9", None)
    calibration: Text | None = key("", "calibration file with efficiency factors; unset: the bundled fit", None)
    horizon_s: Positive | None = key("s", "simulated time limit; unset: until all trajectories end", None)
    samples: Samples = key("samples", "quasi-Monte-Carlo points behind intervals", 64)
