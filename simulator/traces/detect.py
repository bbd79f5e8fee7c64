"""Which format a trace is in, told from its content; a new importer is one more line in `FORMATS`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from hwprofiles.errors import InputError, unknown_name
from simulator.traces import claude_code, neutral, otlp, tau2
from simulator.traces.load import TraceFile
from simulator.traces.raw import RawTrajectory, Warnings


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """An importer: how to recognise a file (its first document) and how to read files of that kind together."""

    name: str
    description: str
    looks_like: Callable[[object], bool]
    read: Callable[[Iterable[TraceFile], Warnings], Iterator[RawTrajectory]]


FORMATS = tuple(
    Format(name=m.NAME, description=m.DESCRIPTION, looks_like=m.looks_like, read=m.read)
    for m in (tau2, claude_code, otlp)
)
"""Importers of foreign formats; the neutral format is read directly."""


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
    if file.path.suffix.lower() == ".parquet":
        return neutral.NAME
    seen = "nothing"
    for n, (_, sample) in enumerate(file.records()):
        if neutral.looks_like(sample):
            return neutral.NAME
        for found in FORMATS:
            if found.looks_like(sample):
                return found.name
        seen = _seen(sample) if n == 0 else seen
        if n >= 50:
            break
    known = "; ".join(f"{f.name}: {f.description}" for f in FORMATS)
    raise InputError(f"{file.name}: format not recognised ({seen}); known are {neutral.NAME}, {known}")


_FOREIGN = (
    ("OpenInference", {"openinference.span.kind"}),
    ("Langfuse observations", {"traceId", "type", "startTime"}),
    ("LangSmith runs", {"run_type", "trace_id"}),
    ("a Codex rollout", {"type", "payload"}),
    ("LiteLLM logging", {"call_type", "prompt_tokens"}),
    ("Mooncake requests", {"input_length", "output_length"}),
    ("an Inspect log", {"eval", "samples"}),
    ("a SWE-agent trajectory", {"trajectory", "info"}),
)


def _seen(sample: object) -> str:
    first = sample[0] if isinstance(sample, list) and sample else sample
    if not isinstance(first, dict):
        return f"it holds {type(sample).__name__} values" if sample is not None else "it holds null"
    data = first.get("data")
    if isinstance(data, list) and data and isinstance(data[0], dict):
        first = data[0]
    for name, keys in _FOREIGN:
        if keys <= first.keys():
            return f"it looks like {name}, which this version does not read"
    keys_seen = ", ".join(ascii(k)[1:-1][:30] for k in list(first)[:6])
    return f"its keys are {keys_seen}" if keys_seen else "it holds no keys"
