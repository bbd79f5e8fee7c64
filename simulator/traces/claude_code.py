"""Importer for Claude Code session files: the lines that share a `message.id` are one step.

Each line repeats the message's usage, so counts are taken once. `input_tokens` excludes the cache, so the prompt is
input + cache creation + cache read. The output count is final only on the line with a `stop_reason`; messages without
one get an estimate from their characters, at the rate of the messages that have one. Thinking is inside the output.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from simulator.traces.claude_lines import slim
from simulator.traces.load import TraceFile
from simulator.traces.raw import RawCall, RawStep, RawTrajectory, Warnings
from simulator.traces.spill import Spill
from simulator.traces.values import count, instant, items, mapping, optional, text

NAME = "claude_code"
LISTS: tuple[str, ...] = ()
DESCRIPTION = "Claude Code sessions (JSON Lines; a folder of them is fine)"
CHARACTERS_PER_TOKEN = 4.0
"""Assumed where no message of the import has a final count to learn the rate from."""


def looks_like(sample: object) -> bool:
    """Whether a parsed line is one of a Claude Code session."""
    if not isinstance(sample, dict) or not isinstance(sample.get("type"), str):
        return False
    if sample["type"] in ("user", "assistant"):
        return isinstance(sample.get("message"), dict) and any(k in sample for k in ("sessionId", "session_id", "uuid"))
    bookkeeping = "sessionId" in sample and "traceId" not in sample and "id" not in sample
    return bookkeeping or (sample["type"] == "summary" and "leafUuid" in sample)


@dataclass(slots=True, kw_only=True)
class _Message:
    """One LLM call while its lines are gathered."""

    step: RawStep
    characters: int = 0
    final: bool = False
    counted: int = 0
    text_shown: bool = False


@dataclass(slots=True, kw_only=True)
class _Chain:
    """One agent of a session: the main one, or a subagent (side chain)."""

    raw: RawTrajectory
    messages: dict[str, _Message] = field(default_factory=dict)
    calls: dict[str, RawCall] = field(default_factory=dict)
    last_event_s: float | None = None
    agent_until_s: float | None = None
    user_at_s: float | None = None


def read(sources: Iterable[TraceFile], warnings: Warnings) -> Iterator[RawTrajectory]:
    """The trajectories of session files: one per session, and one per subagent in it."""
    spill = Spill()
    for n, source in enumerate(sources):
        for where, value in source.records():
            line = mapping(value, where)
            if line.get("type") in ("user", "assistant"):
                session = line.get("sessionId", line.get("session_id"))
                key = f"{n}:{session}" if isinstance(session, str) else f"{n}:"
                spill.add(key, [source.name, source.stem, where, slim(line)])
    rate = _rate(m for chain in _chains(spill, Warnings()) for m in chain.messages.values())
    for chain in _chains(spill, warnings):
        _estimate(chain, rate, warnings)
        if chain.calls:
            warnings.add("a tool call has no result", chain.raw.id)
        yield chain.raw


def _chains(spill: Spill, warnings: Warnings) -> Iterator[_Chain]:
    """The agents of all sessions; a message that several files repeat counts in the first."""
    known: set[str] = set()
    for rows in spill.groups():
        session = _Session(rows[0][0], rows[0][1], warnings, known)
        for _, _, where, line in rows:
            session.take(line, where)
        known.update(k for chain in session.chains.values() for k in chain.messages)
        yield from session.chains.values()


class _Session:
    """Goes through one file's lines in order."""

    def __init__(self, name: str, stem: str, warnings: Warnings, known: set[str]) -> None:
        self.name = name
        self.stem = stem
        self.warnings = warnings
        self.known = known
        self.chains: dict[str, _Chain] = {}
        self.root: dict[str, str] = {}
        self.zoned: bool | None = None

    def take(self, line: dict[str, object], where: str) -> None:
        """One line of the session."""
        kind = line.get("type")
        message = mapping(line.get("message"), f"{where}: message")
        at = self._instant(line, where)
        chain = self._chain(line, where)
        if kind == "user":
            self._user(line, message, chain, at, where)
        else:
            self._assistant(line, message, chain, at, where)

    def _instant(self, line: dict[str, object], where: str) -> float | None:
        moment = optional(instant, line.get("timestamp"), f"{where}: timestamp")
        if moment is None:
            return None
        if self.zoned is None:
            self.zoned = moment[1]
        if self.zoned != moment[1]:
            self.warnings.add("some times name their zone and others do not: those are left out", where)
            return None
        return moment[0]

    def _chain(self, line: dict[str, object], where: str) -> _Chain:
        uuid = optional(text, line.get("uuid"), f"{where}: uuid")
        key = "main"
        if line.get("isSidechain") is True:
            parent = optional(text, line.get("parentUuid"), f"{where}: parentUuid")
            agent = optional(text, line.get("agentId"), f"{where}: agentId")
            key = agent or self.root.get(parent or "", "") or uuid or "side chain"
        if uuid is not None:
            self.root[uuid] = key
        if key not in self.chains:
            session = optional(text, line.get("sessionId"), f"{where}: sessionId") or self.stem
            raw = RawTrajectory(id=session, task=self.stem, declared="claude-code")
            if key != "main":
                raw.id, raw.domain = f"{session}/{key}", "subagent"
                self.warnings.add("subagents are trajectories of their own", where)
            self.chains[key] = _Chain(raw=raw)
        return self.chains[key]

    def _user(
        self, line: dict[str, object], message: dict[str, object], chain: _Chain, at: float | None, where: str
    ) -> None:
        content = message.get("content")
        spoke = isinstance(content, str) and line.get("isMeta") is not True and line.get("isCompactSummary") is not True
        if not isinstance(content, str):
            for i, entry in enumerate(items(content, f"{where}: content")):
                place = f"{where}: content[{i}]"
                block = mapping(entry, place)
                if block.get("type") == "tool_result":
                    self._result(block, chain, at, place)
                elif line.get("isMeta") is not True and line.get("isCompactSummary") is not True:
                    spoke = True
        if spoke:
            chain.user_at_s = at
        chain.last_event_s = at

    def _result(self, block: dict[str, object], chain: _Chain, at: float | None, where: str) -> None:
        call_id = text(block.get("tool_use_id"), f"{where}: tool_use_id")
        call = chain.calls.pop(call_id, None)
        if call is None:
            self.warnings.add("a tool result answers no call", where)
            return
        call.end_s = at if at is None or call.start_s is None or at >= call.start_s else None
        call.error = block.get("is_error") is True
        chain.agent_until_s = at

    def _assistant(
        self, line: dict[str, object], message: dict[str, object], chain: _Chain, at: float | None, where: str
    ) -> None:
        model = optional(text, message.get("model"), f"{where}: model")
        if model == "<synthetic>" or line.get("isApiErrorMessage") is True:
            self.warnings.add("messages that the harness made up (API errors) are no LLM calls", where)
            return
        key = text(message.get("id"), f"{where}: message.id")
        if key in self.known:
            self.warnings.add("a message occurs in two files (a resumed session): counted once", where)
            return
        found = chain.messages.get(key)
        if found is None:
            found = _Message(step=self._begin(chain, model, at))
            chain.messages[key] = found
        step = found.step
        step.end_s = at if step.end_s is None else max(step.end_s, at) if at is not None else step.end_s
        chain.agent_until_s = step.end_s
        self._usage(found, message, where)
        for i, entry in enumerate(items(message.get("content"), f"{where}: content")):
            self._block(found, mapping(entry, f"{where}: content[{i}]"), chain, at, f"{where}: content[{i}]")
        headless = str(line.get("entrypoint", "")).startswith("sdk")
        if found.text_shown and step.calls and headless:
            self.warnings.add("text beside tool calls in headless sessions is not shown to a user: no reply")
        step.spoke = found.text_shown and not (step.calls and headless)

    def _begin(self, chain: _Chain, model: str | None, at: float | None) -> RawStep:
        where = f"{self.name}, step {len(chain.raw.steps)}"
        step = RawStep(where=where, model=model, start_s=at if chain.last_event_s is None else chain.last_event_s)
        if chain.raw.steps:
            step.user_gap_s = _gap(chain.user_at_s, chain.agent_until_s)
        chain.user_at_s = None
        chain.raw.steps.append(step)
        return step

    def _usage(self, found: _Message, message: dict[str, object], where: str) -> None:
        usage = optional(mapping, message.get("usage"), f"{where}: usage")
        if usage is None:
            return
        part = {
            key: optional(count, usage.get(key), f"{where}: usage.{key}")
            for key in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
        }
        step = found.step
        if part["input_tokens"] is not None:
            read, made = part["cache_read_input_tokens"], part["cache_creation_input_tokens"]
            step.prompt_tokens = max(step.prompt_tokens or 0, part["input_tokens"] + (read or 0) + (made or 0))
            step.cached_tokens = read if read is not None else step.cached_tokens
        if part["output_tokens"] is not None:
            found.counted = max(found.counted, part["output_tokens"])
            step.output_tokens = found.counted
        found.final = found.final or message.get("stop_reason") is not None

    def _block(self, found: _Message, block: dict[str, object], chain: _Chain, at: float | None, where: str) -> None:
        kind = block.get("type")
        if kind in ("text", "thinking"):
            found.characters += _characters(block, str(kind), where)
            content = block.get(str(kind))
            found.text_shown = found.text_shown or (
                kind == "text" and isinstance(content, str) and bool(content.strip())
            )
        elif kind == "tool_use":
            call = RawCall(
                name=text(block.get("name"), f"{where}: name"),
                id=text(block.get("id"), f"{where}: id"),
                arguments=block.get("input"),
                start_s=at,
            )
            if call.id in chain.calls:
                self.warnings.add("two calls share an id; the second is ignored", where)
                return
            chain.calls[call.id or ""] = call
            found.step.calls.append(call)
            found.characters += _characters(block, "input", where)


def _gap(user_at_s: float | None, agent_until_s: float | None) -> float | None:
    if user_at_s is None:
        return 0.0
    return user_at_s - agent_until_s if agent_until_s is not None and user_at_s >= agent_until_s else None


def _characters(block: dict[str, object], key: str, where: str) -> int:
    return optional(count, block.get(f"{key}_chars"), f"{where}: {key}_chars") or 0


def _rate(messages: Iterable[_Message]) -> float:
    """Characters per token of the messages with a final count."""
    tokens = characters = 0
    for message in messages:
        if message.final and message.counted and message.characters:
            tokens, characters = tokens + message.counted, characters + message.characters
    return characters / tokens if tokens else CHARACTERS_PER_TOKEN


def _estimate(chain: _Chain, rate: float, warnings: Warnings) -> None:
    """Replace placeholder output counts by an estimate from the characters."""
    for message in chain.messages.values():
        if not message.final and message.step.output_tokens is not None:
            guess = round(message.characters / rate)
            if guess > message.counted:
                message.step.output_tokens = guess
            warnings.add(
                f"a message without a final output count: estimated at {rate:.2f} characters per token",
                message.step.where,
            )
