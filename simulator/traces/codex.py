"""Importer of Codex rollout files: what the model wrote up to the next `token_count` is one step.

`token_count` events are repeated, so one whose total did not change is dropped. Input counts include the cached part,
output counts the reasoning. A step ends with its last item and starts with the last thing that was put to the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from simulator.traces.load import TraceFile
from simulator.traces.messages import said
from simulator.traces.nodes import gaps
from simulator.traces.raw import RawCall, RawStep, RawTrajectory, Warnings, parsed_arguments
from simulator.traces.values import count, label, mapping, moment, optional, seconds, words

NAME = "codex"
DESCRIPTION = "Codex rollouts (JSON Lines; a folder of them is fine)"
LISTS: tuple[str, ...] = ()
_KINDS = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_WRITTEN = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call", "reasoning", "message")
_ANSWERS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


def looks_like(sample: object) -> bool:
    """Whether a parsed line is one of a rollout."""
    return isinstance(sample, dict) and sample.get("type") in _KINDS and isinstance(sample.get("payload"), dict)


def read(sources: Iterable[TraceFile], warnings: Warnings) -> Iterator[RawTrajectory]:
    """The trajectories of rollout files, one a file."""
    for source in sources:
        rollout = _Rollout(source, warnings)
        for where, value in source.records():
            rollout.take(mapping(value, where), where)
        yield rollout.done()


class _Rollout:
    """Goes through one file's lines in order."""

    def __init__(self, source: TraceFile, warnings: Warnings) -> None:
        self.raw = RawTrajectory(id=source.stem, task=source.stem, declared="codex")
        self.source = source
        self.warnings = warnings
        self.named = False
        self.counted = False
        self.model: str | None = None
        self.zoned: bool | None = None
        self.step: RawStep | None = None
        self.answered = False
        self.total: object = None
        self.asked: dict[str, RawCall] = {}
        self.put_at: float | None = None

    def take(self, line: dict[str, object], where: str) -> None:
        """One line of the file."""
        at = self._at(line, where)
        kind, payload = line.get("type"), line.get("payload")
        if kind not in _KINDS:
            return
        found = mapping(payload, f"{where}: payload")
        if kind == "session_meta":
            if not self.named:
                self.raw.id = optional(label, found.get("id"), f"{where}: payload.id") or self.raw.id
                self.named = True
        elif kind == "turn_context":
            self.model = words(found.get("model")) or self.model
        elif kind == "compacted":
            self.warnings.add("the conversation was compacted: prompts shrink there", where)
        elif kind == "response_item":
            self._item(found, at, where)
        elif found.get("type") == "token_count":
            self._count(found, where)
        elif found.get("type") in ("user_message", "task_started", "turn_started"):
            self.put_at = at

    def _at(self, line: dict[str, object], where: str) -> float | None:
        found = optional(moment, line.get("timestamp"), f"{where}: timestamp")
        if found is None:
            return None
        if self.zoned not in (None, found[1]):
            self.warnings.add("some times name their zone and others do not: those without are read as UTC", where)
        self.zoned = found[1]
        return found[0]

    def _item(self, item: dict[str, object], at: float | None, where: str) -> None:
        kind = item.get("type")
        if kind in _ANSWERS:
            self._answer(item, at, where)
        elif kind == "message" and item.get("role") != "assistant":
            self.put_at = at
        elif kind in _WRITTEN:
            if self.step is not None and self.answered and not self.counted:
                self._close()
            if self.step is None:
                self._begin()
            assert self.step is not None
            self.step.end_s = at if at is not None else self.step.end_s
            self._written(item, at, where)

    def _begin(self) -> None:
        self.step = RawStep(
            where=f"{self.source.name}, step {len(self.raw.steps)}", start_s=self.put_at, model=self.model
        )
        self.answered = False

    def _close(self) -> None:
        if self.step is not None:
            self.raw.steps.append(self.step)
        self.step = None

    def _written(self, item: dict[str, object], at: float | None, where: str) -> None:
        assert self.step is not None
        if item.get("type") == "web_search_call":
            action = item.get("action")
            self.step.calls.append(RawCall(name="web_search", arguments=action))
            return
        heard = said(item, where)
        self.step.spoke = self.step.spoke or heard.spoke
        for call in heard.calls:
            call_id = item.get("call_id")
            call.id = words(call_id) or call.id
            call.start_s = at
            if call.id is not None:
                if call.id in self.asked:
                    self.warnings.add("two calls share an id; the second is ignored", where)
                    continue
                self.asked[call.id] = call
            self.step.calls.append(call)

    def _answer(self, item: dict[str, object], at: float | None, where: str) -> None:
        call_id = item.get("call_id")
        call = self.asked.get(words(call_id) or "")
        self.put_at, self.answered = at, True
        if call is None:
            self.warnings.add("a tool result answers no call", where)
            return
        if at is not None and call.start_s is not None and at >= call.start_s:
            call.end_s = at
        told = parsed_arguments(item.get("output"))
        if isinstance(told, dict):
            inner = told.get("metadata")
            metadata = inner if isinstance(inner, dict) else told
            code = metadata.get("exit_code")
            if isinstance(code, int):
                call.error = code != 0
            elif isinstance(told.get("success"), bool):
                call.error = not told["success"]
            took = metadata.get("duration_seconds")
            call.latency_s = optional(seconds, took, f"{where}: duration_seconds")

    def _count(self, found: dict[str, object], where: str) -> None:
        info = optional(mapping, found.get("info"), f"{where}: info")
        if info is None:
            return
        last = optional(mapping, info.get("last_token_usage"), f"{where}: last_token_usage")
        total = info.get("total_token_usage")
        if last is None or (total is not None and total == self.total):
            return
        self.total, self.counted = total, True
        if self.step is None:
            self.warnings.add("token counts of a call that left no item (a compaction or a retry) make no step", where)
            return
        step = self.step
        step.prompt_tokens = optional(count, last.get("input_tokens"), f"{where}: input_tokens")
        step.cached_tokens = optional(count, last.get("cached_input_tokens"), f"{where}: cached_input_tokens")
        step.output_tokens = optional(count, last.get("output_tokens"), f"{where}: output_tokens")
        step.thinking_tokens = optional(count, last.get("reasoning_output_tokens"), f"{where}: reasoning_output_tokens")
        self._close()

    def done(self) -> RawTrajectory:
        """The trajectory when all lines were taken."""
        self._close()
        if any(c.end_s is None and c.latency_s is None for c in self.asked.values()):
            self.warnings.add("a tool call has no result", self.raw.id)
        gaps(self.raw.steps)
        return self.raw
