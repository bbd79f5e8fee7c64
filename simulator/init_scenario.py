"""From a recorded trace to a commented scenario: `draft_scenario` gathers, `write_scenario` puts it in a file.

An effect that nobody declared is only proposed: its line stays a comment, so the tool is held until a person confirms.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.trajectory import Workload
from hwprofiles.errors import InputError
from simulator.effects import EffectMap
from simulator.effects_file import effects_from_table, read_effects
from simulator.init_tools import ToolNote, tool_notes
from simulator.scenario import Scenario
from simulator.scenario_file import from_document, load_scenario, to_document
from simulator.sides import side_from_text
from simulator.traces import read_trace
from simulator.workloads import workload, workload_names

DEFAULT_PAIR = "retail-h200"
"""The bundled scenario whose models stand in where none are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioDraft:
    """Everything a new scenario file says.

    Parameters
    ----------
    trace, mcp_tools, format : as the file names them
    weak, strong : keys of the two models; `assumed` names the roles nobody chose
    rules : the user's own lines of the effects map
    missing : what at least one trajectory of the trace cannot tell
    unpriced : steps without token counts, which cannot be planned with
    """

    path: Path
    trace: str
    format: str | None
    found_format: str
    workload: Workload
    weak: Mapping[str, Any]
    strong: Mapping[str, Any]
    assumed: tuple[str, ...]
    rules: Mapping[str, str]
    mcp_tools: str | None
    tools: tuple[ToolNote, ...]
    missing: tuple[str, ...]
    unpriced: int
    warnings: tuple[str, ...]


def draft_scenario(
    trace: str,
    output: str | Path,
    *,
    weak: str | None = None,
    strong: str | None = None,
    effects: str | None = None,
    mcp_tools: str | None = None,
    format: str | None = None,
) -> ScenarioDraft:
    """Read a trace and gather what a scenario for it says.

    Parameters
    ----------
    trace : str
        A trace file or folder, or the name of a bundled recording.
    output : path
        Where the scenario will be written; file names in it are relative to its folder where that is possible.
    weak, strong : str or None
        `MODEL@HARDWARE` or `api:PROVIDER/MODEL`; None: as in the bundled scenario `DEFAULT_PAIR`.
    effects, mcp_tools : str or None
        An effects map, an MCP tools/list export.

    Raises
    ------
    InputError
        A file that cannot be read, an unknown name, or a model that does not fit.
    """
    path = Path(output)
    sides = {role: _side(role, text, path.parent) for role, text in (("weak", weak), ("strong", strong))}
    user = EffectMap() if effects is None else read_effects(effects)
    known = user
    if mcp_tools is not None:
        listed = effects_from_table({"tools_list": [mcp_tools]}, where="--mcp-tools", folder=Path())
        known = listed.extended(user)
    bundled = trace in workload_names()
    warnings: tuple[str, ...] = ()
    if bundled:
        if format is not None:
            raise InputError(f"--format has no effect on the bundled workload {trace!r}")
        work, found_format = _bundled(trace, known), "bundled"
    else:
        got = read_trace(trace, format=format, effects=known)
        work, found_format, warnings = got.workload, got.format, got.warnings
    steps = [s for t in work.trajectories for s in t.steps]
    return ScenarioDraft(
        path=path,
        trace=trace if bundled else _relative(trace, path.parent),
        format=format,
        found_format=found_format,
        workload=work,
        weak=sides["weak"],
        strong=sides["strong"],
        assumed=tuple(role for role, text in (("weak", weak), ("strong", strong)) if text is None),
        rules={rule.key: rule.effect.value for rule in user.rules},
        mcp_tools=None if mcp_tools is None else _relative(mcp_tools, path.parent),
        tools=tool_notes(work, known),
        missing=tuple(sorted({m for t in work.trajectories for m in t.missing})),
        unpriced=sum(s.output_tokens is None or s.prompt_tokens is None for s in steps),
        warnings=warnings,
    )


def write_scenario(draft: ScenarioDraft, *, force: bool = False) -> Scenario:
    """Write the commented scenario and return it.

    Raises
    ------
    InputError
        The file exists and `force` is not set.
    """
    from simulator.init_text import scenario_text

    text = scenario_text(draft)
    scenario = from_document(tomllib.loads(text), str(draft.path))
    refuse_to_overwrite(draft.path, force=force)
    draft.path.write_text(text, encoding="utf-8", newline="\n")
    return scenario


def refuse_to_overwrite(path: str | Path, *, force: bool) -> None:
    """Raise `InputError` where something is at `path` already and must stay."""
    if Path(path).exists() and not force:
        raise InputError(f"{path} exists; choose another name, or overwrite it with --force")


def _bundled(name: str, effects: EffectMap) -> Workload:
    from simulator.traces.read import reclassified

    work = workload(name)
    if work.kind == "law":
        raise InputError(
            f"--trace {name!r} is a law, which has no tools of yours; write workload.law = {name!r} instead"
        )
    return reclassified(work, effects)


def _side(role: str, text: str | None, folder: Path) -> dict[str, Any]:
    if text is None:
        standard = load_scenario(DEFAULT_PAIR)
        document: dict[str, Any] = to_document(standard.weak if role == "weak" else standard.strong)
        return document
    found = side_from_text(role, text)
    for key in ("model", "hardware"):
        if key in found and Path(found[key]).exists():
            found[key] = _relative(found[key], folder)
    return found


def _relative(file: str, folder: Path) -> str:
    """A file's name from a folder; absolute where there is no way or the short form would mean something bundled."""
    try:
        found = Path(os.path.relpath(file, folder)).as_posix()
    except ValueError:
        return Path(file).resolve().as_posix()
    return Path(file).resolve().as_posix() if found in workload_names() else found
