"""Nodes with their parents: which conversation and agent a node belongs to, and which LLM calls are the same one."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.traces.node import Node
from simulator.traces.raw import Warnings


class Forest:
    """The nodes with their parents, each once."""

    def __init__(self, found: list[Node], warnings: Warnings) -> None:
        self.by_id: dict[tuple[str, str], Node] = {}
        self.nodes: list[Node] = []
        self.conversations: dict[str, set[str]] = {}
        for node in found:
            if (node.trace, node.id) in self.by_id:
                warnings.add("a span occurs twice: counted once", node.where)
                continue
            self.by_id[node.trace, node.id] = node
            self.nodes.append(node)
            if node.conversation is not None:
                self.conversations.setdefault(node.trace, set()).add(node.conversation)
        self._drop_repeats(warnings)

    def _drop_repeats(self, warnings: Warnings) -> None:
        """An LLM call inside an LLM call counts once.

        The outer one stays where it has token counts, unless it holds several calls, or was only taken for one because
        of its counts: then these are the sums of an agent.
        """
        inside: dict[int, tuple[Node, list[Node]]] = {}
        for node in self.nodes:
            outer = self._outer(node) if node.kind == "llm" else None
            if outer is not None:
                inside.setdefault(id(outer), (outer, []))[1].append(node)
        for outer, inner in inside.values():
            if len(inner) > 1 or not outer.used or (outer.guessed and inner[0].used):
                outer.kind = "other"
                continue
            (node,) = inner
            if outer.kind == "llm":
                node.kind = "other"
                outer.calls = outer.calls or node.calls
                outer.spoke, outer.told = outer.spoke or node.spoke, outer.told or node.told
                warnings.add("an LLM call inside an LLM call is the same one: counted once", node.where)

    def _outer(self, node: Node) -> Node | None:
        """The LLM call right around an LLM call; None where a tool or an agent stands between."""
        for above in self.ancestors(node):
            if above.kind in ("tool", "agent"):
                return None
            if above.kind == "llm":
                return above
        return None

    def ancestors(self, node: Node) -> Iterator[Node]:
        """Parent, grandparent, ...; stops at a parent that is not there, or at a circle."""
        seen = {node.id}
        parent = self.by_id.get((node.trace, node.parent))
        while parent is not None and parent.id not in seen:
            yield parent
            seen.add(parent.id)
            parent = self.by_id.get((parent.trace, parent.parent))

    def inside_tool(self, node: Node) -> bool:
        """Whether a tool node only repeats one above it (an MCP client span inside the agent's own)."""
        for above in self.ancestors(node):
            if above.kind == "agent":
                return False
            if above.kind == "tool" and above.name in (node.name, None):
                return True
        return False

    def group(self, node: Node) -> str:
        """Conversation or trace, and the agent's node where the agent was invoked by another agent."""
        named = node.conversation
        agents = []
        for above in self.ancestors(node):
            named = named or above.conversation
            if above.kind == "agent":
                agents.append(above)
        known = self.conversations.get(node.trace, set())
        base = named or (next(iter(known)) if len(known) == 1 else node.trace)
        return base if len(agents) < 2 else f"{base}/{agents[0].id}"
