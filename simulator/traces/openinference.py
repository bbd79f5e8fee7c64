"""Importer of OpenInference spans (Phoenix and its instrumentations): the reader of `otlp`, told apart by content."""

from __future__ import annotations

from simulator.traces import spans
from simulator.traces.otlp import read

__all__ = ["read"]

NAME = "openinference"
DESCRIPTION = "OpenTelemetry spans with OpenInference attributes"
LISTS = spans.LISTS
_DEPTH = 8


def looks_like(sample: object) -> bool:
    """Whether spans follow OpenInference, told from the first of them."""
    return spans.looks_like(sample) and _mentions(sample, 0)


def _mentions(value: object, depth: int) -> bool:
    if depth > _DEPTH:
        return False
    if isinstance(value, dict):
        if value.get("key") == "openinference.span.kind" or "openinference" in value or "span_kind" in value:
            return True
        if any(isinstance(k, str) and k.removeprefix("attributes.").startswith("openinference.") for k in value):
            return True
        return any(_mentions(v, depth + 1) for v in list(value.values())[:40])
    return isinstance(value, list) and any(_mentions(v, depth + 1) for v in value[:20])
