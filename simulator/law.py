"""Workloads drawn from a law: a few means and spreads in place of recorded trajectories."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from costmodel.trajectory import Effect, Step, Trajectory, Workload
from hwprofiles.errors import InputError, ProfileError, unknown_name
from simulator.law_steps import MAX_STEPS, calls, effects_of, lognormal, poisson, relative, step_count
from simulator.memory import PREFIX, kept_law

MAX_TRAJECTORIES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadLaw:
    """Means and spreads of a synthetic workload.

    Parameters
    ----------
    steps : float
        Mean LLM steps per trajectory, the final reply included (2 + Poisson; exactly 1 where it is 1).
    output_tokens : float
        Mean tokens a step adds to the context, thinking apart; lognormal with `output_sigma`.
    thinking_tokens : float
        Mean tokens decoded besides those; lognormal with `output_sigma`.
    observation_tokens : float
        Mean tokens that follow a step other than the last; lognormal with `observation_sigma`.
    context_tokens : float
        Mean prompt tokens per step; all first prompts are equal and set so that it holds.
    write_share, reply_share : float
        Share of steps that write, and that speak to the user; the last step always replies. Writes are spread so that
        reads stand before each.
    calls_per_step : float
        Mean tool calls of a step with tools (1 + Poisson); they run in parallel.
    tool_latency_s : float
        Mean tool time of a step with tools; lognormal with `tool_latency_sigma`.
    user_gap_s : float
        Waiting time for the user after a reply that is not the last step.
    steps_spread : float
        Spread of the step count beyond Poisson: its variance is `m + steps_spread * m^2`, m = steps - 2 (negative
        binomial).
    first_prompt_tokens : float or None
        First prompt, in place of `context_tokens`: contexts then grow with the steps.
    write_output, reply_output, write_observation, reply_observation : float
        Mean of a step that writes or replies, relative to one that reads; the means over all steps stay as stated.
    """

    name: str
    source: str
    trajectories: int
    seed: int
    steps: float
    output_tokens: float
    output_sigma: float
    thinking_tokens: float
    observation_tokens: float
    observation_sigma: float
    context_tokens: float
    write_share: float
    reply_share: float
    calls_per_step: float
    tool_latency_s: float
    tool_latency_sigma: float
    user_gap_s: float
    steps_spread: float = 0.0
    first_prompt_tokens: float | None = None
    write_output: float = 1.0
    reply_output: float = 1.0
    write_observation: float = 1.0
    reply_observation: float = 1.0

    def __post_init__(self) -> None:
        limits = {
            "steps": (1.0, MAX_STEPS),
            "write_share": (0.0, 1.0),
            "reply_share": (0.0, 1.0),
            "calls_per_step": (1.0, 100.0),
            "output_tokens": (1.0, 1e6),
            "context_tokens": (1.0, 1e8),
            "first_prompt_tokens": (1.0, 1e8),
            "steps_spread": (0.0, 100.0),
        }
        for key in parameter_names():
            low, high = limits.get(key, (0.0, 5.0 if key.endswith("_sigma") else 1e6))
            value = getattr(self, key)
            if value is None and key == "first_prompt_tokens":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                raise InputError(f"workload {self.name}: {key} = {value!r} is outside {low:g} to {high:g}")
        if self.write_share + self.reply_share > 1:
            raise InputError(f"workload {self.name}: write_share + reply_share is over 1")

    def with_(self, **changes: float) -> WorkloadLaw:
        """The law with some parameters replaced; a mean prompt takes the place of a first prompt.

        Raises
        ------
        InputError
            If a name is not a parameter or a value is out of range.
        """
        for key in changes:
            if key not in parameter_names():
                raise unknown_name("parameter of a workload law", key, parameter_names())
        values: dict[str, Any] = dict(changes)
        if "context_tokens" in changes:
            values.setdefault("first_prompt_tokens", None)
        return dataclasses.replace(self, **values)


def parameter_names() -> tuple[str, ...]:
    """Names of a law's numeric parameters."""
    return tuple(f.name for f in dataclasses.fields(WorkloadLaw))[4:]


_OPTIONAL = {f.name for f in dataclasses.fields(WorkloadLaw) if f.default is not dataclasses.MISSING}


@dataclass(frozen=True, slots=True, kw_only=True)
class LawParameter:
    """One parameter of a bundled law with its provenance."""

    name: str
    value: float
    tier: str
    source: str


def law_names() -> tuple[str, ...]:
    """Names of the bundled laws."""
    return ("autonomous", "automation-bench", "mcp-atlas", "tau2-banking", "tau2-telecom", "vita-bench")


@cache
def law(name: str) -> WorkloadLaw:
    """A bundled law, or one that this process holds in memory.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    if name.startswith(PREFIX):
        return kept_law(name)
    table = _table(name)
    values: dict[str, Any] = {p.name: p.value for p in law_parameters(name)}
    head = {key: table[key] for key in ("name", "source", "trajectories", "seed")}
    return WorkloadLaw(**head, **values)


def law_parameters(name: str) -> tuple[LawParameter, ...]:
    """A bundled law's parameters, each with its tier and source."""
    rows = _table(name)["parameters"]
    names = [key for key in parameter_names() if key in rows or key not in _OPTIONAL]
    if set(rows) != set(names):
        raise ProfileError(f"{name}.toml: parameters differ from {', '.join(parameter_names())}")
    return tuple(LawParameter(name=key, **rows[key]) for key in names)


@cache
def _table(name: str) -> Mapping[str, Any]:
    if name not in law_names():
        raise unknown_name("workload law", name, law_names())
    return tomllib.loads(files("simulator").joinpath(f"data/workloads/{name}.toml").read_text(encoding="utf-8"))


def draw(law: WorkloadLaw, n: int | None = None, seed: int | None = None) -> Workload:
    """`n` trajectories of a law; the same law, n and seed give the same workload.

    Each quantity of each trajectory has its own random stream, so changing one parameter leaves the draws of the others
    as they were.

    Raises
    ------
    InputError
        If `n` is out of range or the context is too small for what the steps add to it.
    """
    n = law.trajectories if n is None else n
    seed = law.seed if seed is None else seed
    if not 1 <= n <= MAX_TRAJECTORIES or seed < 0:
        raise InputError(f"workload {law.name}: n = {n} must be 1 to {MAX_TRAJECTORIES} and seed = {seed} at least 0")
    drawn = [_draw_one(law, seed, i) for i in range(n)]
    first = _first_prompt(law, drawn)
    trajectories = tuple(_placed(law, i, steps, first) for i, steps in enumerate(drawn))
    return Workload(name=law.name, trajectories=trajectories, kind="law", source=law.source)


def _draw_one(law: WorkloadLaw, seed: int, index: int) -> list[dict[str, Any]]:
    """The fields of the steps of a trajectory, but for their prompts."""
    import numpy as np

    def stream(k: int) -> np.random.Generator:
        return np.random.default_rng([seed, index, k])

    count = step_count(law, float(stream(0).random()), stream(7))
    effects = effects_of(law, count, stream(1).random(count + 2).tolist())
    output = lognormal(law.output_tokens, law.output_sigma, stream(2).standard_normal(count).tolist())
    output = [x * r for x, r in zip(output, relative(law, "output", effects), strict=True)]
    thinking = lognormal(law.thinking_tokens, law.output_sigma, stream(3).standard_normal(count).tolist())
    observed = lognormal(law.observation_tokens, law.observation_sigma, stream(4).standard_normal(count).tolist())
    observed = [x * r for x, r in zip(observed, relative(law, "observation", effects), strict=True)]
    waits = lognormal(law.tool_latency_s, law.tool_latency_sigma, stream(5).standard_normal(count).tolist())
    n_calls = [1 + poisson(law.calls_per_step - 1, u) for u in stream(6).random(count).tolist()]
    steps: list[dict[str, Any]] = []
    for j, effect in enumerate(effects):
        visible = max(1, round(output[j]))
        tools = () if effect is Effect.REPLY else calls(effect, n_calls[j], round(waits[j], 6))
        after_reply = j > 0 and effects[j - 1] is Effect.REPLY
        steps.append(
            {
                "index": j,
                "effect": effect,
                "output_tokens": visible + round(thinking[j]),
                "visible_tokens": visible,
                "observation_tokens": round(observed[j]) if j < count - 1 else 0,
                "tools": tools,
                "tool_s": tools[0].latency_s if tools else 0.0,
                "user_gap_s": None if j == 0 else law.user_gap_s if after_reply else 0.0,
            }
        )
    return steps


def _first_prompt(law: WorkloadLaw, drawn: list[list[dict[str, Any]]]) -> int:
    if law.first_prompt_tokens is not None:
        return max(1, round(law.first_prompt_tokens))
    total, steps = 0, 0
    for trajectory in drawn:
        grown = 0
        for step in trajectory:
            total += grown
            grown += step["visible_tokens"] + step["observation_tokens"]
            steps += 1
    first = round(law.context_tokens - total / steps)
    if first < 1:
        raise InputError(
            f"workload {law.name}: context_tokens = {law.context_tokens:g} is less than what the steps add; "
            f"at least {total / steps + 1:.0f} is needed"
        )
    return first


def _placed(law: WorkloadLaw, index: int, steps: list[dict[str, Any]], first: int) -> Trajectory:
    prompt, placed = first, []
    for step in steps:
        placed.append(Step(prompt_tokens=prompt, **step))
        prompt += step["visible_tokens"] + step["observation_tokens"]
    return Trajectory(
        id=f"{law.name}-{index}",
        source_format="law",
        domain=law.name,
        task=str(index),
        missing=("cache", "outcome", "times"),
        steps=tuple(placed),
    )
