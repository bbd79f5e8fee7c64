"""Importer of SWE-agent and mini-swe-agent trajectories: an entry of `trajectory`, or an assistant message, is a step.

SWE-agent records the shell action, the tool's `execution_time` and token totals only: its steps have no token counts.
mini-swe-agent keeps the provider's response with its usage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from simulator.effects import declared_tools
from simulator.traces.entries import entries
from simulator.traces.load import TraceFile
from simulator.traces.raw import RawCall, RawStep, RawTrajectory, Warnings
from simulator.traces.values import count, first_count, items, mapping, moment, optional, seconds, words

NAME = "swe_agent"
DESCRIPTION = "SWE-agent and mini-swe-agent trajectories (.traj, .json)"
LISTS: tuple[str, ...] = ()
_FENCE = re.compile(r"```(?:bash|sh|shell|mswea_bash_command)?\s*\n(.*?)\n```", re.DOTALL)


def looks_like(sample: object) -> bool:
    """Whether a parsed document is a trajectory of either."""
    if not isinstance(sample, dict) or not isinstance(sample.get("info"), dict):
        return False
    if isinstance(sample.get("trajectory"), list):
        return True
    format_ = sample.get("trajectory_format")
    known = isinstance(format_, str) and "swe" in format_
    return isinstance(sample.get("messages"), list) and (known or "model_stats" in sample["info"])


def read(sources: Iterable[TraceFile], warnings: Warnings) -> Iterator[RawTrajectory]:
    """The trajectories of files, one a file (or a line)."""
    for source in sources:
        for entry in entries(source):
            found = mapping(entry.value, entry.where)
            name = source.stem.removesuffix(".traj") if source.kind != "lines" else entry.where
            instance = found.get("instance_id")
            raw = RawTrajectory(
                id=instance if isinstance(instance, str) and instance.isprintable() and instance else name,
                domain=words(found.get("environment")),
                declared="swe-agent",
            )
            raw.id = raw.id[:200]
            raw.task = raw.id
            if isinstance(found.get("trajectory"), list):
                _entries(found, raw, entry.where, warnings)
            else:
                _messages(found, raw, entry.where)
            yield raw


def _entries(found: dict[str, object], raw: RawTrajectory, where: str, warnings: Warnings) -> None:
    for i, value in enumerate(items(found["trajectory"], f"{where}: trajectory")):
        place = f"{where}: trajectory[{i}]"
        entry = mapping(value, place)
        action = entry.get("action", entry.get("command"))
        took = optional(seconds, entry.get("execution_time"), f"{place}: execution_time")
        step = RawStep(where=place)
        if isinstance(action, str) and action.strip():
            step.calls.append(_call(action, told="action" in entry, latency_s=took))
        raw.steps.append(step)
    info = mapping(found["info"], f"{where}: info")
    stats = optional(mapping, info.get("model_stats"), f"{where}: info.model_stats") or {}
    sent = optional(count, stats.get("tokens_sent"), f"{where}: tokens_sent")
    if sent:
        warnings.add("token counts are told as totals only, so no step has them", f"{where}: tokens_sent")


def _call(action: str, *, told: bool, latency_s: float | None) -> RawCall:
    """The tool of an action: one of SWE-agent's own commands by its first word, anything else is the shell's."""
    words = action.strip().split(maxsplit=1)
    name = (
        words[0] if words[0] in declared_tools("swe-agent")[0] and "\n" not in action.strip().split(" ")[0] else "bash"
    )
    return RawCall(name=name, arguments={"command": action} if told else None, latency_s=latency_s)


def _messages(found: dict[str, object], raw: RawTrajectory, where: str) -> None:
    last_s: float | None = None
    for i, value in enumerate(items(found.get("messages"), f"{where}: messages")):
        place = f"{where}: messages[{i}]"
        message = mapping(value, place)
        extra = message.get("extra")
        extra = extra if isinstance(extra, dict) else {}
        at = extra.get("timestamp", message.get("timestamp"))
        now = optional(moment, at, f"{place}: timestamp")
        if message.get("role") == "assistant":
            response = extra.get("response")
            usage = response.get("usage") if isinstance(response, dict) else None
            step = RawStep(where=place, start_s=last_s, end_s=now[0] if now else None)
            step.prompt_tokens = first_count(place, [usage], "prompt_tokens", "input_tokens")
            step.output_tokens = first_count(place, [usage], "completion_tokens", "output_tokens")
            step.cached_tokens = first_count(
                place, [usage], "prompt_tokens_details.cached_tokens", "cache_read_input_tokens"
            )
            step.thinking_tokens = first_count(place, [usage], "completion_tokens_details.reasoning_tokens")
            model = response.get("model") if isinstance(response, dict) else None
            step.model = words(model)
            step.calls = [RawCall(name="bash", arguments={"command": c}) for c in _commands(message, extra)]
            raw.steps.append(step)
        elif raw.steps and raw.steps[-1].calls and now and raw.steps[-1].end_s is not None:
            code = extra.get("returncode")
            for call in raw.steps[-1].calls:
                call.start_s, call.end_s = raw.steps[-1].end_s, max(raw.steps[-1].end_s, now[0])
                call.error = code != 0 if isinstance(code, int) else None
        last_s = now[0] if now else last_s


def _commands(message: dict[str, object], extra: dict[str, object]) -> list[str]:
    actions = extra.get("actions")
    if isinstance(actions, list) and actions:
        found = [a.get("command") if isinstance(a, dict) else a for a in actions]
        return [c for c in found if isinstance(c, str)]
    content = message.get("content")
    return _FENCE.findall(content)[:1] if isinstance(content, str) else []
