"""Which format a trace is in, told from its content; a new importer is one more module in `FORMATS`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from hwprofiles.errors import InputError, unknown_name
from simulator.traces import (
    agents_sdk,
    claude_code,
    codex,
    inspect_ai,
    langfuse,
    langsmith,
    litellm,
    medagentbench,
    neutral,
    openinference,
    otlp,
    requests,
    swe_agent,
    tau2,
    tau_bench,
    weka,
)
from simulator.traces.entries import peek
from simulator.traces.load import TraceFile
from simulator.traces.raw import RawTrajectory, Warnings

_LOOKED_AT = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """An importer: how to recognise a document, a line or a list's element, and how to read files of that kind."""

    name: str
    description: str
    looks_like: Callable[[object], bool]
    read: Callable[[Iterable[TraceFile], Warnings], Iterator[RawTrajectory]]
    lists: tuple[str, ...]


_MODULES = (
    tau2, tau_bench, claude_code, codex, openinference, otlp, langsmith, langfuse, litellm, agents_sdk, inspect_ai,
    weka, swe_agent, medagentbench, requests,
)  # fmt: skip
FORMATS = tuple(
    Format(name=m.NAME, description=m.DESCRIPTION, looks_like=m.looks_like, read=m.read, lists=m.LISTS)
    for m in _MODULES
)
"""Importers of foreign formats, in the order in which they are asked; the neutral format is read directly."""


def format_names() -> tuple[str, ...]:
    """Names that `--format` takes."""
    return (neutral.NAME, *(f.name for f in FORMATS))


def find_format(name: str) -> Format:
    """The importer of that name.

    Raises
    ------
    InputError
        If there is none.
    """
    for found in FORMATS:
        if found.name == name:
            return found
    raise unknown_name("trace format", name, format_names())


def detect(file: TraceFile) -> str:
    """The name of a file's format.

    Raises
    ------
    InputError
        If no importer recognises the content; the message names what was seen and the formats there are.
    """
    if file.kind == "parquet":
        return neutral.NAME
    if file.kind == "zip":
        return inspect_ai.NAME
    seen = "nothing"
    for n, sample in enumerate(_samples(file)):
        if neutral.looks_like(sample):
            return neutral.NAME
        for found in FORMATS:
            if _recognised(found, sample):
                return found.name
        seen = _seen(sample) if n == 0 else seen
    raise InputError(f"{file.name}: format not recognised ({seen}); known are {', '.join(format_names())}")


def _samples(file: TraceFile) -> Iterator[object]:
    if file.kind == "csv":
        yield file.header()
    elif file.kind == "lines":
        for n, (_, value) in enumerate(file.records()):
            yield value
            if n >= _LOOKED_AT:
                break
    else:
        yield peek(file)


def _recognised(found: Format, sample: object) -> bool:
    """Whether the document is of a format, or the first elements of its list are."""
    if found.looks_like(sample):
        return True
    if isinstance(sample, dict):
        sample = next((sample[k] for k in found.lists if isinstance(sample.get(k), list)), None)
    if not isinstance(sample, list):
        return False
    return any(isinstance(item, dict) and found.looks_like(item) for item in sample[:_LOOKED_AT])


def _seen(sample: object) -> str:
    first = sample[0] if isinstance(sample, list) and sample else sample
    if isinstance(sample, list) and sample and isinstance(first, str):
        columns = ", ".join(ascii(c)[1:-1][:30] for c in sample[:6])
        return f"its columns are {columns}"
    if not isinstance(first, dict):
        return f"it holds {type(first).__name__} values" if sample is not None else "it holds null"
    keys_seen = ", ".join(ascii(k)[1:-1][:30] for k in list(first)[:6])
    return f"its keys are {keys_seen}" if keys_seen else "it holds no keys"
