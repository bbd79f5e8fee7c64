"""Spans, runs and observations alike: nodes of a tree, some of them LLM calls and tool calls, made into trajectories.

A node of kind `llm` is a step. `tool` nodes give their times to the calls that asked for them (by call id, else by name
and time). Nodes are gathered by trace, traces by conversation; an agent invoked by another agent is a trajectory of its
own, and an LLM call inside an LLM call (a framework's span around the SDK's) counts once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise

from simulator.traces.forest import Forest
from simulator.traces.node import Node, packed_node, unpacked_node
from simulator.traces.raw import RawCall, RawStep, RawTrajectory, Warnings, parsed_arguments
from simulator.traces.spill import Spill

_ENDINGS = ("stop", "end_turn", "length", "max_tokens", "stop_sequence", "content_filter", "STOP", "completed")


def trajectories(nodes: Iterable[Node], warnings: Warnings, *, declared: str | None = None) -> Iterator[RawTrajectory]:
    """The trajectories of nodes that may come in any order, in constant memory."""
    spill = Spill()
    for order, node in enumerate(nodes):
        node.order = order
        spill.add(f"t:{node.trace}", packed_node(node))
        if node.conversation is not None:
            spill.join(f"t:{node.trace}", f"c:{node.conversation}")
    for rows in spill.groups():
        yield from gathered([unpacked_node(row) for row in rows], warnings, declared=declared)


def gathered(nodes: list[Node], warnings: Warnings, *, declared: str | None = None) -> Iterator[RawTrajectory]:
    """The trajectories among the nodes of one conversation."""
    forest = Forest(nodes, warnings)
    groups: dict[str, list[Node]] = {}
    for node in forest.nodes:
        if node.kind == "llm" or (node.kind == "tool" and not forest.inside_tool(node)):
            groups.setdefault(forest.group(node), []).append(node)
    for key, group in groups.items():
        if any(n.kind == "llm" for n in group):
            yield _trajectory(key, group, forest, warnings, declared)
        else:
            warnings.add("tools that belong to no LLM call are left out", group[0].where)


def _trajectory(key: str, group: list[Node], forest: Forest, warnings: Warnings, declared: str | None) -> RawTrajectory:
    if len({n.zoned for n in group if n.start_ns is not None}) > 1:
        warnings.add("some times name their zone and others do not: those without are read as UTC", key)
    group = sorted(group, key=lambda n: (n.start_ns is None, n.start_ns or 0, n.sort, n.order))
    chats = []
    for node in group:
        if node.kind == "llm":
            if node.failed and not node.used:
                warnings.add("a failed LLM call without usage is left out", node.where)
            else:
                chats.append(node)
    zero = min((n.start_ns for n in group if n.start_ns is not None), default=0)
    raw = RawTrajectory(id=key, task=key.partition("/")[0], domain=_domain(group, forest), declared=declared)
    apart = any(n.cached is not None and n.prompt is not None and n.cached > n.prompt for n in chats)
    if apart:
        warnings.add("cached tokens exceed the input: taken as not counted in it, and added", key)
    if not apart:
        for node in chats:
            _checked_total(node, warnings)
    raw.steps = [_step(node, i, zero, apart) for i, node in enumerate(chats)]
    _attach([n for n in group if n.kind == "tool"], chats, raw.steps, zero, warnings)
    _speaking(chats, raw.steps)
    gaps(raw.steps)
    return raw


def _domain(group: list[Node], forest: Forest) -> str | None:
    for node in group:
        for candidate in (node, *forest.ancestors(node)):
            if candidate.agent:
                return candidate.agent
    return group[0].service


def _step(node: Node, index: int, zero: int, apart: bool) -> RawStep:
    prompt = node.prompt
    if apart and prompt is not None:
        prompt += (node.cached or 0) + (node.created or 0)
    return RawStep(
        where=f"{node.where}, step {index}",
        prompt_tokens=prompt,
        cached_tokens=node.cached,
        output_tokens=node.output,
        thinking_tokens=node.thinking,
        calls=node.calls,
        spoke=node.spoke,
        told=node.told,
        start_s=_relative(node.start_ns, zero),
        end_s=_relative(node.end_ns, zero),
        model=node.model,
    )


def _checked_total(node: Node, warnings: Warnings) -> None:
    """Add thinking that only the total shows to be outside the output (xAI); say where a total does not add up."""
    if not node.total or node.prompt is None or node.output is None:
        return
    rest = node.total - node.prompt - node.output
    if node.thinking and rest == node.thinking:
        node.output += node.thinking
    elif rest:
        warnings.add("total tokens are not prompt plus completion", node.where)


def _relative(at_ns: int | None, zero: int) -> float | None:
    return None if at_ns is None else (at_ns - zero) / 1e9


def _attach(tools: list[Node], chats: list[Node], steps: list[RawStep], zero: int, warnings: Warnings) -> None:
    """Give each tool node to the call that asked for it, else to the last step that began before it."""
    asked: dict[str, RawCall] = {}
    timed = [(chat.start_ns, step) for chat, step in zip(chats, steps, strict=True) if chat.start_ns is not None]
    for step in steps:
        for call in step.calls:
            if call.id is not None:
                asked.setdefault(call.id, call)
    done: set[int] = set()
    for node in tools:
        wanted = asked.get(node.call_id or "")
        found = _by_time(node, timed, done, warnings) if wanted is None or id(wanted) in done else wanted
        if found is None:
            continue
        call = found
        done.add(id(call))
        call.start_s, call.end_s = _relative(node.start_ns, zero), _relative(node.end_ns, zero)
        if call.start_s is not None and call.end_s is not None and call.end_s < call.start_s:
            warnings.add("a tool ends before it starts; its times are left out", node.where)
            call.start_s = call.end_s = None
        call.error = node.failed
        if call.arguments is None:
            call.arguments = parsed_arguments(node.arguments)
    if tools:
        for step in steps:
            if any(id(call) not in done for call in step.calls):
                warnings.add("a tool call has no span of its own", step.where)


def _by_time(node: Node, timed: list[tuple[int, RawStep]], done: set[int], warnings: Warnings) -> RawCall | None:
    if node.name is None:
        warnings.add("a tool span without a name is left out", node.where)
        return None
    before = 0 if node.start_ns is None else bisect_right(timed, node.start_ns, key=lambda pair: pair[0])
    if before == 0:
        warnings.add("a tool span belongs to no LLM call", node.where)
        return None
    owner = timed[before - 1][1]
    for call in owner.calls:
        if call.name == node.name and id(call) not in done:
            return call
    call = RawCall(name=node.name, id=node.call_id)
    owner.calls.append(call)
    return call


def _speaking(chats: list[Node], steps: list[RawStep]) -> None:
    """Where content was not recorded, a step that simply stopped without a call spoke to the user."""
    for node, step in zip(chats, steps, strict=True):
        if not step.told and not step.calls:
            step.spoke = node.finish in _ENDINGS


def gaps(steps: list[RawStep]) -> None:
    """Set the time between a reply and the next step as the user's."""
    for before, step in pairwise(steps):
        ends = [t for t in (before.end_s, *(c.end_s for c in before.calls)) if t is not None]
        if not (before.spoke and not before.calls):
            step.user_gap_s = 0.0
        elif ends and step.start_s is not None:
            step.user_gap_s = max(0.0, step.start_s - max(ends))
