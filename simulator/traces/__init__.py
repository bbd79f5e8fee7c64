"""Importers: recorded agent traces in the formats people have, to neutral trajectories."""

from __future__ import annotations

from simulator.traces.read import ImportedTrace, read_trace

__all__ = ["ImportedTrace", "read_trace"]
