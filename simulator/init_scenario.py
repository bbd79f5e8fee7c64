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
    thinking_recorded : whether some step of the trace tells its thinking tokens
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
    thinking_recorded: bool
    warnings: tuple[str, ...]

    def thinks(self, role: str) -> bool:
        """Whether a model thinks before its steps; it does unless somebody says otherwise."""
        side = self.weak if role == "weak" else self.strong
        return bool(side.get("thinking", True))

    @property
    def assumed_bands(self) -> dict[str, Any]:
        """Keys of [workload] that stand in for thinking the trace does not record, as in `DEFAULT_PAIR`."""
        if self.thinking_recorded or not (self.thinks("weak") or self.thinks("strong")):
            return {}
        keys = ["thinking_tokens"] + ["verbosity"] * (self.thinks("weak") and self.thinks("strong"))
        standard = load_scenario(DEFAULT_PAIR).workload
        return {k: {**to_document(getattr(standard, k)), "source": _ASSUMED[k]} for k in keys}


_ASSUMED: Mapping[str, str] = {
    "thinking_tokens": f"assumed as in {DEFAULT_PAIR}: recorded thinking models on tau2 retail spend 58 to 219 a step",
    "verbosity": f"assumed as in {DEFAULT_PAIR}: a small model thinks as long; recorded pairs differ by up to half",
}


def dtype_note(draft: ScenarioDraft, role: str) -> str | None:
    """Which type a model's weights have and why, in words; None behind an API."""
    side = draft.weak if role == "weak" else draft.strong
    if "api" in side:
        return None
    dtype, device = side["weight_dtype"], f"{side.get('n_devices', 1)} x {side['hardware']}"
    if role in draft.assumed:
        why = f"as in {DEFAULT_PAIR}"
    elif dtype == "bf16":
        why = "its checkpoint states no quantisation; if you serve another type, such as fp8, set weight_dtype"
    else:
        why = "as its checkpoint states"
    return f"{role}: {side['model']} on {device}, weights {dtype} ({why})"


def draft_scenario(
    trace: str,
    output: str | Path,
    *,
    weak: str | None = None,
    strong: str | None = None,
    effects: str | None = None,
    mcp_tools: str | None = None,
    format: str | None = None,
    thinking: bool = True,
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
    thinking : bool
        False: neither model thinks before its steps.

    Raises
    ------
    InputError
        A file that cannot be read, an unknown name, or a model that does not fit.
    """
    path = Path(output)
    sides = {role: _side(role, text, path.parent) for role, text in (("weak", weak), ("strong", strong))}
    if not thinking:
        for side in sides.values():
            side["thinking"] = False
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
        rules={rule.key: rule.value for rule in user.rules},
        mcp_tools=None if mcp_tools is None else _relative(mcp_tools, path.parent),
        tools=tool_notes(work, known),
        missing=tuple(sorted({m for t in work.trajectories for m in t.missing})),
        thinking_recorded=any(
            s.output_tokens is not None and s.visible_tokens is not None and s.output_tokens > s.visible_tokens
            for s in steps
        ),
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
