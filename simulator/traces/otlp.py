"""Importer for OTLP JSON with OpenTelemetry GenAI attributes: one `chat` span is one step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from simulator.traces.load import TraceFile
from simulator.traces.raw import RawTrajectory, Warnings

NAME = "otlp"
DESCRIPTION = "OTLP JSON with OpenTelemetry GenAI attributes (resourceSpans)"


def looks_like(sample: object) -> bool:
    """Whether a parsed document (or line) is OTLP trace data."""
    return isinstance(sample, dict) and isinstance(sample.get("resourceSpans"), list)


def read(sources: Iterable[TraceFile], warnings: Warnings) -> Iterator[RawTrajectory]:
    yield from ()
