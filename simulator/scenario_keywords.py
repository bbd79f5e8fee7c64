"""What scenario sections are written with: types of values with their ranges, and keys with unit and meaning."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any

from pydantic import ConfigDict, Field, StringConstraints

from costmodel.speculation import MOST_DRAFTED

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)

Text = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
Count = Annotated[int, Field(ge=1, le=10_000_000)]
Tokens = Annotated[int, Field(ge=0, le=100_000_000)]
Positive = Annotated[float, Field(gt=0, le=1e18)]
NotNegative = Annotated[float, Field(ge=0, le=1e18)]
Share = Annotated[float, Field(ge=0, le=1)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
OpenShare = Annotated[float, Field(gt=0, lt=1)]
Level = Annotated[float, Field(ge=0.5, le=0.999)]
Utilisation = Annotated[float, Field(gt=0, le=1)]
Agents = Annotated[int, Field(ge=1, le=4096)]
Replicas = Annotated[int, Field(ge=1, le=1024)]
Counted = Annotated[int, Field(ge=1, le=100_000)]
Drafted = Annotated[int, Field(ge=0, le=MOST_DRAFTED)]
Rate = Annotated[float, Field(ge=1e-6, le=1e4)]
Window = Annotated[int, Field(ge=1, le=64)]
Seeds = Annotated[int, Field(ge=1, le=1000)]
Samples = Annotated[int, Field(ge=16, le=4096)]


def key(unit: str, meaning: str, default: Any) -> Any:
    """A key with its unit, meaning and default."""
    return field(default=default, metadata={"unit": unit, "meaning": meaning})


def need(unit: str, meaning: str) -> Any:
    """A key that has no default."""
    return field(metadata={"unit": unit, "meaning": meaning})


def make(unit: str, meaning: str, factory: Any) -> Any:
    """A key whose default is a new value each time."""
    return field(default_factory=factory, metadata={"unit": unit, "meaning": meaning})
