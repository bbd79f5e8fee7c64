"""The text of a new scenario file: keys that are set, keys that can be, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tomli_w

from simulator.init_scenario import DEFAULT_PAIR, ScenarioDraft
from simulator.init_tools import ToolNote
from simulator.scenario_file import scenario_keys

WIDTH = 118

MISSING: Mapping[str, str] = {
    "usage": "token counts of some steps: they cannot be priced, so `specroof plan` refuses this trace",
    "cache": "cached part of the prompts: computed from the engine's rules instead, nothing to do",
    "thinking": "thinking apart from the output: counted as visible; workload.thinking_tokens says how much there is",
    "times": "start and end of the steps: nothing to do, times are predicted",
    "tool_times": "how long some tools took: counted as 0 s where unknown; set tools.latency_s",
    "content": "whether text came with a step: such steps without a tool call are held as unknown",
    "tools": "which tools were called: such steps are held as unknown, so nothing is drafted; plan with a law instead",
    "session": "which requests belong together: each one is a task of one step; good for load, not for drafting",
    "outcome": "whether the tasks succeeded: nothing to do, success comes from [quality]",
}
"""What a trace may lack, and what that means for a plan."""

_EXAMPLES: Mapping[str, str] = {
    "workload.n": "100",
    "workload.thinking_tokens": "{ value = 150, low = 60, high = 400 }",
    "workload.verbosity": "1.2",
    "workload.output_tokens": "180",
    "protocol.acceptance": "{ value = 0.90, low = 0.78, high = 0.97 }",
    "tools.latency_s": "0.5",
    "load.concurrency": "16",
    "load.arrival_rate_per_s": "0.5",
    "weak.usd_per_h": "2.5",
    "strong.usd_per_h": "2.5",
}
"""Values shown for keys that have no default."""

_SHOWN: Mapping[str, tuple[str, ...]] = {
    "workload": ("n", "thinking_tokens", "verbosity", "output_tokens", "shared_prefix_tokens"),
    "protocol": ("window", "acceptance", "verdict_tokens", "instruction_tokens", "repair_mode"),
    "tools": ("latency_s",),
    "load": ("concurrency", "arrival_rate_per_s"),
    "quality": ("weak_hazard", "strong_hazard", "detection", "false_reject", "recovery"),
    "objective": ("minimise", "success_drop_max", "money"),
    "run": ("seed", "seeds"),
}
_ABOUT: Mapping[str, str] = {
    "protocol": "How drafts are reviewed. Without `acceptance` the plan stands on a prior: measure it.",
    "tools": "How long tools take; unset: as recorded.",
    "load": "How many agents share the engines; unset: one agent on idle engines.",
    "quality": "How often steps are wrong and a review notices; they imply an acceptance, so do not set both apart.",
    "objective": "What the recommendation minimises, and how money is counted.",
    "run": "Seeds of sampling and simulation.",
}


def scenario_text(draft: ScenarioDraft) -> str:
    """The commented scenario as TOML."""
    lines = [*_head(draft), ""]
    for role in ("weak", "strong"):
        lines += [*_side(draft, role), ""]
    lines += [*_workload(draft), "", *_effects(draft), ""]
    for section in ("protocol", "tools", "load", "quality", "objective", "run"):
        lines += [*_comment(_ABOUT[section]), f"[{section}]", *_defaults(section), ""]
    lines += [
        *_comment("A link between the agent and the strong model: take the # away from all three lines."),
        "# [link]",
        "# rtt_s = 0.05  # s, round-trip time of a request to the strong model",
        "# bytes_per_s = 12.5e6  # B/s",
    ]
    return "\n".join(lines) + "\n"


def _head(draft: ScenarioDraft) -> Iterator[str]:
    work = draft.workload
    steps = sum(len(t.steps) for t in work.trajectories)
    name = draft.path.name
    held = sum(t.status == "confirm" for t in draft.tools)
    yield from _comment(
        f"A scenario for specroof, made by `specroof init` from {work.name} ({draft.found_format}): "
        f"{len(work.trajectories)} trajectories, {steps} steps, {len(draft.tools)} tools."
    )
    yield "#"
    yield from _comment(
        f"Next: 1. confirm the effects under [effects.map] ({held} tools wait for you; they are held until then);"
    )
    yield from _comment("      2. measure acceptance: specroof acceptance --weak WEAK_TRACE --strong STRONG_TRACE;")
    yield from _comment(f"      3. specroof plan {name} -o report.html")
    yield from _comment(
        'A line such as "# key = value" shows a default or an example: take the # away to set it. All keys: '
        "specroof scenario keys"
    )
    for item in draft.missing:
        yield from _comment(f"Missing in the trace: {MISSING.get(item, item)}")
    yield ""
    yield f"title = {_toml(f'{work.name}: {_short(draft.weak)} drafts, {_short(draft.strong)} reviews')}"


def _short(side: Mapping[str, Any]) -> str:
    return str(side.get("api") or side["model"]).split("/")[-1]


def _side(draft: ScenarioDraft, role: str) -> Iterator[str]:
    side = draft.weak if role == "weak" else draft.strong
    what = "drafts the steps" if role == "weak" else "reviews the drafts and repairs them"
    yield from _comment(f"The model that {what}.")
    if role in draft.assumed:
        yield from _comment(
            f"Nobody named one: this is the one of the bundled scenario {DEFAULT_PAIR}. Put your own here, as model "
            'and hardware or as api = "PROVIDER/MODEL".'
        )
    yield f"[{role}]"
    if "api" in side:
        yield f"api = {_toml(side['api'])}"
        yield from _thinking(draft, role)
        return
    for key in ("model", "hardware"):
        yield f"{key} = {_toml(side[key])}"
    chosen = role not in draft.assumed
    how = "  # the fewest of 1, 2, 4, ... that hold the weights and a cache" if chosen else ""
    yield f"n_devices = {side.get('n_devices', 1)}{how}"
    how = "  # as the checkpoint's configuration has it; change it if you serve another" if chosen else ""
    yield f"weight_dtype = {_toml(side['weight_dtype'])}{how}"
    yield from _thinking(draft, role)
    yield from _defaults(role, ("kv_dtype", "replicas", "usd_per_h"))


def _thinking(draft: ScenarioDraft, role: str) -> Iterator[str]:
    yield f"thinking = {_toml(draft.thinks(role))}  # {_meaning(role, 'thinking')}"


def _workload(draft: ScenarioDraft) -> Iterator[str]:
    yield from _comment("What the agent does: the trace itself.")
    yield "[workload]"
    yield f"trace = {_toml(draft.trace)}"
    if draft.format is not None:
        yield f"format = {_toml(draft.format)}"
    bands = draft.assumed_bands
    if bands:
        yield from _comment(
            "The models think and the trace records no thinking tokens, so these two stand in. Measure them: they "
            "decide much of the time. If your models do not think, set thinking = false above and delete them."
            if len(bands) == 2
            else "A model thinks and the trace records no thinking tokens, so this stands in. Measure it."
        )
        if "thinking" in draft.missing:
            yield from _comment(
                "If the trace's output tokens include thinking already, it would count twice: as above."
            )
        for key, value in bands.items():
            yield from _comment(f"{key}: {_meaning('workload', key)}")
            yield f"{key} = {_toml(value)}"
    yield from _defaults("workload", tuple(k for k in _SHOWN["workload"] if k not in bands))


def _effects(draft: ScenarioDraft) -> Iterator[str]:
    yield from _comment(
        "What tools do. read: safe to run while drafting. pure: touches nothing. write: changes something, held until "
        "the strong model has agreed. reply: the user sees it, held. unknown: held."
    )
    yield "[effects]"
    if draft.mcp_tools is not None:
        yield f"mcp_tools = {_toml(draft.mcp_tools)}  # an MCP tools/list export; readOnlyHint = true is a read"
    yield ""
    yield "[effects.map]"
    if draft.rules:
        yield "# Your map:"
        for key, effect in draft.rules.items():
            yield f"{_key(key)} = {_toml(effect)}"
    yield from _tools("Covered by it:", draft.tools, "map")
    known = [t for t in draft.tools if t.status == "known"]
    for why in dict.fromkeys(t.why for t in known):
        yield from _comment(f"Known, {why}:")
        for tool in known:
            if tool.why == why:
                yield f"{_key(tool.name)} = {_toml(tool.effect.value)}  # {_calls(tool)}"
    yield from _tools(
        "NOT known, so held. Proposals from the names alone: check each, correct it, and take the # away:",
        draft.tools,
        "confirm",
    )
    yield from _tools("Held, because no line can name them:", draft.tools, "unmappable")
    if not draft.tools:
        yield "# The trace calls no tool."


def _tools(heading: str, tools: Iterable[ToolNote], status: str) -> Iterator[str]:
    """Tools of a status as comments; those to confirm as a line that needs no more than its # taken away."""
    chosen = [t for t in tools if t.status == status]
    if chosen:
        yield from _comment(heading)
    for tool in chosen:
        note = _plain(f"{_calls(tool)}; {tool.why}")
        if status == "confirm":
            yield f"# {_key(tool.name)} = {_toml(tool.proposed.value)}  # {note}"
        else:
            yield f"# {_plain(tool.name)}: {tool.effect.value}, {note}"


def _calls(tool: ToolNote) -> str:
    return "1 call" if tool.calls == 1 else f"{tool.calls} calls"


def _defaults(section: str, keys: tuple[str, ...] | None = None) -> Iterator[str]:
    """Keys of a section as comments, with their default (or an example), meaning and unit."""
    table = {row["key"]: row for row in scenario_keys()}
    for key in keys or _SHOWN[section]:
        row = table[f"{section}.{key}"]
        value = _EXAMPLES[row["key"]] if row["default"] is None else _toml(row["default"])
        unit = "" if row["unit"] in ("", "1") else f"{row['unit']}; "
        line, meaning = f"# {key} = {value}", f"{unit}{row['meaning']}"
        if len(line) + len(meaning) + 4 > WIDTH:
            yield from (*_comment(f"{key}: {meaning}"), line)
        else:
            yield f"{line}  # {meaning}"


def _meaning(section: str, key: str) -> str:
    return next(str(row["meaning"]) for row in scenario_keys() if row["key"] == f"{section}.{key}")


def _toml(value: Any) -> str:
    """A value in one line of TOML; tables inline."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_toml(v)}" for k, v in value.items()) + " }"
    return tomli_w.dumps({"v": value}).removeprefix("v = ").rstrip("\n")


def _key(name: str) -> str:
    """A key as TOML writes it, quoted where it must be."""
    return tomli_w.dumps({name: 0}).removesuffix(" = 0\n")


def _plain(text: str) -> str:
    """Text that may stand in a comment: one line, printable."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _comment(text: str) -> Iterator[str]:
    """A comment of lines that are not too long."""
    line = "#"
    for word in _plain(text).split(" "):
        if len(line) + 1 + len(word) > WIDTH and line != "#":
            yield line
            line = "#"
        line += f" {word}"
    yield line
