"""A server's counters of FLOPs and bytes beside the cost model's, for the requests that were sent to it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from costmodel.arch import MoeMlp
from costmodel.counts import layer_groups
from costmodel.deployment import Deployment
from costmodel.request import plan_request
from costmodel.step import StepModel
from validate.calibrate_probe import ServerFacts, Timed
from validate.calibrate_targets import HttpTarget
from validate.counters import Step, Work, ours, solo_steps
from validate.counters_differences import WHY, Difference, differences, idle_step
from validate.openai_server import get_page
from validate.server_metrics import samples

QUANTITIES = {
    "flops": "vllm:estimated_flops_per_gpu_total",
    "read_bytes": "vllm:estimated_read_bytes_per_gpu_total",
    "write_bytes": "vllm:estimated_write_bytes_per_gpu_total",
}
_STEPS = "vllm:iteration_tokens_total_count"
_PROMPTS = "vllm:prompt_tokens_total"
_SETTLE_S = 0.2
"""Between two looks at a server's page: its last step is counted a moment after the last answer has gone out."""


class Request(NamedTuple):
    """Token counts of an answered request, as the server stated them; None where it did not."""

    prompt_tokens: int
    cached_tokens: int | None
    output_tokens: int


class Counted:
    """A target that notes its requests, and reads its server's counters when they begin and end."""

    def __init__(self, target: HttpTarget) -> None:
        self.target = target
        self.facts: ServerFacts = target.facts
        self.requests: list[Request] = []
        self.given_up = self.most = 0
        self._open = 0
        self._before: dict[str, float] = {}

    def now_s(self) -> float:
        """The target's clock."""
        return self.target.now_s()

    async def begin(self) -> None:
        """Read the counters before the first request."""
        self._before = await self._page()

    async def together(self, prompts: Sequence[Sequence[int]], output_tokens: int) -> list[Timed]:
        """As the target's."""
        self._open += len(prompts)
        self.most = max(self.most, self._open)
        try:
            answers = await self.target.together(prompts, output_tokens)
        except asyncio.CancelledError:
            self.given_up += len(prompts)
            raise
        finally:
            self._open -= len(prompts)
        self.requests += [Request(a.prompt_tokens, a.cached_tokens, a.output_tokens) for a in answers]
        return answers

    async def compared(self, dep: Deployment) -> dict[str, Any] | None:
        """Measured beside predicted for all requests since `begin`; None where the server has no such counters."""
        after = await self._page()
        grown = {name: value - self._before.get(name, 0.0) for name, value in after.items()}
        if not self._before or not grown.get(QUANTITIES["flops"]):
            return None
        return compared(dep, self.requests, grown, self.given_up, alone=self.most <= 1)

    async def _page(self) -> dict[str, float]:
        """The server's metrics, once they have come to rest; empty without its counters of FLOPs."""
        found: dict[str, float] = {}
        for _ in range(10):
            last = found
            try:
                found = samples(await asyncio.to_thread(get_page, f"{self.target.root}/metrics", 10.0))
            except ValueError:
                return {}
            if QUANTITIES["flops"] not in found:
                return {}
            if all(found[name] == last.get(name) for name in (*QUANTITIES.values(), _PROMPTS) if name in found):
                break
            await asyncio.sleep(_SETTLE_S)
        return found


def compared(
    dep: Deployment, requests: Sequence[Request], grown: Mapping[str, float], given_up: int = 0, *, alone: bool = True
) -> dict[str, Any]:
    """A server's counters beside the cost model's, in all and per request, with the differences by name.

    Parameters
    ----------
    grown : mapping
        What each metric of the server's page grew by.
    given_up : int
        Requests that were cut; their work is in the server's counters alone.
    alone : bool
        Never two requests at once. Otherwise weights are counted once per step that the server reports, FLOPs and
        KV as if each request had been alone.

    Returns
    -------
    dict with `flops`, `read_bytes`, `write_bytes` (weights, KV and activations together), each `measured`, `predicted`,
    `ratio` (predicted / measured) and `explained` (predicted with the differences / measured), None where it cannot be
    told; or with `reason` alone.
    """
    if dep.speculation is not None:
        return {"reason": "decode passes with token-level speculation are counted as prefills by the server"}
    if any(r.cached_tokens is None for r in requests):
        return {"reason": "the server does not say what it found cached (vLLM: --enable-prompt-tokens-details)"}
    model = StepModel(dep)
    steps = _steps(model, requests)
    n = max(1, len(requests))
    terms = differences(model, steps)
    total, extra = _sum(ours(model, steps).values()), _sum(d.work for d in terms)
    n_steps = float(len(steps)) if alone else _engine_steps(steps, grown)
    total, extra = _shared(dep, total, n_steps, len(steps)), _shared(dep, extra, n_steps, len(steps))
    others = grown.get(_PROMPTS, 0.0) - sum(r.prompt_tokens for r in requests)
    idle = _idle(model, grown[QUANTITIES["read_bytes"]] - total.read_bytes - extra.read_bytes, len(requests))
    if idle is not None and others <= 0:
        terms, extra = [*terms, idle], extra.plus(idle.work)
    found: dict[str, Any] = {
        "requests": len(requests),
        "given_up": given_up,
        "other_prompt_tokens": others,
        "engine_steps": n_steps,
    }
    for name, metric in QUANTITIES.items():
        found[name] = _beside(grown[metric], getattr(total, name), getattr(extra, name))
    found["per_request"] = {
        "flops": _or_none(total.flops / n),
        "weight_bytes": _or_none(total.weight_bytes / n),
        "kv_read_bytes": _or_none(total.kv_read_bytes / n),
        "kv_write_bytes": _or_none(total.kv_write_bytes / n),
    }
    found["differences"] = [_plain(d) for d in terms]
    return found


def in_words(found: Mapping[str, Any]) -> str:
    """What `compared` found, in one line."""
    if "reason" in found:
        return f"not compared, {found['reason']}"
    parts = []
    for name in QUANTITIES:
        one = found[name]
        if one["ratio"] is not None:
            parts.append(
                f"{name} {one['ratio']:.3f} of the server's, {one['explained']:.3f} with the named differences"
            )
    if found["other_prompt_tokens"] > 0:
        parts.append(f"the server also took {found['other_prompt_tokens']:.0f} prompt tokens, given up or of others")
    return f"{found['requests']} requests: {'; '.join(parts) or 'nothing counted'}"


def _steps(model: StepModel, requests: Sequence[Request]) -> list[Step]:
    """Each request's steps on an engine of its own; a prefix hit is taken as the server states it."""
    rule = replace(model.rule, block_tokens=1, state_aligned=False)
    plans = [
        (r.prompt_tokens, plan_request(rule, r.prompt_tokens, r.cached_tokens or 0, max(1, r.output_tokens)))
        for r in requests
        if r.prompt_tokens > 0
    ]
    return solo_steps(plans)


def _engine_steps(steps: Sequence[Step], grown: Mapping[str, float]) -> float | None:
    """Steps that the server took: it counts those that yield a token, so chunks that do not are added."""
    if _STEPS not in grown:
        return None
    partial = sum(not p.emits for s in steps for p in s.prefill)
    return min(grown[_STEPS] + partial, float(len(steps)))


def _shared(dep: Deployment, work: Work, n_steps: float | None, n_solo: int) -> Work:
    """Work with its weights read once a step; NaN where the experts read depend on who shared a step."""
    if n_steps == n_solo:
        return work
    routed = any(isinstance(layer.mlp, MoeMlp) for layer, _ in layer_groups(dep.model))
    share = float("nan") if n_steps is None or routed else n_steps / n_solo
    return work._replace(weight_bytes=work.weight_bytes * share)


def _idle(model: StepModel, left_bytes: float, most: int) -> Difference | None:
    """Idle steps, which no counter tells: the whole number of them that comes nearest to the bytes left to explain."""
    each = idle_step(model)
    n = 0 if math.isnan(left_bytes) else min(most, round(left_bytes / each.weight_bytes))
    return Difference("idle_steps", "all", each._replace(weight_bytes=n * each.weight_bytes)) if n > 0 else None


def _beside(measured: float, predicted: float, extra: float) -> dict[str, float | None]:
    return {
        "measured": measured,
        "predicted": _or_none(predicted),
        "ratio": _or_none(predicted / measured) if measured else None,
        "explained": _or_none((predicted + extra) / measured) if measured else None,
    }


def _plain(d: Difference) -> dict[str, Any]:
    amounts = {"flops": d.work.flops, "read_bytes": d.work.read_bytes, "write_bytes": d.work.write_bytes}
    return {"name": d.name, "component": d.component, **amounts, "why": WHY[d.name]}


def _sum(parts: Any) -> Work:
    total = Work()
    for part in parts:
        total = total.plus(part)
    return total


def _or_none(x: float) -> float | None:
    return None if math.isnan(x) else x
