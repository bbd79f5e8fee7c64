"""Importer for tau2-bench results: one assistant message with usage is one step.

The customer of tau2 is an LLM too; its messages and its own tools (telecom) are time spent on the user, not agent
steps. A message carries only the time when it was made, so a step starts at the message before it, unless the file says
how long the generation took, and a tool's time is the gap to its answer (with the harness's overhead in it).
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from statistics import median

from hwprofiles.errors import InputError
from simulator.traces.entries import entries
from simulator.traces.load import TraceFile
from simulator.traces.raw import RawCall, RawStep, RawTrajectory, Warnings, packed, parsed_arguments, unpacked
from simulator.traces.spill import Spill
from simulator.traces.values import count, instant, items, label, mapping, number, optional, seconds, text

NAME = "tau2"
LISTS = ("simulations",)
DESCRIPTION = "tau2-bench results (an object with simulations)"
_SLOW_GAP_S = 0.05
_SAME_TIMES = 3


def looks_like(sample: object) -> bool:
    """Whether a parsed document (or the first line of one) is tau2 results or one simulation of them."""
    if not isinstance(sample, dict):
        return False
    if isinstance(sample.get("simulations"), list):
        return True
    return "task_id" in sample and isinstance(sample.get("messages"), list)


def read(sources: Iterable[TraceFile], warnings: Warnings) -> Iterator[RawTrajectory]:
    """The trajectories of tau2 result files."""
    seen: set[str] = set()
    spill = Spill()
    durations: Counter[float] = Counter()
    gaps = array("d")
    n = 0
    for source in sources:
        for entry in entries(source, *LISTS):
            sim = mapping(entry.value, entry.where)
            domain, model = _info(entry.head.get("info"), entry.where)
            _once(sim, entry.where, seen)
            spill.add(str(n), packed(_trajectory(sim, entry.where, domain, model, warnings, gaps)))
            duration = optional(number, sim.get("duration"), f"{entry.where}.duration")
            if duration is not None:
                durations[duration] += 1
            n += 1
    placeholders = durations.total() >= _SAME_TIMES and len(durations) == 1
    if placeholders:
        warnings.add("every trajectory has the same duration: the times are placeholders and are left out")
    elif gaps and median(gaps) > _SLOW_GAP_S:
        warnings.add(
            f"tool times are gaps between messages (median {median(gaps):.3g} s) and may be overhead of the harness"
        )
    for (row,) in spill.groups():
        raw = unpacked(row)
        if placeholders:
            _forget_times(raw)
        yield raw


def _info(value: object, where: str) -> tuple[str | None, str | None]:
    if value is None:
        return None, None
    info = mapping(value, f"{where}: info")
    environment = optional(mapping, info.get("environment_info"), f"{where}: info.environment_info") or {}
    agent = optional(mapping, info.get("agent_info"), f"{where}: info.agent_info") or {}
    domain = optional(text, environment.get("domain_name"), f"{where}: info.environment_info.domain_name")
    return domain, optional(text, agent.get("llm"), f"{where}: info.agent_info.llm")


def _once(sim: dict[str, object], where: str, seen: set[str]) -> None:
    sim_id = sim.get("id")
    if sim_id is None:
        return
    key = text(sim_id, f"{where}.id")
    if key in seen:
        raise InputError(f"{where}: simulation id {key!r} occurs twice; is a file given twice?")
    seen.add(key)


def _trajectory(
    sim: dict[str, object],
    where: str,
    domain: str | None,
    model: str | None,
    warnings: Warnings,
    gaps: array[float],
) -> RawTrajectory:
    task = optional(label, sim.get("task_id"), f"{where}.task_id")
    trial = optional(count, sim.get("trial"), f"{where}.trial")
    reward = optional(mapping, sim.get("reward_info"), f"{where}.reward_info") or {}
    named = f"task {task}" if task is not None else where
    raw = RawTrajectory(
        id=f"{domain or 'tau2'}-{task}" + (f"-trial{trial}" if trial else ""),
        domain=domain,
        task=task,
        trial=trial,
        outcome=optional(number, reward.get("reward"), f"{where}.reward_info.reward"),
        declared=f"tau2:{domain}" if domain in ("retail", "airline", "telecom", "mock") else None,
    )
    messages = [
        mapping(m, f"{where}.messages[{i}]") for i, m in enumerate(items(sim.get("messages"), f"{where}.messages"))
    ]
    clock = _clock(messages, where, raw, warnings)
    walk = _Walk(raw=raw, label=named, model=model, warnings=warnings, gaps=gaps)
    walk.scripted = any(m.get("role") == "assistant" and m.get("usage") for m in messages)
    for i, message in enumerate(messages):
        walk.take(message, f"{where}.messages[{i}]", clock[i], clock[i - 1] if i else None)
    walk.close()
    return raw


def _clock(messages: list[dict[str, object]], where: str, raw: RawTrajectory, warnings: Warnings) -> list[float | None]:
    """Times of the messages in seconds; none at all where zones are mixed."""
    moments = [
        optional(instant, m.get("timestamp"), f"{where}.messages[{i}].timestamp") for i, m in enumerate(messages)
    ]
    if len({zoned for moment in moments if moment is not None for zoned in moment[1:]}) > 1:
        warnings.add("some times name their zone and others do not: times left out", raw.id)
        return [None] * len(messages)
    return [moment[0] if moment else None for moment in moments]


class _Walk:
    """Goes through one simulation's messages in order and fills the trajectory's steps."""

    def __init__(
        self, *, raw: RawTrajectory, label: str, model: str | None, warnings: Warnings, gaps: array[float]
    ) -> None:
        self.raw = raw
        self.label = label
        self.model = model
        self.warnings = warnings
        self.gaps = gaps
        self.scripted = True
        self.open: dict[str, RawCall] = {}
        self.user_spoke = False
        self.agent_until: float | None = None
        self.user_until: float | None = None

    def take(self, message: dict[str, object], where: str, at: float | None, before: float | None) -> None:
        role = message.get("role")
        if role == "assistant":
            self._assistant(message, where, at, before)
        elif role == "tool":
            self._answer(message, where, at, before)
        elif role == "user":
            self.user_spoke = True
            self.user_until = at
        elif role != "system":
            self.warnings.add("messages of an unknown role are skipped", where)

    def close(self) -> None:
        if self.open:
            self.warnings.add("a tool call has no result", self.label)

    def _assistant(self, message: dict[str, object], where: str, at: float | None, before: float | None) -> None:
        calls = [
            c
            for i, entry in enumerate(optional(items, message.get("tool_calls"), f"{where}.tool_calls") or [])
            if (c := _call(entry, f"{where}.tool_calls[{i}]")) is not None
        ]
        content = message.get("content")
        spoke = isinstance(content, str) and bool(content.strip())
        usage = optional(mapping, message.get("usage"), f"{where}.usage")
        begun = bool(self.raw.steps) or self.user_spoke
        if not usage and not calls and (self.scripted or not begun):
            if begun:
                self.warnings.add(
                    "an assistant message without usage beside ones with usage is taken as scripted", where
                )
            return
        step = RawStep(where=f"{self.label}, step {len(self.raw.steps)}", calls=calls, spoke=spoke, model=self.model)
        if usage:
            _tokens(step, usage, message, where, self.warnings)
        took = optional(seconds, message.get("generation_time_seconds"), f"{where}.generation_time_seconds")
        step.end_s = at
        step.start_s = at - took if at is not None and took is not None else before
        if self.raw.steps:
            step.user_gap_s = self._user_gap()
        if self.open:
            self.warnings.add("a tool call has no result", self.label)
            self.open.clear()
        for call in calls:
            key = call.id or f"#{len(self.open)}"
            if key in self.open:
                self.warnings.add("two calls of one step share an id", step.where)
            self.open[key] = call
        self.raw.steps.append(step)
        self.user_spoke, self.agent_until = False, at

    def _user_gap(self) -> float | None:
        if not self.user_spoke:
            return 0.0
        if self.user_until is None or self.agent_until is None or self.user_until < self.agent_until:
            return None
        return self.user_until - self.agent_until

    def _answer(self, message: dict[str, object], where: str, at: float | None, before: float | None) -> None:
        if message.get("requestor") == "user":
            self.user_until = at
            return
        call_id = optional(text, message.get("id"), f"{where}.id")
        call = self.open.pop(call_id, None) if call_id is not None else None
        if call is None:
            self.warnings.add("a tool result answers no call", where)
            return
        error = message.get("error")
        call.error = error if isinstance(error, bool) else None
        if at is not None and before is not None and at >= before:
            call.start_s, call.end_s = before, at
            self.gaps.append(at - before)
        self.agent_until = at


def _call(value: object, where: str) -> RawCall | None:
    entry = mapping(value, where)
    if entry.get("requestor") == "user":
        return None
    return RawCall(
        name=text(entry.get("name"), f"{where}.name"),
        id=optional(text, entry.get("id"), f"{where}.id"),
        arguments=parsed_arguments(entry.get("arguments")),
    )


def _tokens(
    step: RawStep, usage: dict[str, object], message: dict[str, object], where: str, warnings: Warnings
) -> None:
    """Fill the token counts: `usage` first, the provider's own record (`raw_data.usage`) where it says more.

    Gemini names no cached or thinking part when there is none, but its text part is then the whole.
    """
    extra = optional(mapping, message.get("raw_data"), f"{where}.raw_data") or {}
    raw = optional(mapping, extra.get("usage"), f"{where}.raw_data.usage") or {}

    def first(*paths: tuple[str, ...]) -> int | None:
        for table in (usage, raw):
            for path in paths:
                value: object = table
                for key in path:
                    value = value.get(key) if isinstance(value, dict) else None
                if value is not None:
                    return count(value, f"{where}.usage.{'.'.join(path)}")
        return None

    step.prompt_tokens = first(("prompt_tokens",))
    output = first(("completion_tokens",))
    thinking = first(("reasoning_tokens",), ("completion_tokens_details", "reasoning_tokens"))
    total = first(("total_tokens",))
    if total is not None and output is not None and step.prompt_tokens is not None:
        rest = total - step.prompt_tokens - output
        if thinking and rest == thinking:
            output += thinking
        elif rest:
            warnings.add("total tokens are not prompt plus completion", step.where)
    step.output_tokens, step.thinking_tokens = output, thinking
    step.cached_tokens = first(("cache_read_tokens",), ("prompt_tokens_details", "cached_tokens"))
    if thinking is None and output is not None and first(("completion_tokens_details", "text_tokens")) == output:
        step.thinking_tokens = 0
    uncached = first(("prompt_tokens_details", "text_tokens"))
    if step.cached_tokens is None and uncached is not None and uncached == step.prompt_tokens:
        step.cached_tokens = 0


def _forget_times(raw: RawTrajectory) -> None:
    for step in raw.steps:
        step.start_s = step.end_s = step.user_gap_s = None
        for call in step.calls:
            call.start_s = call.end_s = None
