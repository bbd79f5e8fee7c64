"""Importers of OpenTelemetry spans: one `chat` (GenAI) or `LLM` (OpenInference) span is one step.

Spans are grouped by `gen_ai.conversation.id` or `session.id`, else by trace. The conventions count cached tokens inside
the input; instrumentations that do not are recognised by a cache read larger than the input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hwprofiles.errors import InputError
from simulator.traces import genai, spans
from simulator.traces.load import TraceFile
from simulator.traces.node import Node
from simulator.traces.nodes import trajectories
from simulator.traces.raw import RawTrajectory, Warnings

NAME = "otlp"
DESCRIPTION = "OpenTelemetry spans with GenAI attributes (resourceSpans)"
LISTS = spans.LISTS
_WANTED = "gen_ai.operation.name = chat, generate_content or text_completion, or openinference.span.kind = LLM"


def looks_like(sample: object) -> bool:
    """Whether a parsed document, line or list element holds OpenTelemetry spans."""
    return spans.looks_like(sample)


def read(sources: Iterable[TraceFile], warnings: Warnings) -> Iterator[RawTrajectory]:
    """The trajectories in files of spans.

    Raises
    ------
    InputError
        If no span is an LLM call.
    """
    counted = _Counted()
    yield from trajectories(counted.nodes(sources), warnings)
    if not counted.calls:
        if counted.first is None:
            raise InputError("the OTLP files hold no span")
        file = counted.first.partition(":")[0]
        raise InputError(f"{file}: no span is an LLM call: expected {_WANTED}")


class _Counted:
    """The nodes of files, and how many of them are LLM calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.first: str | None = None

    def nodes(self, sources: Iterable[TraceFile]) -> Iterator[Node]:
        for span in spans.spans(sources):
            self.first = self.first or span.where
            found = genai.node(span)
            self.calls += found.kind == "llm"
            yield found
